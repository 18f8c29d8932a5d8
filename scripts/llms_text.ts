/**
 * Writes docs/llms.txt, the list of the pages for models: `node scripts/llms_text.ts`. Form: llmstxt.org.
 *
 * The pages are Markdown already and lie beside it, in the package too.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const DOCS = join(import.meta.dirname, "../docs");

/** Returns the list: the README's first paragraph, and for each page its heading and what its reader can do after it. */
export function llmsText(): string {
  const names = readdirSync(DOCS).filter((name) => name.endsWith(".md")).sort();
  const pages = names.map((name) => {
    const [, title, promise] = /^# (.+)\n\nAfter this page you can ([^]+?)\.(?:\s|$)/.exec(readPage(name)) ?? [];
    if (title === undefined || promise === undefined) throw new Error(`docs/${name} does not begin as a page`);
    return `- [${title}](${name}): ${oneLine(promise)}`;
  });
  const [, first = ""] = /^# Postern\n\n([^]+?)\n\n/.exec(readPage("../README.md")) ?? [];
  return `# Postern

> ${oneLine(first)}

These pages are Markdown, beside this list. After a page its reader can do what stands behind its name.

## Pages

- [README](../README.md): install, ask a first question, and find the other pages
${pages.join("\n")}
`;
}

function readPage(name: string): string {
  return readFileSync(join(DOCS, name), "utf8");
}

/** Joins the lines of a sentence, links as their words. */
function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/\[([^\]]+)\]\([^)]+\)/g, "$1");
}

if (import.meta.main) writeFileSync(join(DOCS, "llms.txt"), llmsText());

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CLIENTS } from "../../cli/clients/client_table.ts";
import { enterBlock } from "../../cli/clients/enter_block.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { parsePage } from "./support/read_pages.ts";

const read = (path: string) => readFileSync(join(PROJECT_ROOT, path), "utf8");
const TEXT = read("docs/clients.md");
const FACTS = { address: "http://127.0.0.1:42617/", token: "pst_...", models: [{ id: "qwen3:8b" }] };

for (const [name, { title, format, block, file }] of Object.entries(CLIENTS)) {
  test(`docs/clients.md has the block that postern clients ${name} writes, under its own heading`, async () => {
    const [, section = ""] = TEXT.split(`\n## ${title}\n`);
    const [own = ""] = section.split("\n## ");
    const [first] = parsePage("docs/clients.md", own).blocks;
    assert.equal(first?.text.trim(), (await enterBlock(format, "", block(FACTS))).trim());
    if (file !== undefined) assert.ok(own.includes(`\`~/${file}\``), `its file ${file} is named`);
    assert.ok(TEXT.includes(`| [${title}](#`), "it has a row in the table");
  });
}

test("the versions that docs/clients.md names are those that the tests run", () => {
  const { dependencies, optionalDependencies } = JSON.parse(read("test/system/clients/package.json"));
  const versions: Readonly<Record<string, string>> = { ...dependencies, ...optionalDependencies };
  const python = read("test/system/clients/requirements.txt");
  const row = (name: string) => TEXT.split("\n").find((line) => line.startsWith(`| [${name}](`)) ?? "";
  const pinned = (name: string) => new RegExp(`^${name}==(\\S+)`, "m").exec(python)?.[1] ?? "none";
  const expected: Readonly<Record<string, readonly (string | undefined)[]>> = {
    Codex: [versions["@openai/codex"]],
    "Claude Code": [versions["@anthropic-ai/claude-code"]],
    opencode: [versions["opencode-linux-x64"]],
    "OpenAI's libraries": [
      ...[versions["openai"], pinned("openai")],
      ...[versions["@openai/agents"], pinned("openai-agents")],
    ],
    "Anthropic's libraries": [pinned("anthropic"), versions["@anthropic-ai/sdk"]],
    "AI SDK": [versions["ai"]],
  };
  for (const [name, tried] of Object.entries(expected)) {
    for (const version of tried) assert.ok(version !== undefined && row(name).includes(version), `${name}: ${version}`);
  }
});

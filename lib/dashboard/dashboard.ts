import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";

/** The page as it is served, and the policy its reply must carry. */
export interface Dashboard {
  readonly html: string;
  readonly contentSecurityPolicy: string;
}

const PAGE = new URL("./page/", import.meta.url);
const IMPORT = /^import [^;]*? from "\.\/([a-z_]+\.js)";\n/gm;
const EXPORT = /^export (?=(?:async )?(?:function|const|class) (\w+))/gm;

let loaded: Promise<Dashboard> | undefined;

export interface DashboardOptions {
  /** false while the bearer routes are open: the page then asks for no code. Default true */
  readonly pairingRequired?: boolean;
}

/**
 * The dashboard: one HTML page with its style and script inside, so that it makes no request but those to its own gateway.
 *
 * Assembled once from `page/` and kept. The policy allows exactly this style and this script, by SHA-256. All addresses in the
 * page are relative, so it works under any base path.
 * Source: DESIGN.md section 9; https://www.w3.org/TR/CSP3/
 */
export async function loadDashboard({ pairingRequired = true }: DashboardOptions = {}): Promise<Dashboard> {
  loaded ??= assemble();
  const dashboard = await loaded;
  return pairingRequired
    ? dashboard
    : { ...dashboard, html: dashboard.html.replace("<body>", '<body data-pairing="off">') };
}

async function assemble(): Promise<Dashboard> {
  const [page, style, script] = await Promise.all([read("index.html"), read("style.css"), bundle()]);
  return {
    // Functions, since a replacement string would interpret `$`
    html: page.replace("<style></style>", () => `<style>${style}</style>`)
      .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`),
    contentSecurityPolicy: [
      "default-src 'none'",
      `script-src '${sha256(script)}'`,
      `style-src '${sha256(style)}'`,
      "connect-src 'self'",
      "img-src data:",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
  };
}

/** The modules reachable from `main.js`, each in a function of its own, after those it imports. */
async function bundle(): Promise<string> {
  const modules = new Map<string, string>();
  const visit = async (file: string) => {
    if (modules.has(file)) return;
    modules.set(file, "");
    const text = await read(file);
    for (const [, imported] of text.matchAll(IMPORT)) await visit(imported ?? "");
    // Set again: a Map keeps the place of the first insertion, so the importing module must be moved behind
    modules.delete(file);
    modules.set(file, scoped(text));
  };
  await visit("main.js");
  return `\n${[...modules.values()].join("\n")}`;
}

function scoped(text: string): string {
  const names = [...text.matchAll(EXPORT)].map(([, name]) => name);
  const body = text.replaceAll(IMPORT, "").replaceAll(EXPORT, "").trim();
  return `const { ${names.join(", ")} } = (() => {\n${body}\nreturn { ${names.join(", ")} };\n})();`;
}

function read(file: string): Promise<string> {
  return readFile(new URL(file, PAGE), "utf8");
}

function sha256(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, gzip } from "node:zlib";
import { readOwnFile } from "../base/own_file.ts";
import { withProgramName } from "../base/program_name.ts";

/** The page as it is served, and the policy its reply must carry. */
export interface Dashboard {
  readonly html: string;
  /** The page compressed, by the name of its content coding, the best first */
  readonly compressed: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  readonly contentSecurityPolicy: string;
}

const toBrotli = promisify<string, Uint8Array<ArrayBuffer>>(brotliCompress);
const toGzip = promisify<string, Uint8Array<ArrayBuffer>>(gzip);

const PAGE = new URL("./page/", import.meta.url);
const IMPORT = /^import [^;]*? from "\.\/([a-z_]+\.js)";\n/gm;
const EXPORT = /^export (?=(?:async )?(?:function|const|class) (\w+))/gm;

const loaded = new Map<string, Promise<Dashboard>>();

/**
 * The dashboard: one HTML page with its style and script inside, so that it makes no request but those to its own gateway.
 *
 * Assembled once from `page/` and kept. The policy allows exactly this style and this script, by SHA-256. All addresses in the
 * page are relative, so it works under any base path.
 * Source: docs/design/processes.md "Dashboard"; https://www.w3.org/TR/CSP3/
 */
export function loadDashboard(
  { pairingRequired = true, program = "postern" }: {
    /** false while the bearer routes are open: the page then asks for no code. Default true */
    readonly pairingRequired?: boolean;
    /** Words that start this program where its reader is. Default `postern` */
    readonly program?: string;
  } = {},
): Promise<Dashboard> {
  const key = `${pairingRequired} ${program}`;
  const dashboard = loaded.get(key) ?? assemble(pairingRequired, program);
  loaded.set(key, dashboard);
  return dashboard;
}

async function assemble(pairingRequired: boolean, program: string): Promise<Dashboard> {
  const files = await Promise.all([read("index.html"), read("style.css"), bundle()]);
  // Three in, three out
  const [page, style, script] = files.map((text) => withProgramName(text, program)) as [string, string, string];
  // Functions, since a replacement string would interpret `$`
  const html = page.replace("<style></style>", () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`)
    .replace("<body>", pairingRequired ? "<body>" : '<body data-pairing="off">');
  return {
    html,
    compressed: new Map([["br", await toBrotli(html)], ["gzip", await toGzip(html)]]),
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
  return readOwnFile(new URL(file, PAGE));
}

function sha256(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

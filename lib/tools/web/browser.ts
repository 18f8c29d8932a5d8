import { exactLine } from "../../base/text.ts";
import { lazily } from "../../base/lazily.ts";
import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import { type BrowserInput, browserInputSchema, loginsOf } from "./browser_input.ts";

/** Characters of what a person is asked to do. */
const MAX_HANDOFF = 500;
/** Time beside the operation itself: a browser may have to start, and a page to finish loading. */
const MARGIN_MS = 45_000;

/** Operations that only look at the page that is there, or close it. */
const LOOKS: ReadonlySet<string> = new Set(["snapshot", "text", "title", "url", "wait", "handoff", "close"]);

const driving = lazily(() => import("./drive_browser.ts"));

/** `browser`: uses pages in a real browser that sees nothing of the machine (docs/design/browser.md "Operations"). */
export const browser = defineTool({
  name: "browser",
  description:
    "Uses web pages in a real browser, one for each run. navigate, then snapshot shows the page with a ref for each element that click, fill and the others take. download clicks a ref, or opens a url, and saves the file",
  access: "write",
  // A download is written to a file, so `accessesOf` makes it a write too
  accessOf: ({ op, path }) => {
    if (op === "download") return "network";
    return LOOKS.has(op) || (op === "screenshot" && path === undefined) ? "read" : "write";
  },
  outside: true,
  enabled: (config) => config.browser.enabled,
  enabledBy: "[browser] enabled = true",
  loginsUnder: loginsOf,
  needs: ["browsers", "cookieJars", "browserLogins", "files", "urls", "proxyOf", "redactor", "secrets"],
  timeoutMs: ({ browser: { timeout_secs } }) => timeout_secs * 1000 + MARGIN_MS,
  input: browserInputSchema,
  check(input) {
    requireOpFields("browser", input, {
      navigate: ["url"],
      click: ["ref"],
      fill: ["ref"],
      type: ["ref", "text"],
      hover: ["ref"],
      select: ["ref", "value"],
      upload: ["ref", "path"],
      download: ["path"],
      press: ["key"],
      wait: ["for"],
      handoff: ["text"],
    });
    requireFitting(input);
    if (input.op === "fill" && (input.text === undefined) === (input.secret === undefined)) {
      throw new ToolError("invalid_input", 'Cannot call "browser": op "fill" needs either "text" or "secret"');
    }
    if (input.op === "download" && (input.ref === undefined) === (input.url === undefined)) {
      throw new ToolError("invalid_input", 'Cannot call "browser": op "download" needs either "ref" or "url"');
    }
    if (input.op === "handoff" && (input.text ?? "").length > MAX_HANDOFF) {
      const most = `at most ${MAX_HANDOFF} characters`;
      throw new ToolError("invalid_input", `Cannot call "browser": "text" of op "handoff" has ${most}`);
    }
  },
  admit({ op, path = "" }, { security, browser: { headless } }) {
    if (op === "handoff" && headless) {
      const wayOut = "set [browser] headless = false, which needs a desktop session";
      throw new ToolError("no_window", `Cannot hand the page over: the browser shows no window; ${wayOut}`);
    }
    if (op !== "download" || security.write_file.enabled) return;
    throw new ToolError(
      "write_off",
      `Cannot save to ${shown(path)}: set [security.write_file] enabled = true to allow it`,
    );
  },
  // An upload reads its file, which the approval shows, and does not change it
  effects: ({ op, url, path, text }) => ({
    ...(op === "handoff" ? { handoff: exactLine(text ?? "") } : {}),
    ...(url === undefined ? {} : { urls: [url] }),
    ...((op === "screenshot" || op === "download") && path !== undefined
      ? { root: "write_file" as const, paths: [path] }
      : {}),
    ...(op === "upload" && path !== undefined ? { root: "read_file" as const, paths: [path] } : {}),
  }),
  screen: async (input, context) => await (await driving()).screenCall(input, context),
  bind: async (input, context) => await (await driving()).boundBrowser(input, context),
  run: async (input, context) => await (await driving()).driveBrowser(input, context),
});

/** Fields that belong to no operation but these. */
const FIELDS_OF: Readonly<Record<string, readonly string[]>> = {
  url: ["navigate", "download"],
  ref: ["click", "fill", "type", "hover", "select", "upload", "download"],
  text: ["fill", "type", "handoff"],
  secret: ["fill"],
  value: ["select"],
  key: ["press"],
  direction: ["scroll"],
  amount: ["scroll"],
  path: ["upload", "screenshot", "download"],
  for: ["wait"],
  timeout_secs: ["wait"],
};

/** @throws {ToolError} `invalid_input` for a field that the operation does not take: a click with a text would lose the text */
function requireFitting(input: BrowserInput): void {
  const stray = Object.keys(input).find((field) => FIELDS_OF[field]?.includes(input.op) === false);
  if (stray === undefined) return;
  throw new ToolError(
    "invalid_input",
    `Cannot call "browser": op "${input.op}" takes no "${stray}", which is for ${FIELDS_OF[stray]?.join(", ")}`,
  );
}

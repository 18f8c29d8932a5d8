import type { Config } from "../../config/config.ts";
import { hash } from "node:crypto";
import { ToolError } from "../../base/errors.ts";
import type { BrowserPages } from "../../system/browser/browser_page.ts";
import type { PageState } from "../../system/browser/browser_windows.ts";
import { createBrowserPolicy } from "../../system/browser/browser_network.ts";
import type { SecretFill } from "../../system/browser/filled_secrets.ts";
import { hostAndPort, isLoopbackName } from "../../system/net/address.ts";
import { isAmongHosts } from "../../system/net/url_rules.ts";
import type { ContentSource } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import { readScope, writeScope } from "../files/file_scope.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import type { BoundParts } from "../runtime/tool.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { type BrowserInput, loginsOf } from "./browser_input.ts";
import { giveState, keepState } from "./browser_state.ts";
import { refuseSecrets } from "./refuse_secrets.ts";

type Needs = "browsers" | "cookieJars" | "browserLogins" | "files" | "urls" | "proxyOf" | "redactor" | "secrets";
type Context = ContextWith<Needs>;
type EarlyContext = Pick<
  Context,
  "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config" | "services"
>;

/** Largest file that a page is given. */
const MAX_UPLOAD_BYTES = 26_214_400;
const SCROLL_PIXELS = 600;

/** Refuses early what the call would refuse anyway. @throws {ToolError} `file_exists`, and those of `Files` */
export async function screenCall({ op, path }: BrowserInput, context: EarlyContext): Promise<void> {
  if (path === undefined) return;
  if (op === "screenshot" || op === "download") await requireNew(path, context);
  if (op === "upload") await readUpload(path, context);
}

/**
 * Returns the logins that an approval counts for, and the file of an upload: a call that was allowed in a browser that nobody knows must
 * not be made in one that is signed in. A new file is bound as every other.
 */
export async function boundBrowser({ op, path }: BrowserInput, context: EarlyContext): Promise<BoundParts> {
  const logins = loginsOf(context.config).map((name) => ({ kind: "login" as const, name, sha256: null }));
  if (op !== "upload" || path === undefined) return { shown: logins, throughFiles: true };
  const bytes = await readUpload(path, context);
  const sha256 = hash("sha256", bytes);
  return { shown: [{ kind: "file", name: path, sha256 }, ...logins] };
}

/** Makes one operation in the browser of the run. @throws {ToolError} as `Browsers.use` and `BrowserPages` */
export async function driveBrowser(input: BrowserInput, context: Context): Promise<ToolResult> {
  const { services: { browsers, redactor }, config, runId, signal, clock } = context;
  const { url: URL = "", text = "", value = "" } = input;
  refuseSecrets({ URL, text, value }, redactor);
  if (input.op === "screenshot" && input.path === undefined && !context.sees) {
    throw new ToolError(
      "invalid_input",
      'Cannot call "browser": op "screenshot" needs "path", since this model is not shown pictures ([provider] vision)',
    );
  }
  if (input.op === "close") {
    const wasOpen = await browsers.closeRun(runId);
    if (wasOpen) browsers.note(runId, { op: "close", target: "", url: "", error: null });
    return { output: wasOpen ? "closed" : "no browser was open", isError: false, data: { closed: wasOpen } };
  }
  const { executable, headless, timeout_secs: seconds, max_download_bytes: maxDownloadBytes } = config.browser;
  const step = { timeoutMs: seconds * 1000, signal, clock };
  const opens = input.url !== undefined;
  if (opens) await requireReachable(URL, context);
  try {
    return await browsers.use(
      runId,
      {
        ...step,
        executable,
        isVisible: !headless,
        maxDownloadBytes,
        requiresSandbox: requiresSandbox(config),
        opens,
        onOpened: (pages) => giveState(pages, context),
      },
      async (pages) => {
        try {
          const result = await operate(input, { pages, context, step });
          noteAction(input, { pages, context });
          return result;
        } catch (error) {
          noteAction(input, { pages, context, error });
          throw error;
        } finally {
          await keepState(pages, context);
        }
      },
    );
  } finally {
    // No later call has the run of a call by itself
    if (context.inherited === undefined) await browsers.closeRun(runId);
  }
}

/** Tells people who watch what was done. What was typed and chosen is left out: it may be a password. */
function noteAction(
  { op, ref, url, key, path, for: awaited }: BrowserInput,
  { pages, context: { services: { browsers, redactor }, runId }, error }: {
    readonly pages: BrowserPages;
    readonly context: Context;
    readonly error?: unknown;
  },
): void {
  const pressed = key === undefined ? undefined : /^(?:Shift\+)?.$/u.test(key) ? "a character" : key;
  const address = url === undefined ? undefined : withoutQuery(url);
  const target = [ref === undefined ? undefined : pages.labelOf(ref), address, pressed, path, awaited]
    .find((part) => part !== undefined) ?? "";
  const said = error instanceof Error ? error.message.split("\n")[0] ?? "" : error === undefined ? null : String(error);
  browsers.note(runId, {
    op,
    target: redactor.redact(target),
    url: redactor.redact(withoutQuery(pages.url)),
    error: said === null ? null : redactor.redact(said),
  });
}

/** Returns an address without its query and fragment: a form may have put there what was typed. */
function withoutQuery(address: string): string {
  const end = address.search(/[?#]/);
  return end === -1 ? address : `${address.slice(0, end)}${address[end] === "?" ? "?..." : ""}`;
}

/** Tells whether the operator wants no program of the agent to run without the sandbox. */
export function requiresSandbox({ browser, security: { shell } }: Pick<Config, "browser" | "security">): boolean {
  return browser.sandbox === "require" || shell.sandbox === "require";
}

interface Operation {
  readonly pages: BrowserPages;
  readonly context: Context;
  readonly step: Parameters<BrowserPages["text"]>[0];
}

async function operate(input: BrowserInput, { pages, context, step }: Operation): Promise<ToolResult> {
  const { op, ref = "", text = "", value = "", path = "" } = input;
  const answer = async (body?: string, more: Readonly<Record<string, unknown>> = {}) =>
    toResult(await pages.state(step), body, more);
  switch (op) {
    case "navigate": {
      const status = await pages.navigate(input.url ?? "", step);
      return await answer(undefined, status === undefined ? {} : { status });
    }
    case "snapshot":
      return await answer(await pages.snapshot(step));
    case "text":
      return await answer(await pages.text(step));
    case "click":
      await pages.click(ref, step);
      return await answer();
    case "fill":
      if (input.secret === undefined) await pages.fill(ref, text, step);
      else await pages.fillSecret(ref, secretOf(input.secret, context), step);
      return await answer();
    case "type":
      await pages.type(ref, text, step);
      return await answer();
    case "hover":
      await pages.hover(ref, step);
      return await answer();
    case "select":
      await pages.select(ref, value, step);
      return await answer();
    case "upload": {
      const bytes = await readUpload(path, context);
      await pages.upload(ref, { name: path.slice(path.lastIndexOf("/") + 1), bytes }, step);
      return await answer(undefined, { path, bytes: bytes.length });
    }
    case "download":
      return await saveDownload(input, { pages, context, step });
    case "press":
      await pages.press(input.key ?? "", step);
      return await answer();
    case "scroll":
      await pages.scroll(input.direction ?? "down", input.amount ?? SCROLL_PIXELS, step);
      return await answer();
    case "wait": {
      const timeoutMs = input.timeout_secs === undefined ? step.timeoutMs : input.timeout_secs * 1000;
      await pages.waitFor(input.for ?? "", { ...step, timeoutMs: Math.min(timeoutMs, step.timeoutMs) });
      return await answer();
    }
    case "back":
      await pages.back(step);
      return await answer();
    case "screenshot": {
      const bytes = await pages.screenshot(step);
      if (input.path !== undefined) await saveNew(path, bytes, context);
      const result = await answer(undefined, { ...input.path === undefined ? {} : { path }, bytes: bytes.length });
      return context.sees ? { ...result, pictures: [{ bytes, savedAs: input.path }] } : result;
    }
    // The person has answered: what was done is on the page. Address and title are a part of every answer
    case "handoff":
    case "title":
    case "url":
      return await answer();
    case "close":
      throw new TypeError("A browser is closed without its pages");
  }
}

/** Returns lines `name=value`, sentences in brackets, and the body. The page's words stand in quotes, each in one line. @param said further words of the page */
function toResult(
  { url, title, events }: PageState,
  body: string | undefined,
  more: Readonly<Record<string, unknown>>,
  said: Readonly<Record<string, string>> = {},
): ToolResult {
  const lines = [
    ...Object.entries(more).map(([name, value]) => `${name}=${value}`),
    ...Object.entries({ ...said, url, title }).map(([name, value]) => `${name}=${JSON.stringify(value)}`),
    ...events.map((event) => `[${event}]`),
    ...(body === undefined ? [] : ["", body]),
  ];
  return { output: lines.join("\n"), isError: false, data: { ...more, ...said, url, title, events } };
}

/** Refuses an address before a browser is opened, by the same policy that each request of the page is asked. @throws {ToolError} as UrlPolicy */
async function requireReachable(url: string, { services, config, signal }: Context): Promise<void> {
  const policy = createBrowserPolicy(services.urls, () => config.browser.allowed_domains);
  const target = URL.parse(url);
  const isByProxy = target !== null && services.proxyOf(target).resolve === "proxy";
  await policy.check(url, config.url_access, { signal, isByProxy });
}

/** Returns a secret for a field. Every rule about it is asked for the page that the field is on. */
function secretOf(name: string, { config, services: { secrets }, signal }: Context): SecretFill {
  const hosts = Object.hasOwn(config.secrets, name) ? config.secrets[name]?.hosts ?? [] : [];
  return {
    name,
    valueFor: (url) => secrets.value(name, { tool: "browser", url, signal }),
    goesTo: (url) =>
      isAmongHosts(hostAndPort(url).host, hosts) &&
      (/^(https|wss):$/.test(url.protocol) || isLoopbackName(url.hostname)),
  };
}

async function readUpload(path: string, context: EarlyContext): Promise<Uint8Array> {
  const file = await context.services.files.open(path, readScope(context));
  try {
    if (file.size > MAX_UPLOAD_BYTES) {
      throw new ToolError(
        "file_too_large",
        `Cannot upload ${shown(path)}: it has ${file.size} bytes, and a page is given at most ${MAX_UPLOAD_BYTES}`,
      );
    }
    const bytes = new Uint8Array(file.size);
    const read = await file.read(bytes, 0);
    return bytes.subarray(0, read);
  } finally {
    await file.close();
  }
}

async function requireNew(path: string, context: EarlyContext): Promise<void> {
  const { file } = await context.services.files.inspect(path, writeScope(context), { maxBytes: undefined });
  if (file === undefined) return;
  throw new ToolError("file_exists", `Cannot save as ${shown(path)}: it exists; give a new name`);
}

async function saveNew(path: string, content: Uint8Array | ContentSource, context: Context): Promise<void> {
  await requireNew(path, context);
  const change = { kind: "write", path, content, expected: undefined } as const;
  await context.services.files.change([change], writeScope(context), { signal: context.signal });
}

/** Writes the file that a page gives. The name of the file is the model's, and never the page's. */
async function saveDownload(
  { ref, url = "", path = "" }: BrowserInput,
  { pages, context, step }: Operation,
): Promise<ToolResult> {
  const maxBytes = context.config.browser.max_download_bytes;
  const file = await pages.download(ref === undefined ? { url } : { ref }, { ...step, maxBytes });
  try {
    await saveNew(path, file.content, context);
  } finally {
    await file.discard();
  }
  const { name, url: from, size: bytes } = file;
  return toResult(await pages.state(step), undefined, { path, bytes }, { name, from });
}

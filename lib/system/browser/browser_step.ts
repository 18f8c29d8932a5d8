import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";

/** Time and end of one operation. */
export interface StepOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** Milliseconds beside a step's own, for a browser that does not even answer that the time is over */
const GRACE_MS = 2000;

/** Texts of playwright's log about an element that cannot be used, each with a sentence for it. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/intercepts pointer events/, "another element covers it"],
  [/element is not visible/, "it is not visible"],
  [/element is not enabled/, "it is disabled"],
  [/element is not stable/, "it keeps moving"],
  [/element is outside of the viewport/, "it is outside of the window"],
  [/did not find some options/, "it has no such option"],
];

/**
 * Makes one step of the browser, with its errors in Postern's words.
 * @param what the step as the middle of a sentence, such as `click "e3"`
 * @throws {ToolError} `browser_timeout`, `browser_navigation`, `browser_ended`, `browser_failed`
 * @throws {CancelError} when the signal aborts
 */
export async function takeStep<T>(what: string, options: StepOptions, work: () => Promise<T>): Promise<T> {
  const { signal, clock, timeoutMs } = options;
  if (signal.aborted) throw cancelError(signal);
  const stopped = Promise.withResolvers<never>();
  const abort = () => stopped.reject(cancelError(signal));
  signal.addEventListener("abort", abort, { once: true });
  try {
    const done = work().then((value) => ({ value }), (error: unknown) => ({ error }));
    const ended = await Promise.race([withTimeout(done, { ms: timeoutMs + GRACE_MS, clock }), stopped.promise]);
    if (signal.aborted) throw cancelError(signal);
    if (ended === undefined) throw tooLong(what, timeoutMs, "");
    if ("error" in ended) throw inOurWords(what, timeoutMs, ended.error);
    return ended.value;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function inOurWords(what: string, timeoutMs: number, error: unknown): Error {
  if (error instanceof ToolError) return error;
  if (!(error instanceof Error)) return new ToolError("browser_failed", `Cannot ${what}: the browser failed`);
  // playwright colours its log
  // deno-lint-ignore no-control-regex
  const said = error.message.replace(/\u001b\[\d+m/g, "");
  if (error.name === "TimeoutError") return tooLong(what, timeoutMs, said);
  const [, code] = /net::(ERR_[A-Z0-9_]+)/.exec(said) ?? [];
  if (code !== undefined) return new ToolError("browser_navigation", `Cannot ${what}: ${networkReason(code)}`);
  if (/has been closed|browser has ended|Target crashed|Page crashed/.test(said)) {
    return new ToolError("browser_ended", `Cannot ${what}: the window was closed, or the browser has ended`);
  }
  if (said.includes("Download is starting")) {
    return new ToolError("browser_navigation", `Cannot ${what}: it is a download; save it with "op": "download"`);
  }
  const [line = ""] = said.replace(/^[\w.]+: (Error: )?/, "").split("\n");
  return new ToolError("browser_failed", `Cannot ${what}: ${line.slice(0, 200)}`, { cause: error });
}

function tooLong(what: string, timeoutMs: number, said: string): ToolError {
  const hint = HINTS.find(([pattern]) => pattern.test(said))?.[1];
  const reason = `it was not done within ${timeoutMs / 1000} s${hint === undefined ? "" : `, and ${hint}`}`;
  return new ToolError("browser_timeout", `Cannot ${what}: ${reason}`);
}

function networkReason(code: string): string {
  switch (code) {
    case "ERR_TUNNEL_CONNECTION_FAILED":
    case "ERR_PROXY_CONNECTION_FAILED":
      return `no connection was made (${code})`;
    case "ERR_BLOCKED_BY_ADMINISTRATOR":
      return `addresses of this kind are refused (${code})`;
    case "ERR_ABORTED":
      return `the page did not take its place, as when it is a download, which "op": "download" saves (${code})`;
    default:
      return code;
  }
}

import { ToolError } from "../../base/errors.ts";
import { withoutEnd } from "../../base/text.ts";
import { parsePath } from "../../system/files/parse_path.ts";
import { readScope, writeScope } from "../files/file_scope.ts";
import type { PreparedCall, ScreenContext, ServiceName, Tool, ToolServices } from "./tool.ts";

/** Rule of a call that the rules for its files refuse, or the tool's own for what it finds. */
export const RULE_SCREEN = "screen";

/** Codes of refusals by the rules for paths. Any other fault of a file, as that there is none, is for the call itself to say. */
const REFUSALS: ReadonlySet<string> = new Set([
  ...["path_invalid", "path_outside_root", "path_forbidden", "path_sensitive", "path_protected"],
  ...["hard_link", "symbolic_link"],
]);

/** Tells whether a call is refused by the rules for paths. */
export function isPathRefusal(error: unknown): error is ToolError {
  return error instanceof ToolError && REFUSALS.has(error.code);
}

/** Tells whether a call reads files by their paths and changes nothing: it is refused as it opens them. */
export function isPlainRead({ access, effects: { root } }: Pick<PreparedCall, "access" | "effects">): boolean {
  return access === "read" && root === "read_file";
}

/**
 * Looks for reasons that refuse a call whoever approves it: those of the tool itself, and the rules for the files that the call names. Has
 * no effect. The call makes the same checks again when it opens its files.
 * @param opens false: the files are left to the call
 * @throws {ToolError}
 */
export async function requireReached(
  tool: Tool,
  prepared: PreparedCall,
  { about, opens }: { readonly about: (tool: Tool) => ScreenContext; readonly opens: boolean },
): Promise<void> {
  const { paths = [], root } = prepared.effects;
  const isOpened = opens && root !== undefined && tool.needs.includes("files");
  if (prepared.screen === undefined && !isOpened) return;
  const context = about(tool);
  await prepared.screen?.(context);
  if (!isOpened) return;
  const { files } = context.services;
  for (const path of new Set(paths)) {
    try {
      parsePath(path, root === "write_file" ? "write" : "open");
      if (root === "write_file") await files.inspect(path, writeScope(context), { maxBytes: undefined });
      // A folder may be named with a slash at its end
      else await (await files.open(path.charAt(0) + withoutEnd(path.slice(1), "/"), readScope(context))).close();
    } catch (error) {
      if (!(error instanceof ToolError) || isPathRefusal(error)) throw error;
    }
  }
}

/** Services that may refuse a call when it is made, by what they find outside of this machine or of Postern. */
const FINDS: Readonly<Partial<Record<ServiceName, string>>> = {
  git: "what git finds in the repository, which is looked at when the call is made",
  guardedFetch: "where the address leads, which is looked up when the call is made",
  browsers: "where the page leads, which the browser says when the call is made",
  desktop: "what the desktop does, which it says when the call is made",
  boards: "what the board says when the call is made",
  wasmModules: "what the module is, which is read when the call is made",
  mcpReader: "what the MCP server says when the call is made",
};

/** Returns what a call that nobody is asked about may still be refused for when it is made. undefined: nothing outside decides about it. */
export function decidedLater({ needs }: Pick<Tool, "needs">): string | undefined {
  return needs.map((name) => FINDS[name]).find((found) => found !== undefined);
}

/** Error where a decision needs what is asked only when the call is made; the message says what. */
export class NotKnown extends Error {
  override readonly name = "NotKnown";
}

/**
 * Returns the services that `tools` need, for looking ahead alone: the given ones, which have no effect while a call is screened and bound.
 * Any use of another one throws NotKnown.
 */
export function onlyLooking(given: Partial<ToolServices>, tools: readonly Pick<Tool, "needs">[]): ToolServices {
  const needed = tools.flatMap(({ needs }) => needs);
  const stops = needed.map((name) => [name, unknownService(FINDS[name] ?? `what the gateway knows of "${name}"`)]);
  // The missing ones end the look at their first use
  return { ...Object.fromEntries(stops), ...given } as ToolServices;
}

function unknownService(what: string): unknown {
  const stop = () => {
    throw new NotKnown(what);
  };
  return new Proxy(stop, { get: stop, apply: stop });
}

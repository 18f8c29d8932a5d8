import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import type { Tool, ToolAnnotations } from "@modelcontextprotocol/server";
import { hasScope, type Scope } from "../../lib/base/records/caller.ts";
import { toldWords } from "../../lib/tools/runtime/told_words.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { TOOL_SEARCH } from "../../lib/tools/agents/tool_search.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import { RUN_TOOLS } from "./run_tools.ts";

/** Most tools that a client is shown: each costs its model the schema in every request, and some take 128. Above it the rest is deferred. */
const MOST_SHOWN = 60;
/** Tools that one token found, which are shown to it: the last of them. */
const MOST_FOUND = 40;
/** Names of the tools that are shown in any case. */
const ALWAYS_SHOWN: ReadonlySet<string> = new Set(
  BUILTIN_TOOLS.flatMap(({ name, alwaysOffered }) => (alwaysOffered === true ? [name] : [])),
);

/** Client of MCP as its list of tools depends on it. */
export interface OfferedTo {
  readonly scopes: readonly Scope[];
  /** Names that it may call, see `allowedTools`. Default: all */
  readonly allowed?: readonly string[] | undefined;
  /** Names of deferred tools that it found. Default: none */
  readonly found?: readonly string[] | undefined;
}

/** Returns the names of the tools that a token may call at `/mcp`, by `[mcp.server] tools` and its own patterns. undefined: all of them */
export function allowedTools(
  tools: Pick<ToolExecutor, "list">,
  { offered, own = ["*"] }: { readonly offered: readonly string[]; readonly own?: readonly string[] | undefined },
): readonly string[] | undefined {
  if (offered.includes("*") && own.includes("*")) return undefined;
  const names = [...tools.list(), ...Object.values(RUN_TOOLS).map(({ tool }) => tool)].map(({ name }) => name);
  // A search finds allowed tools alone
  return names.filter((name) => name === TOOL_SEARCH || (matchesPatterns(name, offered) && matchesPatterns(name, own)));
}

/**
 * Returns the enabled tools as MCP describes them, by name, and those for runs where the scopes allow them. Above 60 tools, `tool_search` is
 * among them and finds the rest, as for the gateway's own agent; until then it finds nothing and is left out.
 */
export function toOfferedTools(tools: Pick<ToolExecutor, "list">, offeredTo: OfferedTo): readonly Tool[] {
  const { known, forRuns } = shownTools(tools, offeredTo);
  return [...known.map(toMcpTool), ...forRuns].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Tells whether a client may call a tool that it is not shown. */
export function isDeferred(name: string, tools: Pick<ToolExecutor, "list">, offeredTo: OfferedTo): boolean {
  return !shownTools(tools, offeredTo).known.some((tool) => tool.name === name);
}

function shownTools(tools: Pick<ToolExecutor, "list">, { scopes, allowed, found = [] }: OfferedTo) {
  const all = tools.list();
  const names = new Set(all.map(({ name }) => name));
  const isAllowed = ({ name }: { readonly name: string }) => allowed === undefined || allowed.includes(name);
  const forRuns = Object.values(RUN_TOOLS).flatMap(({ access, tool }) =>
    hasScope(scopes, access) && !names.has(tool.name) && isAllowed(tool) ? [tool] : []
  );
  const enabled = all.filter((tool) => tool.enabled && isAllowed(tool));
  const others = enabled.filter(({ name }) => name !== TOOL_SEARCH);
  const canSearch = others.length < enabled.length;
  if (!canSearch || others.length + forRuns.length <= MOST_SHOWN) return { known: others, forRuns };
  return { known: enabled.filter(({ name }) => ALWAYS_SHOWN.has(name) || found.includes(name)), forRuns };
}

/** Deferred tools that clients found or called, by token: they are shown from then on. */
export class FoundTools {
  readonly #byToken = new Map<string | null, readonly string[]>();
  #changes = 0;

  /** Number that changes with what was found. */
  get changes(): number {
    return this.#changes;
  }

  /** Returns the names that a token found. */
  of(tokenId: string | null): readonly string[] {
    return this.#byToken.get(tokenId) ?? [];
  }

  /** Notes tools that a token found. */
  add(tokenId: string | null, names: readonly string[]): void {
    const known = this.of(tokenId);
    const fresh = names.filter((name) => !known.includes(name));
    if (fresh.length === 0) return;
    this.#byToken.set(tokenId, [...known, ...fresh].slice(-MOST_FOUND));
    this.#changes++;
  }

  /** Forgets what a token found that counts no more. */
  forget(tokenId: string): void {
    this.#byToken.delete(tokenId);
  }
}

function toMcpTool({ name, access, source, ...words }: ToolInfo): Tool {
  const { description, schema } = toldWords(source, { description: words.description, schema: words.input_schema });
  return {
    name,
    description,
    // The SDK's type leaves no room for `readonly`
    inputSchema: (schema ?? ANY_INPUT) as Tool["inputSchema"],
    annotations: annotationsOf(access),
  };
}

/** Schema of a tool that takes a text of its own. */
const ANY_INPUT = { type: "object" } as const;

/** Returns the hints for clients that an access gives. They are hints alone: the policy decides about each call. */
export function annotationsOf(access: ToolInfo["access"]): ToolAnnotations {
  switch (access) {
    case "read":
      return { readOnlyHint: true, destructiveHint: false, openWorldHint: false };
    case "state":
      return { readOnlyHint: false, destructiveHint: false, openWorldHint: false };
    case "write":
      return { readOnlyHint: false, destructiveHint: true, openWorldHint: false };
    case "network":
      return { readOnlyHint: false, destructiveHint: true, openWorldHint: true };
  }
}

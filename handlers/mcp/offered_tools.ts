import type { Tool, ToolAnnotations } from "@modelcontextprotocol/server";
import { canonicalDigest } from "../../lib/base/json.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import { hasScope, type Scope } from "../../lib/base/records/caller.ts";
import type { ToolExecutor, ToolInfo } from "../../lib/tools/runtime/tool_executor.ts";
import { RUN_TOOLS } from "./run_tools.ts";

/** Returns the enabled tools as MCP describes them, by name, and those for runs where the scopes allow them. */
export function toOfferedTools(tools: Pick<ToolExecutor, "list">, scopes: readonly Scope[]): readonly Tool[] {
  const known = tools.list();
  const names = new Set(known.map(({ name }) => name));
  const forRuns = Object.values(RUN_TOOLS).filter(({ access, tool }) =>
    hasScope(scopes, access) && !names.has(tool.name)
  );
  const offered = [...known.filter(({ enabled }) => enabled).map(toMcpTool), ...forRuns.map(({ tool }) => tool)];
  return offered.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function toMcpTool({ name, description, access, input_schema }: ToolInfo): Tool {
  return {
    name,
    description,
    // The SDK's type leaves no room for `readonly`
    inputSchema: (input_schema ?? ANY_INPUT) as Tool["inputSchema"],
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

/** How often the set of tools is compared while a client wants to know of changes, in milliseconds. */
const WATCH_MS = 1_000;

/** Options of `ToolWatch`. */
export interface ToolWatchOptions {
  readonly tools: Pick<ToolExecutor, "list">;
  readonly clock: Clock;
  /** Called when the enabled tools, or what is said of them, have changed */
  readonly onChange: () => void;
  /** Tells whether a client wants to know */
  readonly isNeeded: () => boolean;
}

/** Tells clients when the set of offered tools changes: by configuration, plugins, nodes, servers. It sleeps while nobody listens. */
export class ToolWatch {
  readonly #options: ToolWatchOptions;
  #timer: Timer | undefined = undefined;
  #known = "";

  constructor(options: ToolWatchOptions) {
    this.#options = options;
  }

  /** Begins to watch, if nobody listened before. */
  start(): void {
    if (this.#timer !== undefined) return;
    this.#known = this.#digest();
    this.#timer = this.#options.clock.every(WATCH_MS, () => this.#look());
  }

  stop(): void {
    this.#timer?.clear();
    this.#timer = undefined;
  }

  #look(): void {
    if (!this.#options.isNeeded()) return this.stop();
    const now = this.#digest();
    if (now === this.#known) return;
    this.#known = now;
    this.#options.onChange();
  }

  #digest(): string {
    return canonicalDigest(toOfferedTools(this.#options.tools, []));
  }
}

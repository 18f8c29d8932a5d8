import type { ToolChoice, ToolDeclaration } from "../providers/provider.ts";
import { foundNames, TOOL_SEARCH } from "../tools/agents/tool_search.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { CallResult } from "./tool_calls.ts";

/** Value of `[agent] tool_search`: whether rarely used tools wait until `tool_search` finds them. */
export type ToolSearchMode = "auto" | "on" | "off";

/** Most tools that a run declares in whole when the mode is `auto` */
const AUTO_ABOVE = 24;

/** The tools of a run, and those of them that the model is not told of at first. */
export interface ChosenTools {
  /** All tools that the run may call; deferring one changes no right */
  readonly agentTools: readonly Tool[];
  /** Names of the deferred tools: the model is told of one from the turn after it was found or called */
  readonly deferred: ReadonlySet<string>;
}

/** Options of `chooseTools`. */
export interface ChooseToolsOptions {
  readonly mode: ToolSearchMode;
  /** Tools of the client, which are never deferred; one may hide a tool of the agent */
  readonly clientTools: readonly Pick<ToolDeclaration, "name">[];
  readonly toolChoice: ToolChoice | undefined;
  /** True when declarations cost the provider nothing */
  readonly isFree: boolean;
}

/** Decides which tools of a new run are deferred. Without a deferred tool the run does not get `tool_search` either. */
export function chooseTools(tools: readonly Tool[], options: ChooseToolsOptions): ChosenTools {
  const { mode, clientTools, toolChoice, isFree } = options;
  const others = tools.filter(({ name }) => name !== TOOL_SEARCH);
  const forced = typeof toolChoice === "object" ? toolChoice.name : undefined;
  const canSearch = others.length < tools.length && !clientTools.some(({ name }) => name === TOOL_SEARCH);
  const isWanted = mode === "on" || (mode === "auto" && others.length > AUTO_ABOVE);
  const rare = others.filter((tool) => tool.alwaysOffered !== true && tool.name !== forced);
  if (!canSearch || !isWanted || isFree || rare.length === 0) return { agentTools: others, deferred: NONE };
  return { agentTools: tools, deferred: new Set(rare.map(({ name }) => name)) };
}

/** The set without a deferred tool. */
export const NONE: ReadonlySet<string> = new Set();

/** A tool of the agent as the model is told of it. */
export function toDeclaration(tool: Tool): ToolDeclaration {
  return { name: tool.name, description: tool.description, parameters: tool.modelSchema ?? tool.inputSchema };
}

/**
 * The tools that the requests of one run declare: those of the agent by name, those of the client, then each found tool in the order
 * in which it was found. What was declared once keeps its place, so that a provider can keep the request's beginning.
 */
export class DeclaredTools {
  /** Tools of the newest request */
  declared: readonly ToolDeclaration[];
  /** Number of tools at the beginning that each request of the run declares */
  readonly stable: number;
  readonly #waiting: Map<string, Tool>;

  constructor(
    own: readonly Tool[],
    { deferred, clientTools }: {
      readonly deferred: ReadonlySet<string>;
      readonly clientTools: readonly ToolDeclaration[];
    },
  ) {
    const told = deferred.size === 0 ? own : own.filter(({ name }) => !deferred.has(name));
    this.declared = told.length === 0 ? clientTools : [...told.map(toDeclaration), ...clientTools];
    this.stable = told.length === 0 ? 0 : this.declared.length;
    this.#waiting = new Map(
      deferred.size === 0 ? [] : own.flatMap((tool) => (deferred.has(tool.name) ? [[tool.name, tool]] : [])),
    );
  }

  /**
   * Adds the deferred tools that the calls of a turn found or named. The results of a journal give the same tools again.
   *
   * A deferred tool may be called before it was found: the executor checks the call like any other, and a model that knows the name
   * from the conversation needs no turn for a search. When the arguments were wrong, the schema is there for the next try.
   */
  takeResults(results: readonly CallResult[]): void {
    if (this.#waiting.size === 0) return;
    const names = results.flatMap(({ call, output, isError }) => {
      if (call.name !== TOOL_SEARCH) return [call.name];
      return isError ? [] : foundNames(output);
    });
    for (const name of names) {
      const tool = this.#waiting.get(name);
      if (tool === undefined) continue;
      this.#waiting.delete(name);
      this.declared = [...this.declared, toDeclaration(tool)];
    }
  }
}

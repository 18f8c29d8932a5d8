import { lazilyEach } from "../base/lazily.ts";
import type { ModelWishes, ToolDeclaration } from "../providers/provider.ts";
import { foundNames, OTHER_TOOL_SEARCH, TOOL_SEARCH } from "../tools/agents/tool_search.ts";
import { toldWords } from "../tools/runtime/told_words.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { CallResult } from "./tool_calls.ts";

/** Value of `[agent] tool_search`: whether rarely used tools wait until `tool_search` finds them. */
export type ToolSearchMode = "auto" | "on" | "off";

/** Most tools that a run declares in whole when the mode is `auto`, and most characters of those that are not Postern's own */
const AUTO_ABOVE = 24;
const AUTO_ABOVE_CHARACTERS = 8_000;

/** Most found tools that a request declares, and most characters of them together: those that were found first go first */
const MAX_FOUND = 64;
const MAX_FOUND_CHARACTERS = 64_000;

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
  /** The client's tools are never deferred; one may hide a tool of the agent */
  readonly wishes: ModelWishes;
  /** True when declarations cost the provider nothing */
  readonly isFree: boolean;
}

/** Decides which tools of a new run are deferred. Without a deferred tool the run does not get `tool_search` either. */
export function chooseTools(tools: readonly Tool[], options: ChooseToolsOptions): ChosenTools {
  if (tools.length === 0) return { agentTools: tools, deferred: NONE };
  const { mode, wishes: { clientTools, toolChoice }, isFree } = options;
  const others = tools.filter(({ name }) => name !== TOOL_SEARCH);
  const forced = typeof toolChoice === "object" ? toolChoice.name : undefined;
  const search = tools.filter((tool) => !others.includes(tool));
  const canSearch = (clientTools.length === 0 ? search : besideClientTools(search, clientTools)).length > 0;
  const isWanted = mode === "on" || (mode === "auto" && (others.length > AUTO_ABOVE || areLong(others)));
  const rare = others.filter((tool) => tool.alwaysOffered !== true && tool.name !== forced);
  if (!canSearch || !isWanted || isFree || rare.length === 0) return { agentTools: others, deferred: NONE };
  return { agentTools: tools, deferred: new Set(rare.map(({ name }) => name)) };
}

/** Returns the tools of the agent that those of the client do not hide, each by the name that it has beside them. */
export function besideClientTools(
  tools: readonly Tool[],
  clientTools: readonly Pick<ToolDeclaration, "name">[],
): readonly Tool[] {
  const isClients = (name: string) => clientTools.some((tool) => tool.name === name);
  return tools.flatMap((tool) => {
    if (!isClients(tool.name)) return [tool];
    const { otherName: name } = tool;
    return name === undefined || isClients(name) ? [] : [{ ...tool, name }];
  });
}

/** The set without a deferred tool. */
export const NONE: ReadonlySet<string> = new Set();

const NOTHING_WAITS: ReadonlyMap<string, Tool> = new Map();

/** Returns whether the tools of others are so long that they had better wait. */
function areLong(tools: readonly Tool[]): boolean {
  const foreign = tools.filter((tool) => tool.source !== "builtin");
  return foreign.length > 0 &&
    foreign.reduce((sum, tool) => sum + lengthOf(toDeclaration(tool)), 0) > AUTO_ABOVE_CHARACTERS;
}

function lengthOf(tool: ToolDeclaration): number {
  return JSON.stringify(tool).length;
}

/** Returns a tool of the agent as the model is told of it. */
export const toDeclaration = lazilyEach(
  ({ name, description, modelSchema, inputSchema, source }: Tool): ToolDeclaration => {
    const told = toldWords(source, { description, schema: modelSchema ?? inputSchema });
    return { name, description: told.description, parameters: told.schema };
  },
);

/**
 * The tools that the requests of one run declare: those of the agent by name, those of the client, then each found tool in the order
 * in which it was found. What was declared once keeps its place, so that a provider can keep the request's beginning.
 */
export class DeclaredTools {
  /** Tools of the newest request */
  declared: readonly ToolDeclaration[];
  /** Number of tools at the beginning that each request of the run declares */
  readonly stable: number;
  /** Number of tools that are no found ones */
  readonly #always: number;
  readonly #waiting: ReadonlyMap<string, Tool>;

  constructor(
    own: readonly Tool[],
    { deferred, clientTools }: {
      readonly deferred: ReadonlySet<string>;
      readonly clientTools: readonly ToolDeclaration[];
    },
  ) {
    const told = deferred.size === 0 ? own : own.filter(({ name }) => !deferred.has(name));
    this.declared = told.length === 0 ? clientTools : [...told.map(toDeclaration), ...clientTools];
    this.#always = this.declared.length;
    this.stable = told.length === 0 ? 0 : this.declared.length;
    this.#waiting = deferred.size === 0
      ? NOTHING_WAITS
      : new Map(own.flatMap((tool) => (deferred.has(tool.name) ? [[tool.name, tool]] : [])));
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
      if (call.name !== TOOL_SEARCH && call.name !== OTHER_TOOL_SEARCH) return [call.name];
      return isError ? [] : foundNames(output);
    });
    const found: ToolDeclaration[] = [];
    for (const name of names) {
      const tool = this.#waiting.get(name);
      if (tool === undefined || found.some((each) => each.name === name)) continue;
      // A tool that is declared already keeps its place
      if (!this.declared.some((each) => each.name === name)) found.push(toDeclaration(tool));
    }
    if (found.length > 0) this.declared = [...this.declared.slice(0, this.#always), ...this.#bounded(found)];
  }

  /** Returns the found tools, with those that were just found at the end, as many as a request may declare. */
  #bounded(newest: readonly ToolDeclaration[]): readonly ToolDeclaration[] {
    const all = [...this.declared.slice(this.#always), ...newest];
    let left = MAX_FOUND_CHARACTERS;
    const from = all.findLastIndex((tool, index) => {
      left -= lengthOf(tool);
      return (left < 0 && index < all.length - 1) || all.length - index > MAX_FOUND;
    });
    return all.slice(from + 1);
  }
}

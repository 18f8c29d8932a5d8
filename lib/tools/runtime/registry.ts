import type { ToolInfo } from "../../base/records/tool_info.ts";
import { lazilyEach } from "../../base/lazily.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { listSome } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import type { Tool } from "./tool.ts";
import type { ToolCallRequest } from "./tool_executor.ts";
import { switchOf, type ToolPolicy } from "./tool_policy.ts";

/** Immutable snapshot of all known tools, enabled or not. */
export interface ToolRegistry {
  readonly byName: ReadonlyMap<string, Tool>;
  /** All tools, sorted by name */
  readonly tools: readonly Tool[];
}

/** Names that OpenAI and Anthropic accept for a function */
const NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/;

/**
 * Creates the registry of these tools.
 * @param foreign further ones, of others: one whose name is wrong or taken is left out, and the others stay
 * @param onLeftOut is told the reason, as a sentence
 * @throws {TypeError} among `tools`, for an invalid name and for a name that two tools have
 */
export function createToolRegistry(
  tools: readonly Tool[],
  foreign: readonly Tool[] = [],
  onLeftOut: (reason: string) => void = () => {},
): ToolRegistry {
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    const fault = faultOf(tool, byName);
    if (fault !== undefined) throw new TypeError(fault);
    byName.set(tool.name, tool);
  }
  for (const tool of foreign) {
    const fault = faultOf(tool, byName);
    if (fault === undefined) byName.set(tool.name, tool);
    else onLeftOut(`${fault}; the tool of ${tool.origin ?? tool.source} is left out`);
  }
  const sorted = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return { byName, tools: sorted };
}

function faultOf({ name }: Tool, taken: ReadonlyMap<string, Tool>): string | undefined {
  if (!NAME.test(name)) return `Tool name ${JSON.stringify(name)} is not of ${NAME.source}`;
  return taken.has(name) ? `Tool "${name}" is registered twice` : undefined;
}

/** Tells whether a tool's name matches one of the patterns of `[agent] tools`: `*`, a name, or `prefix*`. No patterns match nothing. */
export function matchesPatterns(name: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}

/** Options of createCatalogue. */
export interface CatalogueOptions {
  readonly tools: readonly Tool[];
  /** Returns further tools, which come and go: the same array until they change. Default: none */
  readonly foreign?: (() => readonly Tool[]) | undefined;
  readonly log: Logger;
  /** Returns the newest configuration */
  readonly config: () => Config;
  /** As in ToolPolicyOptions */
  readonly writesConfig?: boolean | undefined;
}

/** Names of tools that are shown to a model after an unknown name */
const MAX_NAMES_SHOWN = 40;

/** The tools of the newest registry, under the newest configuration. */
export interface ToolCatalogue {
  /** Returns a tool, enabled or not. undefined for an unknown name */
  find(name: string): Tool | undefined;
  /** Returns the tool that a call names, or the reason why it does not exist for the caller */
  resolve(request: Pick<ToolCallRequest, "name" | "allowed">): Tool | { readonly reason: string };
  /** Returns the enabled tools that match the patterns */
  enabled(patterns: readonly string[]): readonly Tool[];
  /** Describes all tools by name */
  list(): readonly ToolInfo[];
  /** Describes one tool. undefined for an unknown name */
  get(name: string): ToolInfo | undefined;
}

/** Creates the catalogue of a tool executor. @throws {TypeError} for two of `tools` with one name */
export function createCatalogue(
  options: CatalogueOptions,
  policy: Pick<ToolPolicy, "isEnabled" | "whyOff" | "accessOf" | "described">,
): ToolCatalogue {
  const registry = registryNow(options);
  const find = (name: string) => {
    const { byName, tools } = registry();
    return byName.get(name) ?? tools.find(({ otherName }) => otherName === name);
  };
  const toInfo = (tool: Tool): ToolInfo => {
    const whyOff = policy.whyOff(tool);
    return {
      name: tool.name,
      description: policy.described(tool).description,
      access: policy.accessOf(tool),
      enabled: whyOff === undefined,
      reason: whyOff ?? null,
      turn_on: whyOff === undefined || options.writesConfig !== true ? null : switchOf(tool) ?? null,
      source: tool.source,
      origin: tool.origin ?? null,
      input_schema: tool.inputSchema,
      ...(tool.clientNeeds === undefined ? {} : { client_needs: tool.clientNeeds }),
    };
  };
  // A configuration alone decides about the gateway's own tools. One of others is also off while what it leads to is not there
  const offeredOf = lazilyEach(({ tools }: ToolRegistry) =>
    lazilyEach((_newest: Config) =>
      tools.filter((tool) => tool.source !== "builtin" || policy.isEnabled(tool)).map(policy.described)
    )
  );
  const enabled = (patterns: readonly string[]) =>
    offeredOf(registry())(options.config()).filter((tool) =>
      matchesPatterns(tool.name, patterns) && (tool.source === "builtin" || policy.isEnabled(tool))
    );
  return {
    find,
    enabled,
    list: () => registry().tools.map(toInfo),
    get(name) {
      const tool = find(name);
      return tool === undefined ? undefined : toInfo(tool);
    },
    resolve({ name, allowed }) {
      const tool = find(name);
      if (tool !== undefined && (allowed === undefined || matchesPatterns(name, allowed))) return tool;
      // The tools of a run are those that were on at its start
      const whyOff = tool && policy.whyOff(tool);
      const call = `Cannot call ${JSON.stringify(name.slice(0, 64))}`;
      if (whyOff !== undefined) return { reason: `${call}: ${whyOff}` };
      const names = enabled(allowed ?? ["*"]).map((known) => known.name);
      const shown = listSome(names, MAX_NAMES_SHOWN) || "none";
      const reason = tool === undefined ? "there is no such tool" : "[agent] tools does not name it for this caller";
      return { reason: `${call}: ${reason}; the tools are ${shown}` };
    },
  };
}

/** Returns a function that gives the newest registry; the registry is rebuilt when the foreign tools change. */
function registryNow({ tools, foreign, log }: CatalogueOptions): () => ToolRegistry {
  let registry = createToolRegistry(tools);
  if (foreign === undefined) return () => registry;
  let known: readonly Tool[] = [];
  return () => {
    const newest = foreign();
    if (newest === known) return registry;
    known = newest;
    registry = createToolRegistry(tools, newest, (reason) => log.error("A tool cannot be offered", { reason }));
    return registry;
  };
}

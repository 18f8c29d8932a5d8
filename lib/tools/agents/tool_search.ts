import * as v from "valibot";
import { stemWord } from "../../storage/word_forms.ts";
import { defineTool } from "../runtime/define_tool.ts";
import type { Tool } from "../runtime/tool.ts";

/** Name of the tool that finds deferred tools. */
export const TOOL_SEARCH = "tool_search";

const DEFAULT_LIMIT = 5;
const MAX_LIMIT = 10;
const MAX_DESCRIPTION = 160;
/** Names that are shown when nothing was found */
const MAX_NAMES = 60;
const MAX_QUERY_WORDS = 16;

/** `tool_search`: finds tools that the model is not told of in each turn (docs/design/tools.md "Deferred tools"). */
export const toolSearch = defineTool({
  name: TOOL_SEARCH,
  description:
    "Finds more tools, to call from the next turn on: documents, plans, processes, git, schedules, sub-agents, procedures, boards, other machines",
  access: "read",
  enabled: (config) => config.agent.tool_search !== "off",
  enabledBy: '[agent] tool_search = "auto"',
  alwaysOffered: true,
  needs: ["catalogue"],
  input: v.strictObject({
    query: v.pipe(v.string(), v.minLength(1), v.maxLength(1000), v.description("Words or names")),
    limit: v.optional(
      v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_LIMIT), v.description(`Default ${DEFAULT_LIMIT}`)),
    ),
  }),
  textField: "query",
  run({ query, limit = DEFAULT_LIMIT }, { services, allowed }) {
    const tools = services.catalogue.enabled(allowed ?? ["*"]).filter((tool) => tool.alwaysOffered !== true);
    const found = rankTools(query, tools).slice(0, limit);
    return Promise.resolve({
      output: found.length === 0 ? nothingFound(query, tools) : describeFound(found),
      isError: false,
      data: { tools: found.map(({ name, description }) => ({ name, description: oneLine(description) })) },
    });
  },
});

/** Returns the output of a search: a line `name: description` for each tool. */
export function describeFound(tools: readonly Pick<Tool, "name" | "description">[]): string {
  const lines = tools.map(({ name, description }) => `${name}: ${oneLine(description)}`);
  return [...lines, "Call them by name from the next turn on"].join("\n");
}

/** Returns the names of the tools that an output of `describeFound` lists, in order. A description has no line of its own. */
export function foundNames(output: string): readonly string[] {
  return [...output.matchAll(/^([a-zA-Z][a-zA-Z0-9_-]{0,63}): /gm)].map((match) => match[1] ?? "");
}

function nothingFound(query: string, tools: readonly Tool[]): string {
  if (tools.length === 0) return "There are no more tools than those that you have";
  const names = tools.slice(0, MAX_NAMES).map(({ name }) => name);
  const more = tools.length > names.length ? ` and ${tools.length - names.length} more` : "";
  return `No tool fits ${JSON.stringify(query.slice(0, 200))}; search for one of these names: ${
    names.join(", ")
  }${more}`;
}

function oneLine(description: string): string {
  const line = description.replaceAll(/\s+/g, " ").trim();
  return line.length <= MAX_DESCRIPTION ? line : `${line.slice(0, MAX_DESCRIPTION).trimEnd()}...`;
}

/** Words of a tool that a query is compared with, as stems. */
interface ToolWords {
  readonly tool: Tool;
  readonly name: readonly string[];
  readonly description: ReadonlySet<string>;
  readonly fields: ReadonlySet<string>;
}

/** Returns the tools that have a word of the query, the best first. A tool that the query names stands before all others. */
function rankTools(query: string, tools: readonly Tool[]): readonly Tool[] {
  const named = new Set(query.split(/[\s,;]+/).map((part) => part.toLowerCase()));
  const words = [...new Set(stemsOf(query))].slice(0, MAX_QUERY_WORDS);
  const known = tools.map(wordsOf);
  // A word that many tools have says little about one of them
  const weights = words.map((word) => {
    const having = known.filter((tool) => scoreOf(word, tool) > 0).length;
    return Math.log(1 + tools.length / Math.max(having, 1));
  });
  return known.map((tool) => ({
    tool: tool.tool,
    score: words.reduce((sum, word, index) => sum + scoreOf(word, tool) * (weights[index] ?? 0), 0) +
      (named.has(tool.tool.name.toLowerCase()) ? 1000 : 0),
  })).filter(({ score }) => score > 0).sort((a, b) => b.score - a.score || (a.tool.name < b.tool.name ? -1 : 1))
    .map(({ tool }) => tool);
}

function wordsOf(tool: Tool): ToolWords {
  return {
    tool,
    name: stemsOf(tool.name),
    description: new Set(stemsOf(tool.description)),
    fields: new Set(Object.keys(tool.inputSchema?.properties ?? {}).flatMap(stemsOf)),
  };
}

function scoreOf(word: string, { name, description, fields }: ToolWords): number {
  if (name.includes(word)) return 6;
  if (word.length > 2 && name.some((part) => part.startsWith(word) || (part.length > 2 && word.startsWith(part)))) {
    return 4;
  }
  if (description.has(word)) return 3;
  return fields.has(word) ? 1 : 0;
}

/** Returns the stems of the words of a text; a single Latin letter says nothing, a digit does. */
function stemsOf(text: string): readonly string[] {
  return text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter((word) => word !== "" && !/^[a-z]$/.test(word)).map(
    stemWord,
  );
}

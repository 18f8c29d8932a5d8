import type { Prompt, Resource, ResourceTemplateType, Tool } from "@modelcontextprotocol/client";
import { canonicalDigest, type JsonObject } from "../../base/json.ts";
import type { McpToolDefinition } from "./mcp_connection.ts";
import { McpError } from "./mcp_error.ts";

/** Methods that list something, and the item of each. */
interface ListItems {
  readonly "tools/list": Tool;
  readonly "prompts/list": Prompt;
  readonly "resources/list": Resource;
  readonly "resources/templates/list": ResourceTemplateType;
}
/** Method that lists something. */
export type ListMethod = keyof ListItems;
/** Item that a method lists. */
export type ListItem<M extends ListMethod> = ListItems[M];

/** Field of a page that has the items. */
const FIELDS: Readonly<Record<ListMethod, string>> = {
  "tools/list": "tools",
  "prompts/list": "prompts",
  "resources/list": "resources",
  "resources/templates/list": "resourceTemplates",
};

/** List of a server as it was read. */
export interface ReadList<T> {
  readonly items: readonly T[];
  /** Milliseconds that the server allows the list to be kept. Undefined: it does not say */
  readonly ttlMs: number | undefined;
}

/** Function that asks for one page. */
export type AskPage = (params: { readonly cursor?: string }) => Promise<Readonly<Record<string, unknown>>>;

const MAX_PAGES = 64;
const MAX_ITEMS = 1_000;
/** Bytes of all the pages together, as JSON. */
const MAX_BYTES = 10 * 1_048_576;
const MAX_CURSOR = 4_096;
/** Longest time that a list is kept, whatever the server says: a day. */
const MAX_TTL_MS = 86_400_000;

/** Reads all the pages of a list. @throws {McpError} `mcp_invalid` for a list without end or out of bounds, and what `ask` throws */
export async function readServerList<M extends ListMethod>(
  { server, method, ask }: { readonly server: string; readonly method: M; readonly ask: AskPage },
): Promise<ReadList<ListItem<M>>> {
  const refuse = (reason: string) =>
    new McpError("mcp_invalid", `Cannot read ${method} of the MCP server "${server}": ${reason}`, { server });
  const items: ListItem<M>[] = [];
  const seen = new Set<string>();
  let bytes = 0;
  let ttlMs: number | undefined;
  let cursor: string | undefined;
  for (let page = 1;; page++) {
    const result = await ask(cursor === undefined ? {} : { cursor });
    // The SDK has checked the page against the schema of its method
    const found = result[FIELDS[method]] as readonly ListItem<M>[];
    bytes += JSON.stringify(found).length;
    if (bytes > MAX_BYTES) throw refuse(`it is larger than ${MAX_BYTES} bytes`);
    if (items.length + found.length > MAX_ITEMS) throw refuse(`it has more than ${MAX_ITEMS} entries`);
    items.push(...found);
    if (page === 1) ttlMs = ttlOf(result["ttlMs"]);
    const next = result["nextCursor"];
    if (typeof next !== "string") return { items, ttlMs };
    if (next.length > MAX_CURSOR) throw refuse(`a cursor is longer than ${MAX_CURSOR} characters`);
    if (seen.has(next)) throw refuse("its pages repeat, so that it never ends");
    if (page === MAX_PAGES) throw refuse(`it has more than ${MAX_PAGES} pages`);
    seen.add(next);
    cursor = next;
  }
}

function ttlOf(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? Math.min(value, MAX_TTL_MS) : undefined;
}

const MAX_NAME = 128;
const MAX_DESCRIPTION = 16_384;
const MAX_SCHEMA_BYTES = 131_072;

/** Tools of a list that can be offered, and the reasons why others cannot. */
export interface CheckedTools {
  readonly tools: readonly McpToolDefinition[];
  /** Sentences for the log */
  readonly refused: readonly string[];
}

/** Checks the tools of a server: names, sizes, no name twice. One that is refused never hides the others. */
export function checkTools(listed: readonly Tool[]): CheckedTools {
  const tools: McpToolDefinition[] = [];
  const refused: string[] = [];
  const names = new Set<string>();
  for (const tool of listed) {
    const reason = names.has(tool.name) ? "another tool has its name" : faultOf(tool);
    names.add(tool.name);
    if (reason === undefined) tools.push(toDefinition(tool));
    else refused.push(`${JSON.stringify(tool.name.slice(0, MAX_NAME))} is left out: ${reason}`);
  }
  return { tools, refused };
}

function faultOf({ name, inputSchema, outputSchema }: Tool): string | undefined {
  // deno-lint-ignore no-control-regex
  if (name === "" || name.length > MAX_NAME || /[\u0000-\u0020\u007f-\u009f]/.test(name)) {
    return `its name must have 1 to ${MAX_NAME} characters, without blanks`;
  }
  const isLong = [inputSchema, outputSchema].some((schema) => (JSON.stringify(schema) ?? "").length > MAX_SCHEMA_BYTES);
  if (isLong) return `its schema is larger than ${MAX_SCHEMA_BYTES} bytes`;
  return hasGoodHeaders(inputSchema) ? undefined : `an "${HEADER_KEYWORD}" of its schema breaks the rules`;
}

/** Keyword that makes a parameter a header of the request. */
const HEADER_KEYWORD = "x-mcp-header";
/** Characters of a header's name. Source: RFC 9110 section 5.6.2 */
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const HEADER_TYPES: readonly unknown[] = ["string", "integer", "boolean"];

/** Tells whether the headers of a schema are named well, for plain values, and each once. A tool where they are not must not be offered. */
function hasGoodHeaders(schema: object): boolean {
  const names = new Set<string>();
  const waiting: object[] = [schema];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    const properties: unknown = "properties" in at ? at.properties : undefined;
    if (typeof properties !== "object" || properties === null) continue;
    for (const property of Object.values(properties)) {
      if (typeof property !== "object" || property === null) continue;
      waiting.push(property);
      if (!Object.hasOwn(property, HEADER_KEYWORD)) continue;
      const { [HEADER_KEYWORD]: name, type } = property as Readonly<Record<string, unknown>>;
      if (typeof name !== "string" || !HEADER_NAME.test(name) || !HEADER_TYPES.includes(type)) return false;
      if (names.has(name.toLowerCase())) return false;
      names.add(name.toLowerCase());
    }
  }
  return true;
}

function toDefinition({ name, title, description, inputSchema, outputSchema, annotations }: Tool): McpToolDefinition {
  const said = { name, title, description, inputSchema, outputSchema, annotations };
  return {
    name,
    title: title ?? annotations?.title,
    description: (description ?? "").slice(0, MAX_DESCRIPTION),
    // Both came as JSON
    inputSchema: inputSchema as JsonObject,
    outputSchema: outputSchema as JsonObject | undefined,
    hints: {
      readOnly: annotations?.readOnlyHint === true,
      destructive: annotations?.destructiveHint !== false,
      idempotent: annotations?.idempotentHint === true,
      openWorld: annotations?.openWorldHint !== false,
    },
    digest: canonicalDigest(said),
  };
}

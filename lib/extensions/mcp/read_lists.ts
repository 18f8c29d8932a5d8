import type { Prompt, Resource, ResourceTemplateType, Tool } from "@modelcontextprotocol/client";
import { canonicalDigest, isRecord, type JsonObject } from "../../base/json.ts";
import type { McpToolDefinition } from "./mcp_connection.ts";

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
export const FIELDS: Readonly<Record<ListMethod, string>> = {
  "tools/list": "tools",
  "prompts/list": "prompts",
  "resources/list": "resources",
  "resources/templates/list": "resourceTemplates",
};

/** List of a server as it was read. */
export interface ReadList<T> {
  readonly items: readonly T[];
  /** Sentences about what is left out: entries that break the protocol, and those beyond a bound */
  readonly leftOut: readonly string[];
  /** Milliseconds that the server allows the list to be kept. Undefined: it does not say */
  readonly ttlMs: number | undefined;
}

/** Function that asks for one page. */
export type AskPage = (params: { readonly cursor?: string }) => Promise<Readonly<Record<string, unknown>>>;

const MAX_PAGES = 64;
/** Entries of one list. */
export const MAX_ITEMS = 1_000;
/** Bytes of all the pages together, as JSON. */
const MAX_BYTES = 10 * 1_048_576;
const MAX_CURSOR = 4_096;
/** Longest time that a list is kept, whatever the server says: a day. */
const MAX_TTL_MS = 86_400_000;

/**
 * Reads the pages of a list. One without end, or out of bounds, counts as far as it was read.
 * @param options.leftOutOf returns the sentences about what was taken out of a page
 * @throws what `ask` throws
 */
export async function readServerList<M extends ListMethod>(
  { method, ask, leftOutOf }: {
    readonly method: M;
    readonly ask: AskPage;
    readonly leftOutOf: (page: Readonly<Record<string, unknown>>) => readonly string[];
  },
): Promise<ReadList<ListItem<M>>> {
  const items: ListItem<M>[] = [];
  const leftOut: string[] = [];
  const seen = new Set<string>();
  let bytes = 0;
  let ttlMs: number | undefined;
  let cursor: string | undefined;
  let last = "";
  let end: string | undefined;
  for (let page = 1; end === undefined; page++) {
    const result = await ask(cursor === undefined ? {} : { cursor });
    const { nextCursor: next, ttlMs: given } = result;
    // The SDK has checked the page against the schema of its method
    const found = result[FIELDS[method]] as readonly ListItem<M>[];
    const text = JSON.stringify(found);
    bytes += text.length;
    if (page === 1) ttlMs = ttlOf(given);
    if (bytes > MAX_BYTES) end = `it is larger than ${MAX_BYTES} bytes`;
    // A server that does not look at the cursor gives one page over and over
    else if (typeof next !== "string" || !seen.has(next) || text !== last) {
      items.push(...found);
      leftOut.push(...leftOutOf(result));
    }
    if (items.length > MAX_ITEMS) end ??= MANY;
    if (typeof next !== "string") break;
    if (next.length > MAX_CURSOR) end ??= `a cursor is longer than ${MAX_CURSOR} characters`;
    if (seen.has(next)) end ??= "its pages repeat, so that it never ends";
    if (page === MAX_PAGES) end ??= `it has more than ${MAX_PAGES} pages`;
    seen.add(next);
    cursor = next;
    last = text;
  }
  if (end !== undefined) leftOut.push(restIsLeftOut(end));
  return { items: items.slice(0, MAX_ITEMS), leftOut, ttlMs };
}

function restIsLeftOut(reason: string): string {
  return `The rest of the list is left out: ${reason}`;
}

const MANY = `it has more than ${MAX_ITEMS} entries`;
/** Sentence about a list with more entries than are taken. */
export const TOO_MANY = restIsLeftOut(MANY);

/** Returns the sentence about an entry of a list that is left out. */
export function isLeftOut(entry: unknown, fault: string): string {
  const name = isRecord(entry) ? entry["name"] : undefined;
  const shown = typeof name === "string" ? JSON.stringify(name.slice(0, MAX_NAME)) : "An entry without a name";
  return `${shown} is left out: ${fault}`;
}

function ttlOf(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? Math.min(value, MAX_TTL_MS) : undefined;
}

const MAX_NAME = 128;
const MAX_DESCRIPTION = 16_384;
/** Characters of one schema as JSON. */
export const MAX_SCHEMA_BYTES = 131_072;

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
    else refused.push(isLeftOut(tool, reason));
  }
  return { tools, refused };
}

function faultOf({ name, inputSchema }: Tool): string | undefined {
  // deno-lint-ignore no-control-regex
  if (name === "" || name.length > MAX_NAME || /[\u0000-\u0020\u007f-\u009f]/.test(name)) {
    return `its name must have 1 to ${MAX_NAME} characters, without blanks`;
  }
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
      const { [HEADER_KEYWORD]: name, type }: Readonly<Record<string, unknown>> = property;
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

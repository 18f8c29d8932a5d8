import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import type { JsonSchema } from "../base/json.ts";
import { configSchema } from "./config.ts";
import { type KeyPath, type RawTable, toKeyText } from "./toml.ts";
import { nearest } from "./nearest.ts";

/** The fields of a valibot schema that the walk below reads. Each kind of schema has some of them. */
interface Node {
  readonly type: string;
  readonly wrapped?: Node;
  readonly entries?: Readonly<Record<string, Node>>;
  readonly value?: Node;
  readonly item?: Node;
  /** Words of a picklist, or the schemas of a union */
  readonly options?: readonly (string | Node)[];
  readonly pipe?: readonly (Node & { readonly requirement?: unknown; readonly description?: string })[];
}

/** Names that valibot leaves out of a record without a word. */
const SKIPPED: ReadonlySet<string> = new Set(["__proto__", "prototype", "constructor"]);

/** The schema node at a path, without its `optional`; undefined where there is no such key. */
export function schemaAt(path: KeyPath): Node | undefined {
  // Valibot's object kinds all carry the members that Node names
  let node: Node | undefined = configSchema as GenericSchema as unknown as Node;
  for (const part of path) node = unwrap(childOf(node, part));
  return node;
}

/** Keys of the table at `path`; empty for a value and for a table whose names the user chooses. */
export function keysAt(path: KeyPath): readonly string[] {
  return Object.keys(schemaAt(path)?.entries ?? {});
}

/** Every key of the schema as text, names of the user's choice as `<name>`, items of a list of tables as `<n>`. */
export function allKeys(path: KeyPath = []): readonly string[] {
  const node = schemaAt(path);
  if (node?.entries !== undefined) return Object.keys(node.entries).flatMap((key) => allKeys([...path, key]));
  if (node?.value?.type === "strict_object") return allKeys([...path, "<name>"]);
  if (node?.item?.type === "strict_object") return allKeys([...path, 0]);
  return [path.map((part) => (part === 0 ? "<n>" : part)).join(".")];
}

/** Paths of `table` that the schema does not know; nothing below them is looked at. */
export function unknownKeys(table: RawTable, path: KeyPath = []): readonly KeyPath[] {
  return Object.entries(table).flatMap(([key, value]) => {
    const here = [...path, key];
    if (SKIPPED.has(key) || schemaAt(here) === undefined) return [here];
    if (isTable(value)) return unknownKeys(value, here);
    return Array.isArray(value)
      ? value.flatMap((item, index) => (isTable(item) ? unknownKeys(item, [...here, index]) : []))
      : [];
  });
}

/** Paths where a list stands for a table: valibot takes it for an object that has none of the keys. */
export function listsForTables(table: RawTable, path: KeyPath = []): readonly KeyPath[] {
  return Object.entries(table).flatMap(([key, value]) => {
    const here = [...path, key];
    if (isTable(value)) return listsForTables(value, here);
    const node = Array.isArray(value) ? schemaAt(here) : undefined;
    return node?.entries !== undefined || node?.type === "record" ? [here] : [];
  });
}

/** The valid key that was probably meant: of the same table first, else one of that name elsewhere. */
export function nearestKey(path: KeyPath): string | undefined {
  const table = path.slice(0, -1);
  const word = String(path.at(-1));
  const sibling = nearest(word, keysAt(table));
  if (sibling !== undefined) return toKeyText([...table, sibling]);
  const all = allKeys();
  return all.find((key) => key.endsWith(`.${word}`)) ?? nearest(toKeyText(path), all) ??
    nearest(word, all.filter((key) => !key.includes(".")));
}

/** Says which values a key takes, such as `a whole number from 0 to 65535`. */
export function expectationAt(path: KeyPath): string {
  const node = schemaAt(path);
  return node === undefined ? "a known key" : expectation(node);
}

function expectation(node: Node): string {
  const described = node.pipe?.find((action) => action.type === "description")?.description;
  if (described !== undefined) return described;
  const limit = (type: string) => node.pipe?.find((action) => action.type === type)?.requirement;
  switch (node.type) {
    case "number":
      return `a whole number from ${limit("min_value")} to ${limit("max_value")}`;
    case "boolean":
      return "true or false";
    case "picklist":
      return `one of ${(node.options ?? []).map((option) => JSON.stringify(option)).join(", ")}`;
    case "string": {
      if (limit("length") !== undefined) return `text of ${limit("length")} character`;
      return node.pipe?.some((action) => action.type === "non_empty") ? "text that is not empty" : "text";
    }
    case "array":
      return node.item?.type === "strict_object" ? "a list of tables" : "a list of texts that are not empty";
    default:
      return "a table";
  }
}

function childOf(node: Node | undefined, part: string | number): Node | undefined {
  if (node?.entries !== undefined) return Object.hasOwn(node.entries, part) ? node.entries[part] : undefined;
  // A key takes at most one kind of table
  if (node?.type === "union") return childOf(node.options?.find(isTableNode), part);
  return node?.type === "record" ? node.value : typeof part === "number" ? node?.item : undefined;
}

function isTableNode(node: string | Node): node is Node {
  return typeof node !== "string" && node.entries !== undefined;
}

/** Takes away what `optional` and the meaning of a key put around its schema. */
function unwrap(node: Node | undefined): Node | undefined {
  const inner = node?.wrapped ?? node?.pipe?.find(({ pipe }) => pipe !== undefined);
  return inner === undefined ? node : unwrap(inner);
}

/** JSON Schema (2020-12) of `postern.toml`, for editors. Where more than one spelling is read, it names the one that is kept. */
export function configJsonSchema(): JsonSchema {
  return { ...toJsonSchema(configSchema, { target: "draft-2020-12", typeMode: "input" }), title: "postern.toml" };
}

/** Tells whether a value of a TOML text is a table. */
export function isTable(value: unknown): value is RawTable {
  if (value === null || typeof value !== "object") return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

import { isRecord } from "../../base/json.ts";

/** Node of a JSON Schema that is no boolean. */
export type SchemaNode = Readonly<Record<string, unknown>>;

/** Definitions that were written out around a node, the innermost first. */
export interface RefPath {
  readonly target: SchemaNode;
  readonly outer: RefPath | undefined;
}

/** Node with what its references and its `allOf` say, in one. */
export interface OpenedNode {
  /** Keywords of the node without `$ref`, `allOf`, `anyOf`, `oneOf` and `if` */
  readonly node: SchemaNode;
  /** Branches of each `anyOf`, `oneOf` and `if`, as they came */
  readonly unions: readonly (readonly unknown[])[];
  readonly path: RefPath | undefined;
  /** Reason why a part is not told, for the description. Undefined: all of it is */
  readonly cut: string | undefined;
}

/** Node that is being opened. */
interface Opening {
  node: SchemaNode;
  readonly unions: (readonly unknown[])[];
  path: RefPath | undefined;
  cut: string | undefined;
}

/** Levels of a definition within itself. */
const MAX_REPEATS = 2;
/** Levels of `allOf` and of references to references at one node. */
const MAX_LEVELS = 20;

/** Fields, required names and values of a node that are as much work as a node more. */
const ENTRIES_OF_NODE = 64;

/** Opens the nodes of one schema, with a bounded amount of work. */
export class SchemaOpener {
  readonly #root: SchemaNode;
  readonly #budget: number;
  #left: number;

  /** @param budget nodes that may be opened, those of `allOf` and behind references among them */
  constructor(root: SchemaNode, budget: number) {
    this.#root = root;
    this.#budget = budget;
    this.#left = budget;
  }

  /** Nodes that were opened, and that were refused. A large node counts as several. */
  get used(): number {
    return this.#budget - this.#left;
  }

  /** Opens a node. Booleans and what is no schema allow any value. */
  open(raw: unknown, path: RefPath | undefined): OpenedNode {
    const opening: Opening = { node: {}, unions: [], path, cut: undefined };
    this.#take(raw, 0, opening);
    return opening;
  }

  #take(
    raw: unknown,
    level: number,
    into: Opening,
  ): void {
    if (!isRecord(raw)) return;
    if (this.#left-- <= 0 || level > MAX_LEVELS) {
      into.cut = "the rest is too large to be told";
      return;
    }
    const { $ref: ref, allOf, anyOf, oneOf, if: condition, then, else: otherwise, ...rest } = raw;
    this.#left -= Math.floor(sizeOf(rest) / ENTRIES_OF_NODE);
    into.node = mergeNodes(into.node, rest);
    for (const choices of [anyOf, oneOf]) if (Array.isArray(choices) && choices.length > 0) into.unions.push(choices);
    if (condition !== undefined && (then ?? otherwise) !== undefined) {
      into.unions.push([then ?? true, otherwise ?? true]);
    }
    if (Array.isArray(allOf)) { for (const part of allOf) this.#take(part, level + 1, into); }
    if (typeof ref !== "string") return;
    const target = resolvePointer(this.#root, ref);
    if (target === undefined) into.cut = "its form is defined elsewhere";
    else if (repeatsOf(target, into.path) >= MAX_REPEATS) into.cut = "the same form again, and so on";
    else {
      into.path = { target, outer: into.path };
      this.#take(target, level + 1, into);
    }
  }
}

function sizeOf({ properties, required, enum: values }: SchemaNode): number {
  const fields = isRecord(properties) ? Object.keys(properties).length : 0;
  return fields + listOf(required).length + listOf(values).length;
}

/** Returns the node that a local reference names, such as `#/$defs/name`. Undefined for any other reference. Source: RFC 6901 */
export function resolvePointer(root: SchemaNode, ref: string): SchemaNode | undefined {
  if (ref === "#") return root;
  if (!ref.startsWith("#/")) return undefined;
  let value: unknown = root;
  for (const part of ref.slice(2).split("/")) {
    const key = decode(part)?.replaceAll("~1", "/").replaceAll("~0", "~");
    if (key === undefined || value === null || typeof value !== "object" || !Object.hasOwn(value, key)) {
      return undefined;
    }
    // The key was just seen on it
    value = (value as Record<string, unknown>)[key];
  }
  return isRecord(value) ? value : undefined;
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

function repeatsOf(target: SchemaNode, path: RefPath | undefined): number {
  let count = 0;
  for (let at = path; at !== undefined; at = at.outer) if (at.target === target) count++;
  return count;
}

type Merge = (first: unknown, second: unknown) => unknown;

const larger: Merge = (a, b) => typeof a === "number" && typeof b === "number" ? Math.max(a, b) : a;
const smaller: Merge = (a, b) => typeof a === "number" && typeof b === "number" ? Math.min(a, b) : a;
const both: Merge = (a, b) => Array.isArray(a) || Array.isArray(b) ? a : { allOf: [a, b] };

/** Values of keywords that stand in both of two nodes. Every other keyword keeps its first value. */
const MERGES: ReadonlyMap<string, Merge> = new Map<string, Merge>([
  ["type", (a, b) => {
    const [first, second] = [a, b].map((types) => (Array.isArray(types) ? types : [types]));
    const common = first?.filter((type) => second?.includes(type)) ?? [];
    if (common.length > 0) return common.length === 1 ? common[0] : common;
    return [a, b].includes("integer") && [a, b].includes("number") ? "integer" : a;
  }],
  ["properties", (a, b) => (isRecord(a) && isRecord(b) ? mergeFields(a, b) : a)],
  ["patternProperties", (a, b) => (isRecord(a) && isRecord(b) ? { ...a, ...b } : a)],
  ["required", (a, b) => [...new Set([...listOf(a), ...listOf(b)])]],
  ["additionalProperties", (a, b) => (a === false || b === false ? false : a)],
  ["items", both],
  ["description", (a, b) => (a === b || typeof a !== "string" || typeof b !== "string" ? a : `${a} ${b}`)],
  ["enum", (a, b) => {
    const texts = new Set(listOf(b).map((value) => JSON.stringify(value)));
    const common = listOf(a).filter((value) => texts.has(JSON.stringify(value)));
    return common.length > 0 ? common : a;
  }],
  ["minimum", larger],
  ["exclusiveMinimum", larger],
  ["minLength", larger],
  ["minItems", larger],
  ["maximum", smaller],
  ["exclusiveMaximum", smaller],
  ["maxLength", smaller],
  ["maxItems", smaller],
]);

/** Returns a node that allows every value that fits both nodes, and few others. */
function mergeNodes(first: SchemaNode, second: SchemaNode): SchemaNode {
  if (Object.keys(first).length === 0) return second;
  const merged = new Map(Object.entries(first));
  for (const [keyword, value] of Object.entries(second)) {
    const known = merged.get(keyword);
    merged.set(keyword, known === undefined ? value : MERGES.get(keyword)?.(known, value) ?? known);
  }
  return Object.fromEntries(merged);
}

function mergeFields(first: SchemaNode, second: SchemaNode): SchemaNode {
  const merged = new Map(Object.entries(first));
  for (const [name, field] of Object.entries(second)) {
    const known = merged.get(name);
    merged.set(name, known === undefined || same(known, field) ? field : { allOf: [known, field] });
  }
  return Object.fromEntries(merged);
}

/** Returns a list, or an empty one for any other value. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

import { isRecord, isShallow } from "../../base/json.ts";
import { listSome } from "../../base/text.ts";
import { listOf, type SchemaNode } from "./open_schema.ts";
import type { SchemaDialect } from "./schema_dialect.ts";

/** Types of values but null. */
export const VALUE_TYPES: readonly string[] = ["string", "number", "boolean", "object", "array"];

const TYPES = new Set([...VALUE_TYPES, "integer", "null"]);

/** Rules that a schema's dialect cannot say, in words for a description. */
export class Said {
  readonly #parts: string[] = [];

  get isEmpty(): boolean {
    return this.#parts.length === 0;
  }

  add(text: string): void {
    if (this.#parts.length < MAX_SAID) this.#parts.push(text.slice(0, MAX_SAID_TEXT));
  }

  /** Adds a keyword with its value. A value that is long or deep is cut or left out. */
  addKeyword(keyword: string, value: unknown): void {
    if (isShallow(value, MAX_SAID_DEPTH)) this.add(`${keyword}: ${JSON.stringify(value)}`);
  }

  text(): string {
    return this.#parts.join("; ");
  }
}

const MAX_SAID = 8;
const MAX_SAID_TEXT = 400;
const MAX_SAID_DEPTH = 8;

/** Largest values in `enum`, and their UTF-16 units together; more are told in part. */
const MAX_VALUES = 256;
const MAX_VALUES_TEXT = 8_000;

/** Place where the keywords of a node are written, and what is left to be said. */
interface Writing {
  readonly dialect: SchemaDialect;
  readonly written: Record<string, unknown>;
  readonly said: Said;
}

type Form = (value: unknown) => boolean;

const isText: Form = (value) => typeof value === "string";
const isNumber: Form = (value) => typeof value === "number" && Number.isFinite(value);
const isCount: Form = (value) => Number.isSafeInteger(value) && Number(value) >= 0;
const isFlag: Form = (value) => typeof value === "boolean";
const isSmall: Form = (value) => isShallow(value, MAX_SAID_DEPTH);

/** Values that each keyword may have. A value of another form is left out: vendors refuse the whole request for it. */
const FORMS: ReadonlyMap<string, Form> = new Map<string, Form>([
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"].map((keyword) => [keyword, isNumber] as const),
  ...["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"].map((keyword) =>
    [keyword, isCount] as const
  ),
  ...["uniqueItems", "deprecated", "readOnly", "writeOnly"].map((keyword) => [keyword, isFlag] as const),
  ["multipleOf", (value) => isNumber(value) && Number(value) > 0],
  ["title", isText],
  ["format", isText],
  ["pattern", (value) => typeof value === "string" && isPattern(value)],
  ["default", isSmall],
  ["examples", (value) => Array.isArray(value) && isSmall(value)],
]);

/** Keywords that no dialect takes here, and that a model should read of. */
const SAID = new Set([
  ...["patternProperties", "propertyNames", "not", "contains", "minContains", "maxContains"],
  ...["dependentRequired", "dependentSchemas", "dependencies"],
]);
/** Keywords that say nothing that a model needs, where a dialect does not take them. */
const UNSAID = new Set(["title", "readOnly", "writeOnly", "uniqueItems", "deprecated"]);

/** Writes a keyword that holds no schema when the dialect takes it, else says it in words. An unknown keyword is left out. */
export function fitKeyword(keyword: string, node: SchemaNode, { dialect, written, said }: Writing): void {
  const value = node[keyword];
  if (SAID.has(keyword)) {
    if (keyword !== "propertyNames" || !isAnyName(value)) said.addKeyword(keyword, value);
    return;
  }
  const modern = modernBound(keyword, node);
  const form = FORMS.get(keyword);
  if (modern === undefined || form === undefined || !form(modern)) return;
  if (dialect.keywords.has(keyword) && isTaken(keyword, modern, dialect)) written[keyword] = modern;
  else if (!UNSAID.has(keyword)) said.addKeyword(keyword, modern);
}

function isTaken(keyword: string, value: unknown, { formats, maxCount }: SchemaDialect): boolean {
  if (keyword === "format") return formats === undefined || formats.has(String(value));
  return maxCount === undefined || !isCountKeyword(keyword) || Number(value) <= maxCount;
}

function isCountKeyword(keyword: string): boolean {
  return FORMS.get(keyword) === isCount;
}

/** Returns a bound as drafts since 6 write it: draft 4 has `exclusiveMinimum: true` beside `minimum`. Undefined: it says nothing */
function modernBound(keyword: string, node: SchemaNode): unknown {
  const value = node[keyword];
  if (keyword === "minimum" && node["exclusiveMinimum"] === true) return undefined;
  if (keyword === "maximum" && node["exclusiveMaximum"] === true) return undefined;
  if (keyword === "exclusiveMinimum" && typeof value === "boolean") return value ? node["minimum"] : undefined;
  if (keyword === "exclusiveMaximum" && typeof value === "boolean") return value ? node["maximum"] : undefined;
  return value;
}

function isAnyName(value: unknown): boolean {
  return value === true || (isRecord(value) && Object.keys(value).every((keyword) => keyword === "type"));
}

function isPattern(value: string): boolean {
  try {
    new RegExp(value, "u");
    return true;
  } catch {
    return false;
  }
}

/** Returns the types of a node, null apart where the dialect has no lists. Undefined: it names none, and the dialect needs none. */
export function typesOf(
  node: SchemaNode,
  { takesAnyValue, takesTypeLists }: SchemaDialect,
): { readonly types: string | readonly string[] | undefined; readonly nullable: boolean } {
  const given = Array.isArray(node["type"]) ? node["type"] : [node["type"]];
  const known = [...new Set(given.filter((type): type is string => typeof type === "string" && TYPES.has(type)))];
  const isUnknown = known.length < new Set(given).size;
  const types = isUnknown ? (takesAnyValue ? [] : impliedTypes(node)) : known;
  const hasNull = node["nullable"] === true || types.includes("null");
  if (types.length === 0) return { types: undefined, nullable: hasNull };
  const all = hasNull && !types.includes("null") ? [...types, "null"] : types;
  const told = takesTypeLists ? all : withoutNull(all);
  return { types: told.length === 1 ? told[0] : told, nullable: hasNull };
}

/** Returns the types without null and without the narrower of two; null alone counts as a text that may be null. */
function withoutNull(types: readonly string[]): readonly string[] {
  const others = types.filter((type) => type !== "null" && !(type === "integer" && types.includes("number")));
  return others.length === 0 ? ["string"] : others;
}

/** Returns the types of a node that names none, as its other keywords tell. Empty: they do not. */
function impliedTypes(node: SchemaNode): readonly string[] {
  const values = Array.isArray(node["enum"]) ? node["enum"] : "const" in node ? [node["const"]] : [];
  if (values.length > 0) return [...new Set(values.map(typeOfValue))];
  if (isRecord(node["properties"]) || node["additionalProperties"] !== undefined) return ["object"];
  return node["items"] === undefined && node["prefixItems"] === undefined ? [] : ["array"];
}

function typeOfValue(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** Writes the values that `enum` or `const` allow, as the dialect takes them. */
export function textEnum(node: SchemaNode, dialect: SchemaDialect, { written, said }: Omit<Writing, "dialect">): void {
  if (dialect.keywords.has("const") && Object.hasOwn(node, "const") && isSmall(node["const"])) {
    written["const"] = node["const"];
  }
  if (written["enum"] !== undefined || (written["const"] !== undefined && node["enum"] === undefined)) return;
  const given = Array.isArray(node["enum"]) ? node["enum"] : Object.hasOwn(node, "const") ? [node["const"]] : [];
  if (given.length === 0 || !given.every(isSmall)) return;
  const texts = given.map((value) => JSON.stringify(value));
  const values = dialect.hasTextEnums ? given.filter((value) => value !== null) : given;
  const isShort = texts.length <= MAX_VALUES && texts.join().length <= MAX_VALUES_TEXT;
  const isSayable = !dialect.hasTextEnums || values.every((value) => typeof value === "string" && value !== "");
  if (isShort && isSayable && values.length > 0) {
    written["enum"] = new Set(texts).size === texts.length ? values : [...new Set(values)];
    return;
  }
  said.add(`one of ${listSome(texts, 20)}`);
}

/** Returns the values that a node allows by `enum` or `const`. Undefined: it names none */
export function valuesOf(node: SchemaNode): readonly unknown[] | undefined {
  if (Array.isArray(node["enum"])) return listOf(node["enum"]);
  return Object.hasOwn(node, "const") ? [node["const"]] : undefined;
}

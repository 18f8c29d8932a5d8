import { RE2JS } from "re2js";
import { canonicalJson, isRecord, type ObjectJsonSchema } from "../../base/json.ts";

/** Place and reason of a value that breaks a schema. */
export interface SchemaFault {
  /** Dotted path of the field, such as `files[0].name`. Empty: the value itself */
  readonly path: string;
  /** Rest of a sentence that begins with the field, such as `must be a string` */
  readonly reason: string;
}

/** Schema of somebody else's tool that is ready to check inputs. */
export interface CheckedSchema {
  readonly schema: ObjectJsonSchema;
  /** Returns the first fault of an input; undefined when the input fits */
  check(value: unknown): SchemaFault | undefined;
}

/** Error that names the part of a schema which is not understood. A part that is not understood would check nothing. */
export class SchemaError extends Error {
  override readonly name = "SchemaError";
}

type Check = (value: unknown, path: string) => SchemaFault | undefined;
type Schema = Readonly<Record<string, unknown>>;

/** Schemas within one schema, itself included. */
const MAX_SCHEMAS = 500;
const MAX_DEPTH = 16;
/** References within references at one value. */
const MAX_NESTED = 64;
/** Parts of values that the references of one check may look at together. */
const MAX_LOOKS = 250_000;
const MAX_VALUE_DEPTH = 1_000;
/** Instructions of one compiled pattern. */
const MAX_PROGRAM = 1_000;
/** Instructions of a pattern times UTF-16 units of a text: bounds the time of one match to about a second */
const MAX_STEPS = 20_000_000;

/** Keywords that describe and check nothing. */
const NOTES = new Set([
  ...["$schema", "$comment", "title", "description", "default", "examples", "deprecated"],
  // Definitions are checked where a reference names them
  ...["readOnly", "writeOnly", "$defs", "definitions"],
]);
const TYPES = ["string", "number", "integer", "boolean", "object", "array", "null"];

/**
 * Makes a JSON Schema ready to check inputs. Knows the keywords of draft 2020-12 but those of conditions and dynamic properties. A
 * reference names a definition of the same schema, or `#` the whole of it, and may refer to itself for the parts of a value. A pattern is of RE2, whose time grows with the text alone: no schema can hang the gateway.
 *
 * A schema that names `properties` and says nothing of `additionalProperties` is closed: who lists the fields means no other.
 * @param whole schema that `#` names. Default: the given one
 * @throws {SchemaError} a keyword that is not known or is used wrongly, and a schema whose top is no object
 */
export function compileSchema(given: unknown, whole?: unknown): CheckedSchema {
  if (!isRecord(given)) throw new SchemaError("it must be an object");
  if (given["type"] !== "object") throw new SchemaError('its "type" must be "object"');
  const { properties = {}, additionalProperties = given["properties"] === undefined ? undefined : false } = given;
  if (!isRecord(properties)) throw new SchemaError('"properties" must be an object');
  const schema = { ...given, properties, ...(additionalProperties === undefined ? {} : { additionalProperties }) };
  for (const keyword of ["anyOf", "oneOf", "allOf", "not"]) {
    if (Object.hasOwn(schema, keyword)) throw new SchemaError(`"${keyword}" is not allowed at its top`);
  }
  let left = MAX_SCHEMAS;
  let bounds = new ReferenceBounds();
  /** Each definition once: one that refers to itself has no end, and many that refer to each other would be many times as many. */
  const definitions = new Map<string, { check: Check; readonly sameValue: Map<string, string> }>();
  const compile = (part: unknown, path: string, place: Place): Check => {
    const { depth, sameValue } = place;
    if (--left < 0) throw new SchemaError(`it holds over ${MAX_SCHEMAS} schemas`);
    if (depth > MAX_DEPTH) throw new SchemaError(`it is nested deeper than ${MAX_DEPTH} schemas`);
    if (part === true) return () => undefined;
    if (part === false) return (_, at) => ({ path: at, reason: "is not allowed" });
    if (!isRecord(part)) throw new SchemaError(`"${path}" must be a schema`);
    const { $ref: ref, ...rest } = part;
    const check = compileTable(
      rest,
      path,
      (inner, at, isPart) => compile(inner, at, { depth: depth + 1, sameValue: isPart ? undefined : sameValue }),
    );
    if (ref === undefined) return check;
    const name = typeof ref === "string" ? ref : "";
    const at = path === "" ? "$ref" : `${path}.$ref`;
    sameValue?.set(name, at);
    let definition = definitions.get(name);
    if (definition === undefined) {
      definition = { check, sameValue: new Map() };
      definitions.set(name, definition);
      const { sameValue } = definition;
      definition.check = compile(name === "#" && whole !== undefined ? whole : definitionOf(schema, ref, at), at, {
        depth: 1,
        sameValue,
      });
    }
    const found = definition;
    return firstFault([(value, at) => bounds.within(value, at, found.check), check]);
  };
  const check = compile(schema, "", { depth: 0, sameValue: undefined });
  refuseCycles(definitions);
  return {
    // The top was just checked to be an object with fields
    schema: schema as unknown as ObjectJsonSchema,
    check(value) {
      bounds = new ReferenceBounds();
      try {
        return check(value, "");
      } catch (error) {
        // Thrown, not given: "not" would take a fault for a fit
        if (error instanceof ReferenceFault) return error.fault;
        throw error;
      }
    },
  };
}

/** Place of a schema in the whole. */
interface Place {
  /** Schemas above it, up to the definition that it is in */
  readonly depth: number;
  /** References of its definition that see the very value that the definition sees, with the place of each. Undefined: this one sees a part of it */
  readonly sameValue: Map<string, string> | undefined;
}

/** Refuses definitions that come back to themselves at the same value: such a check would have no end. @throws {SchemaError} */
function refuseCycles(definitions: ReadonlyMap<string, { readonly sameValue: ReadonlyMap<string, string> }>): void {
  const ended = new Set<string>();
  const visit = (name: string, at: string, above: readonly string[]) => {
    if (above.includes(name)) throw new SchemaError(`"${at.slice(0, 200)}" refers to itself for the same value`);
    if (ended.has(name)) return;
    for (const [next, place] of definitions.get(name)?.sameValue ?? []) visit(next, place, [...above, name]);
    ended.add(name);
  };
  for (const name of definitions.keys()) visit(name, name, []);
}

/** Fault of a value that references would look at too deep or too often. */
class ReferenceFault extends Error {
  readonly fault: SchemaFault;
  constructor(fault: SchemaFault) {
    super(fault.reason);
    this.fault = fault;
  }
}

/** Bounds of all references of one check: a definition that refers to itself twice doubles its looks at each level of the value. */
class ReferenceBounds {
  #nested = 0;
  #looks = 0;
  readonly #sizes = new Map<unknown, number>();

  /** Checks a value by a definition. @throws {ReferenceFault} */
  within(value: unknown, path: string, check: Check): SchemaFault | undefined {
    this.#nested++;
    this.#looks += this.#sizeOf(value, path, 0);
    const reason = this.#nested > MAX_NESTED
      ? `is nested deeper than ${MAX_NESTED} references`
      : this.#looks > MAX_LOOKS
      ? "takes too long to check by a schema that refers to itself"
      : undefined;
    if (reason !== undefined) throw new ReferenceFault({ path, reason });
    const fault = check(value, path);
    this.#nested--;
    return fault;
  }

  /** Counts the parts of a value, and a part for each 16 characters. */
  #sizeOf(value: unknown, path: string, depth: number): number {
    if (typeof value === "string") return 1 + value.length / 16;
    if (typeof value !== "object" || value === null) return 1;
    if (depth > MAX_VALUE_DEPTH) throw new ReferenceFault({ path, reason: `is nested deeper than ${MAX_VALUE_DEPTH}` });
    let size = this.#sizes.get(value);
    if (size === undefined) {
      size = Object.values(value).reduce<number>((sum, part) => sum + this.#sizeOf(part, path, depth + 1), 1);
      this.#sizes.set(value, size);
    }
    return size;
  }
}

/** Returns the definition that a reference names. @throws {SchemaError} none of the same schema has this name */
function definitionOf(root: Schema, ref: unknown, at: string): unknown {
  const definition = findDefinition(root, ref);
  if (definition !== undefined) return definition;
  throw new SchemaError(`"${at.slice(0, 200)}" must name a definition of "$defs", such as "#/$defs/name"`);
}

/** Returns the definition of a schema that a reference names, or for `#` the schema itself; undefined: there is none of this name. */
export function findDefinition(root: unknown, ref: unknown): unknown {
  if (ref === "#") return root;
  if (typeof ref !== "string" || !isRecord(root)) return undefined;
  const [, place = "", name = ""] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(ref) ?? [];
  const definitions = root[place];
  const key = name.replaceAll("~1", "/").replaceAll("~0", "~");
  return isRecord(definitions) && Object.hasOwn(definitions, key) ? definitions[key] : undefined;
}

/** Compiles a schema within another one. `isPart`: it sees a part of the value */
type CompileInner = (part: unknown, path: string, isPart?: boolean) => Check;

/** Keywords whose schemas see a part of the value, or the name of one. */
const OF_PARTS = new Set(["properties", "additionalProperties", "propertyNames", "prefixItems", "items"]);

function compileTable(schema: Schema, path: string, inner: CompileInner): Check {
  const checks: Check[] = [];
  for (const keyword of Object.keys(schema)) {
    if (NOTES.has(keyword)) continue;
    const make = KEYWORDS.get(keyword);
    const at = path === "" ? keyword : `${path}.${keyword}`;
    if (make === undefined) throw new SchemaError(`"${at.slice(0, 200)}" is not a keyword that is known here`);
    checks.push(make(schema, at, (part, where) => inner(part, where, OF_PARTS.has(keyword))));
  }
  return firstFault(checks);
}

function firstFault(checks: readonly Check[]): Check {
  return (value, path) => {
    for (const check of checks) {
      const fault = check(value, path);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

type Keyword = (schema: Schema, path: string, inner: CompileInner) => Check;

/** Checks by keyword. A keyword checks values of its own type alone, as the standard has it. */
const KEYWORDS: ReadonlyMap<string, Keyword> = new Map<string, Keyword>([
  ["type", typeCheck],
  ["enum", (schema, path) => oneOfValues(list(schema, "enum", path))],
  ["const", (schema) => oneOfValues([schema["const"]])],
  ["properties", propertiesCheck],
  ["required", requiredCheck],
  ["additionalProperties", additionalCheck],
  ["propertyNames", namesCheck],
  ["prefixItems", prefixCheck],
  ["items", itemsCheck],
  ["uniqueItems", uniqueCheck],
  ["pattern", patternCheck],
  ["format", formatCheck],
  ["multipleOf", multipleCheck],
  ["anyOf", (schema, path, inner) => choiceCheck(compileList(schema, "anyOf", { path, inner }), { exactlyOne: false })],
  ["oneOf", (schema, path, inner) => choiceCheck(compileList(schema, "oneOf", { path, inner }), { exactlyOne: true })],
  ["allOf", (schema, path, inner) => firstFault(compileList(schema, "allOf", { path, inner }))],
  ["not", notCheck],
  ["minimum", bound("minimum", numberOf, (value, limit) => value >= limit, "must be at least")],
  ["maximum", bound("maximum", numberOf, (value, limit) => value <= limit, "must be at most")],
  ["exclusiveMinimum", bound("exclusiveMinimum", numberOf, (value, limit) => value > limit, "must be above")],
  ["exclusiveMaximum", bound("exclusiveMaximum", numberOf, (value, limit) => value < limit, "must be below")],
  ["minLength", bound("minLength", lengthOf, (value, limit) => value >= limit, "must have a length of at least")],
  ["maxLength", bound("maxLength", lengthOf, (value, limit) => value <= limit, "must have a length of at most")],
  ["minItems", bound("minItems", countOf, (value, limit) => value >= limit, "must have a length of at least")],
  ["maxItems", bound("maxItems", countOf, (value, limit) => value <= limit, "must have a length of at most")],
  [
    "minProperties",
    bound("minProperties", fieldsOf, (value, limit) => value >= limit, "must have a length of at least"),
  ],
  [
    "maxProperties",
    bound("maxProperties", fieldsOf, (value, limit) => value <= limit, "must have a length of at most"),
  ],
]);

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** Counts the characters of a text, as the standard does: not its UTF-16 units. */
function lengthOf(value: unknown): number | undefined {
  return typeof value === "string" ? [...value].length : undefined;
}

function countOf(value: unknown): number | undefined {
  return Array.isArray(value) ? value.length : undefined;
}

function fieldsOf(value: unknown): number | undefined {
  return isRecord(value) ? Object.keys(value).length : undefined;
}

function bound(
  keyword: string,
  measure: (value: unknown) => number | undefined,
  fits: (value: number, limit: number) => boolean,
  words: string,
): Keyword {
  return (schema, at) => {
    const limit = schema[keyword];
    const isCount = !/imum$/i.test(keyword);
    if (typeof limit !== "number" || !Number.isFinite(limit) || (isCount && !(Number.isInteger(limit) && limit >= 0))) {
      throw new SchemaError(`"${at}" must be ${isCount ? "a whole number of 0 or more" : "a number"}`);
    }
    return (value, path) => {
      const measured = measure(value);
      return measured === undefined || fits(measured, limit) ? undefined : { path, reason: `${words} ${limit}` };
    };
  };
}

function typeCheck(schema: Schema, path: string): Check {
  const given = schema["type"];
  const types = Array.isArray(given) ? given : [given];
  if (types.length === 0 || !types.every((type) => typeof type === "string" && TYPES.includes(type))) {
    throw new SchemaError(`"${path}" must be one of ${TYPES.join(", ")}, or a list of them`);
  }
  return (value, at) =>
    types.some((type) => isOfType(value, type))
      ? undefined
      : { path: at, reason: `must be of type ${types.join(" or ")}` };
}

function isOfType(value: unknown, type: string): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (value === null) return type === "null";
  return (Array.isArray(value) ? "array" : typeof value) === type;
}

function oneOfValues(values: readonly unknown[]): Check {
  const texts = new Set(values.map((value) => canonicalJson(value)));
  const shown = values.map((value) => JSON.stringify(value)).join(", ").slice(0, 500);
  return (value, path) => texts.has(canonicalJson(value)) ? undefined : { path, reason: `must be one of ${shown}` };
}

function propertiesCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const given = schema["properties"];
  if (!isRecord(given)) throw new SchemaError(`"${path}" must be an object`);
  const checks = Object.entries(given).map(([name, part]) => [name, inner(part, `${path}.${name}`)] as const);
  return (value, at) => {
    if (!isRecord(value)) return undefined;
    for (const [name, check] of checks) {
      const fault = Object.hasOwn(value, name) ? check(value[name], at === "" ? name : `${at}.${name}`) : undefined;
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function requiredCheck(schema: Schema, path: string): Check {
  const names = list(schema, "required", path);
  const wrong = names.some((name) => typeof name !== "string");
  if (wrong) throw new SchemaError(`"${path}" must be a list of names`);
  return (value, at) => {
    if (!isRecord(value)) return undefined;
    // The list was just checked to hold texts
    const missing = (names as readonly string[]).find((name) => !Object.hasOwn(value, name));
    return missing === undefined ? undefined : { path: at === "" ? missing : `${at}.${missing}`, reason: "is missing" };
  };
}

function additionalCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const check = inner(schema["additionalProperties"], path);
  const isClosed = schema["additionalProperties"] === false;
  const known = new Set(isRecord(schema["properties"]) ? Object.keys(schema["properties"]) : []);
  return (value, at) => {
    if (!isRecord(value)) return undefined;
    for (const name of Object.keys(value)) {
      if (known.has(name)) continue;
      const field = at === "" ? name.slice(0, 64) : `${at}.${name.slice(0, 64)}`;
      if (isClosed) {
        return { path: field, reason: `is not one of its fields: they are ${[...known].join(", ") || "none"}` };
      }
      const fault = check(value[name], field);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function namesCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const check = inner(schema["propertyNames"], path);
  return (value, at) => {
    if (!isRecord(value)) return undefined;
    for (const name of Object.keys(value)) {
      const fault = check(name, "");
      const field = name.slice(0, 64);
      if (fault !== undefined) {
        return { path: at === "" ? field : `${at}.${field}`, reason: `has a name that ${fault.reason}` };
      }
    }
    return undefined;
  };
}

function prefixCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const checks = compileList(schema, "prefixItems", { path, inner });
  return (value, at) => {
    if (!Array.isArray(value)) return undefined;
    for (const [index, check] of checks.entries()) {
      const fault = index < value.length ? check(value[index], `${at}[${index}]`) : undefined;
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function itemsCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const check = inner(schema["items"], path);
  const first = Array.isArray(schema["prefixItems"]) ? schema["prefixItems"].length : 0;
  return (value, at) => {
    if (!Array.isArray(value)) return undefined;
    for (const [index, item] of value.entries()) {
      if (index < first) continue;
      const fault = check(item, `${at}[${index}]`);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function uniqueCheck(schema: Schema, path: string): Check {
  if (typeof schema["uniqueItems"] !== "boolean") throw new SchemaError(`"${path}" must be true or false`);
  if (!schema["uniqueItems"]) return () => undefined;
  return (value, at) =>
    Array.isArray(value) && new Set(value.map((item) => canonicalJson(item))).size < value.length
      ? { path: at, reason: "must not hold the same value twice" }
      : undefined;
}

function patternCheck(schema: Schema, path: string): Check {
  const pattern = schema["pattern"];
  if (typeof pattern !== "string") throw new SchemaError(`"${path}" must be a text`);
  const compiled = compilePattern(pattern, path);
  const maxLength = Math.floor(MAX_STEPS / compiled.programSize());
  return (value, at) => {
    if (typeof value !== "string") return undefined;
    if (value.length > maxLength) return { path: at, reason: `must have a length of at most ${maxLength}` };
    return compiled.test(value) ? undefined : { path: at, reason: `must match the pattern ${pattern.slice(0, 200)}` };
  };
}

const DATE = /^(\d{4})-(\d\d)-(\d\d)$/;
const TIME = /^(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

/** Formats that are checked, by RFC 3339, 3986, 4122 and 5321. Any other format describes, as the standard lets it. */
const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: isDate,
  time: (text) => TIME.test(text),
  "date-time": (text) => isDate(text.slice(0, 10)) && /^[t ]$/i.test(text.charAt(10)) && TIME.test(text.slice(11)),
  email: (text) => /^[^\s@]{1,64}@[^\s@]{1,255}$/.test(text),
  uri: (text) => /^[a-z][a-z\d+.-]*:[^\s]*$/i.test(text) && URL.canParse(text),
  uuid: (text) => /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/i.test(text),
  ipv4: (text) => /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/.test(text),
  ipv6: (text) => /^[\da-f:.]{2,45}$/i.test(text) && URL.canParse(`http://[${text}]`),
};

function isDate(text: string): boolean {
  const [, year, month, day] = DATE.exec(text) ?? [];
  const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day)));
  return year !== undefined && date.getUTCMonth() === Number(month) - 1 && date.getUTCDate() === Number(day);
}

function formatCheck(schema: Schema, path: string): Check {
  const { format } = schema;
  if (typeof format !== "string") throw new SchemaError(`"${path}" must be a text`);
  const fits = Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  if (fits === undefined) return () => undefined;
  return (value, at) =>
    typeof value !== "string" || fits(value) ? undefined : { path: at, reason: `must have the format ${format}` };
}

function compilePattern(pattern: string, path: string): RE2JS {
  try {
    const compiled = RE2JS.compile(pattern);
    if (compiled.programSize() <= MAX_PROGRAM) return compiled;
  } catch (cause) {
    throw new SchemaError(`"${path}" is no regular expression in RE2 syntax`, { cause });
  }
  throw new SchemaError(`"${path}" is too large once its repetitions are written out`);
}

function multipleCheck(schema: Schema, path: string): Check {
  const step = schema["multipleOf"];
  if (typeof step !== "number" || !(step > 0)) throw new SchemaError(`"${path}" must be a number above 0`);
  return (value, at) => {
    if (typeof value !== "number") return undefined;
    const parts = value / step;
    return Math.abs(parts - Math.round(parts)) < 1e-9
      ? undefined
      : { path: at, reason: `must be a multiple of ${step}` };
  };
}

function notCheck(schema: Schema, path: string, inner: CompileInner): Check {
  const check = inner(schema["not"], path);
  return (value, at) =>
    check(value, at) === undefined ? { path: at, reason: "has a value that is not allowed" } : undefined;
}

function choiceCheck(checks: readonly Check[], { exactlyOne }: { readonly exactlyOne: boolean }): Check {
  return (value, path) => {
    const fitting = checks.filter((check) => check(value, path) === undefined).length;
    if (fitting === 1 || (fitting > 1 && !exactlyOne)) return undefined;
    return { path, reason: fitting === 0 ? "fits none of its forms" : "fits several of its forms" };
  };
}

function compileList(
  schema: Schema,
  keyword: string,
  { path, inner }: { readonly path: string; readonly inner: CompileInner },
): readonly Check[] {
  return list(schema, keyword, path).map((part, index) => inner(part, `${path}[${index}]`));
}

function list(schema: Schema, keyword: string, path: string): readonly unknown[] {
  const value = schema[keyword];
  const mayBeEmpty = keyword === "required";
  if (Array.isArray(value) && (mayBeEmpty || value.length > 0)) return value;
  throw new SchemaError(`"${path}" must be a list${mayBeEmpty ? "" : " that is not empty"}`);
}

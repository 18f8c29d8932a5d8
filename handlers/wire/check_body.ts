import * as v from "valibot";
import { type HttpError, refuse } from "../../lib/base/errors.ts";

/**
 * Checks a parsed JSON value by a schema. Changes the value: removes optional fields that are `null`.
 *
 * @param ignored receives the paths of fields that no object schema knows; a strict object schema refuses them
 * @throws {HttpError} 400 invalid_request with the field in `param`; its message never contains the value
 */
export function checkBody<S extends v.GenericSchema>(schema: S, value: unknown, ignored: string[]): v.InferOutput<S> {
  // Every schema of valibot has the parts of a Shape that its type has
  tidy(schema as unknown as Shape, value, "", ignored);
  const result = v.safeParse(schema, value, { abortEarly: true });
  if (!result.success) throw invalidRequest(result.issues);
  return result.output;
}

/**
 * Returns what is left of a list for the check of its schema, where the entries that have passed the same check by hand need none: that is
 * many times faster, and a client sends its whole history with each request. Any other entry keeps its place, which a refusal names.
 * @param usual value that the schema takes, in the place of those entries
 */
export function withoutUsual(
  list: readonly unknown[],
  isUsual: (entry: unknown) => boolean,
  usual: object,
): readonly unknown[] {
  if (list.length === 0) return list;
  const last = list.findLastIndex((entry) => !isUsual(entry));
  return last < 0 ? [usual] : list.slice(0, last + 1).map((entry) => isUsual(entry) ? usual : entry);
}

/** The parts of valibot's schema objects that `tidy` reads. */
interface Shape {
  readonly type: string;
  readonly entries?: Readonly<Record<string, Shape>>;
  readonly item?: Shape;
  readonly wrapped?: Shape;
  readonly options?: readonly unknown[];
  readonly literal?: unknown;
}

const MAX_IGNORED = 20;
const MAY_BE_ABSENT = new Set(["optional", "exact_optional", "undefinedable"]);

function tidy(shape: Shape, value: unknown, path: string, ignored: string[]): void {
  if (value === null || typeof value !== "object") return;
  if (shape.wrapped !== undefined) return tidy(shape.wrapped, value, path, ignored);
  if (Array.isArray(value) && (shape.entries !== undefined || shape.type === "record")) throw notAnObject(path);
  if (shape.entries !== undefined) {
    return tidyObject(shape, shape.entries, value as Record<string, unknown>, path, ignored); // no array, as just checked
  }
  if (shape.item !== undefined && Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) tidy(shape.item, value[i], `${path}[${i}]`, ignored);
    return;
  }
  const option = fittingOption(shape, value);
  if (option !== undefined) tidy(option, value, path, ignored);
  // valibot would accept an array as a record
  else if (Array.isArray(value) && isUnionWith(shape, "record")) throw notAnObject(path);
}

function tidyObject(
  shape: Shape,
  entries: Readonly<Record<string, Shape>>,
  value: Record<string, unknown>,
  path: string,
  ignored: string[],
) {
  for (const key of Object.keys(value)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    const at = path === "" ? key : `${path}.${key}`;
    if (entry === undefined) {
      if (shape.type === "strict_object") throw unknownField(at, Object.keys(entries));
      if (shape.type === "object" && ignored.length < MAX_IGNORED && !ignored.includes(at)) ignored.push(at);
    } else if (value[key] === null && MAY_BE_ABSENT.has(entry.type)) delete value[key];
    else tidy(entry, value[key], at, ignored);
  }
}

/** Finds the alternative of a union that the value is meant for: literals must agree, and an array is not an object. */
function fittingOption(shape: Shape, value: object): Shape | undefined {
  if (shape.type !== "union" && shape.type !== "variant") return undefined;
  // Options of a union or variant are schemas
  return (shape.options as readonly Shape[]).find((option) => {
    if (Array.isArray(value)) return option.item !== undefined;
    if (option.entries === undefined) return fittingOption(option, value) !== undefined;
    return Object.entries(option.entries).every(([key, entry]) =>
      // An object, whose fields have names
      entry.type !== "literal" || (value as Record<string, unknown>)[key] === entry.literal
    );
  });
}

function isUnionWith({ type, options = [] }: Shape, member: string): boolean {
  // Options of a union are schemas
  return type === "union" && (options as readonly Shape[]).some((option) => option.type === member);
}

function unknownField(path: string, known: readonly string[]) {
  const field = path.slice(0, MAX_PARAM_LENGTH);
  const way = known.length === 0 ? "no field is taken here" : `the fields are ${known.join(", ")}`;
  return refuse("invalid_request", `Cannot accept "${field}": there is no such field; ${way}`, { param: field });
}

/** Returns the refusal of an array in place of an object, which valibot would accept. */
function notAnObject(path: string) {
  const place = path === "" ? "the request body" : `"${path}"`;
  const param = path === "" ? null : path;
  return refuse("invalid_request", `Cannot accept ${place}: expected an object, got an array`, { param });
}

/**
 * Returns the 400 for a body that its schema refused: `param` and the message name the field at fault, as
 * `messages[2].content[0].image_url.url`. Values never appear in it: they may be secrets.
 *
 * For a union, the message is about the alternative that got furthest into the value, which is most likely the one that was meant.
 */
function invalidRequest(issues: readonly [v.BaseIssue<unknown>, ...v.BaseIssue<unknown>[]]): HttpError {
  const { path, issue } = deepest(issues[0], "");
  const param = path === "" ? null : path.slice(0, MAX_PARAM_LENGTH);
  const place = param === null ? "the request body" : `"${param}"`;
  return refuse("invalid_request", `Cannot accept ${place}: ${reasonOf(issue)}`, { param });
}

const MAX_PARAM_LENGTH = 200;
const MAX_EXPECTED_LENGTH = 300;

/** Returns the reason from the schema and the kind of the value. `received` and valibot's default messages quote the value itself. */
function reasonOf(issue: v.BaseIssue<unknown>): string {
  const expected = expectedOf(issue);
  if (issue.kind === "schema") {
    return issue.input === undefined ? "it is missing" : `expected ${expected}, got ${kindOf(issue.input, expected)}`;
  }
  // The message was written in a schema of the gateway
  if (!issue.message.startsWith("Invalid")) return issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
  if (issue.type === "integer") return "expected a whole number";
  return issue.type === "min_length" || issue.type === "max_length"
    ? `expected a length of ${expected}`
    : `expected ${expected}`;
}

/** Returns the expected kind, such as "string or array" or ">=1". valibot writes names of classes, here in lower case. */
function expectedOf(issue: v.BaseIssue<unknown>): string {
  const words = (issue.expected ?? "another value").replace(/^\((.*)\)$/s, "$1").replaceAll(" | ", " or ")
    .replaceAll(/\b(Object|Array)\b/g, (name) => name.toLowerCase());
  return words.length > MAX_EXPECTED_LENGTH ? `${words.slice(0, MAX_EXPECTED_LENGTH)}...` : words;
}

function kindOf(value: unknown, expected: string): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  // The schema expects certain strings, or strings of a form
  return typeof value === "string" && /"|string/.test(expected) ? "another string" : `a ${typeof value}`;
}

interface Fault {
  readonly path: string;
  readonly depth: number;
  readonly issue: v.BaseIssue<unknown>;
}

function deepest(issue: v.BaseIssue<unknown>, prefix: string): Fault {
  const path = prefix + pathOf(issue, prefix === "");
  let best: Fault = { path, depth: depthOf(issue), issue };
  for (const inner of issue.issues ?? []) {
    if (inner.path === undefined) continue;
    const fault = deepest(inner, path);
    const depth = depthOf(issue) + fault.depth;
    if (depth > best.depth) best = { ...fault, depth };
  }
  return best;
}

function depthOf(issue: v.BaseIssue<unknown>): number {
  return issue.path?.length ?? 0;
}

function pathOf(issue: v.BaseIssue<unknown>, first: boolean): string {
  let path = "";
  for (const { key } of issue.path ?? []) {
    if (typeof key === "number") path += `[${key}]`;
    else path += path === "" && first ? String(key) : `.${String(key)}`;
  }
  return path;
}

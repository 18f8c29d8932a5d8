import * as v from "valibot";
import { httpError } from "./http_errors.ts";
import { invalidRequest } from "./invalid_request.ts";

/**
 * Checks a parsed JSON value by a schema. Changes the value: removes optional fields that are `null`.
 *
 * @param ignored receives the paths of fields that no object schema knows; a strict object schema refuses them
 * @throws {HttpError} 400 invalid_request with the field in `param`; its message never contains the value
 */
export function checkBody<S extends v.GenericSchema>(schema: S, value: unknown, ignored: string[]): v.InferOutput<S> {
  tidy(schema as unknown as Shape, value, "", ignored);
  const result = v.safeParse(schema, value, { abortEarly: true });
  if (!result.success) throw invalidRequest(result.issues);
  return result.output;
}

/** The parts of valibot's schema objects that `tidy` reads. */
interface Shape {
  readonly type: string;
  readonly entries?: Readonly<Record<string, Shape>>;
  readonly item?: Shape;
  readonly wrapped?: Shape;
  readonly options?: readonly unknown[];
}

const MAX_IGNORED = 20;
const MAY_BE_ABSENT = new Set(["optional", "exact_optional", "undefinedable"]);

function tidy(shape: Shape, value: unknown, path: string, ignored: string[]): void {
  if (value === null || typeof value !== "object") return;
  if (shape.wrapped !== undefined) return tidy(shape.wrapped, value, path, ignored);
  if (Array.isArray(value) && (shape.entries !== undefined || shape.type === "record")) throw notAnObject(path);
  if (shape.entries !== undefined) {
    return tidyObject(shape, shape.entries, value as Record<string, unknown>, path, ignored);
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
      entry.type !== "literal" || (value as Record<string, unknown>)[key] === (entry as { literal?: unknown }).literal
    );
  });
}

function isUnionWith({ type, options = [] }: Shape, member: string): boolean {
  return type === "union" && (options as readonly Shape[]).some((option) => option.type === member);
}

function unknownField(path: string, known: readonly string[]) {
  const field = path.slice(0, MAX_FIELD_LENGTH);
  const way = known.length === 0 ? "no field is taken here" : `the fields are ${known.join(", ")}`;
  return httpError("invalid_request", `Cannot accept "${field}": there is no such field; ${way}`, { param: field });
}

const MAX_FIELD_LENGTH = 200;

/** Returns the refusal of an array in place of an object, which valibot would accept. */
function notAnObject(path: string) {
  const place = path === "" ? "the request body" : `"${path}"`;
  const param = path === "" ? null : path;
  return httpError("invalid_request", `Cannot accept ${place}: expected an object, got an array`, { param });
}

import * as v from "valibot";
import { type CompletionMessage, IMAGE_URL } from "./completion_body.ts";
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

/** Types of content parts that the gateway knows in either mode. */
const KNOWN_PARTS: ReadonlySet<string> = new Set(["text", "image_url", "input_audio", "file", "refusal"]);
/** Names of fields with an address in a part: `url`, `image_url`, `fileUrl`. */
const ADDRESS_FIELD = /(?:^|_)url$|Url$/;

/**
 * Checks content parts of types that the gateway does not know. In plain mode they go to the model as they came, except one with an
 * address that a model server would read from its own disk. Where the agent's tools are on, they are refused.
 * @throws {HttpError} 400 `invalid_request` naming the part
 */
export function checkParts(messages: readonly CompletionMessage[], { plain }: { readonly plain: boolean }): void {
  for (let i = 0; i < messages.length; i++) {
    const content = messages[i]?.content;
    if (typeof content === "string" || !content) continue;
    for (let j = 0; j < content.length; j++) {
      const part = content[j];
      if (part === undefined || KNOWN_PARTS.has(part.type)) continue;
      const place = `messages[${i}].content[${j}]`;
      if (!plain) throw unknownPart(`${place}.type`, part.type);
      checkAddresses(part, place);
    }
  }
}

/** Checks the address fields of a part and of all objects in it. A body's depth is bounded, and so is the recursion. */
function checkAddresses(value: object, place: string): void {
  for (const [key, member] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${place}[${key}]` : `${place}.${key.slice(0, MAX_SHOWN)}`;
    if (typeof member === "object" && member !== null) checkAddresses(member, at);
    else if (typeof member === "string" && ADDRESS_FIELD.test(key) && !IMAGE_URL.test(member)) {
      throw httpError("invalid_request", `Cannot accept "${at}": expected an http, https or data URL`, { param: at });
    }
  }
}

function unknownPart(param: string, type: string) {
  const shown = JSON.stringify(type.slice(0, MAX_SHOWN));
  return httpError(
    "invalid_request",
    `Cannot accept "${param}" ${shown}: with the agent's tools on, the types are ${
      [...KNOWN_PARTS].join(", ")
    }; the header ` +
      '"x-postern-tools: none" or the model "plain/<id>" passes other parts on to the model',
    { param },
  );
}

const MAX_SHOWN = 64;

import { type InputType, SOP_LIMITS } from "./definition.ts";

/** Values that a template may name. Only own properties count. */
export interface TemplateScope {
  /** Values of the inputs, each of its input's type. Null for an input that was not given */
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly steps: Readonly<Record<string, StepValues>>;
  readonly execution: { readonly id: string; readonly date: string };
}

/** Values that an ended step leaves for later steps. */
export interface StepValues {
  /** Text of the result, or of the error */
  readonly output: string;
  /** Data of the tool for programs. Null: none */
  readonly data: unknown;
  readonly status: "completed" | "failed";
}

/** Names that a template may use at its place, known before anything runs. */
export interface KnownNames {
  readonly inputs: ReadonlyMap<string, InputType>;
  /** Ids of the steps before it */
  readonly steps: ReadonlySet<string>;
  /** Ids of all steps, for a better sentence */
  readonly allSteps: ReadonlySet<string>;
}

/** Error for a value that cannot be filled in. The message needs no other words. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
}

type Part = string | { readonly path: readonly string[] };

const OPEN = "{{";
const CLOSE = "}}";
/** A literal pair of braces */
const ESCAPED = "{{{{";
const MAX_EXPRESSION = 300;
const SEGMENT = /^[A-Za-z0-9_-]{1,64}$/;
const ROOTS = "inputs.<name>, steps.<id>.output, steps.<id>.data, steps.<id>.status, execution.id and execution.date";

/**
 * Checks every text in a value against the names that are known where it stands.
 * @returns what is wrong, with the way to the text below `value`; keys are no templates and may not look like one
 */
export function checkTemplates(
  value: unknown,
  known: KnownNames,
): readonly { readonly path: readonly (string | number)[]; readonly reason: string }[] {
  if (typeof value === "string") {
    const faults = split(value).map((piece) => faultIn(piece, known));
    return faults.filter((reason) => reason !== undefined).map((reason) => ({ path: [], reason }));
  }
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([key, item]) => {
    const part = Array.isArray(value) ? Number(key) : key;
    const found = checkTemplates(item, known).map(({ path, reason }) => ({ path: [part, ...path], reason }));
    return key.includes(OPEN) ? [{ path: [part], reason: "a key cannot be a template" }, ...found] : found;
  });
}

/** Returns the names in a checked text, in order. */
export function namesIn(text: string): readonly string[] {
  return split(text).flatMap((piece) => ("text" in piece ? [] : [piece.source.trim()]));
}

/**
 * Returns a copy of the value with its templates filled in. A text that is one expression alone becomes the value itself, of whatever
 * type; in a longer text values are texts, lists and objects as JSON, nothing as an empty text. What is filled in is not looked
 * at again, so that it can neither end its text nor become a field.
 * @throws {TemplateError} for a value there is not, and over the bounds
 */
export function fillInput(value: unknown, scope: TemplateScope): unknown {
  const room = createRoom();
  const fill = (item: unknown): unknown => {
    if (typeof item === "string") {
      const parts = parse(item);
      const [only] = parts;
      if (parts.length !== 1 || only === undefined || typeof only === "string") return join(parts, { scope, room });
      const whole = valueAt(only.path, scope);
      room.take(JSON.stringify(whole).length);
      return whole;
    }
    if (Array.isArray(item)) return item.map(fill);
    if (item === null || typeof item !== "object") return item;
    return Object.fromEntries(Object.entries(item).map(([key, inner]) => [key, fill(inner)]));
  };
  return fill(value);
}

/**
 * Returns a text with its templates filled in.
 * @param shown a step's output as the reader is to see it
 * @throws {TemplateError} as `fillInput`
 */
export function fillText(
  text: string,
  scope: TemplateScope,
  shown: (stepId: string, output: string) => string,
): string {
  return join(parse(text), { scope, room: createRoom(), shown });
}

interface Filling {
  readonly scope: TemplateScope;
  readonly room: { take(size: number): void };
  readonly shown?: (stepId: string, output: string) => string;
}

function createRoom(): Filling["room"] {
  let left: number = SOP_LIMITS.filledCharacters;
  return {
    take(size) {
      left -= size;
      if (left >= 0) return;
      throw new TemplateError(`Cannot fill in the step: it grows over ${SOP_LIMITS.filledCharacters} characters`);
    },
  };
}

function join(parts: readonly Part[], { scope, room, shown }: Filling): string {
  return parts.map((part) => {
    const text = typeof part === "string" ? part : textAt(part.path, scope, shown);
    room.take(text.length);
    return text;
  }).join("");
}

function textAt(path: readonly string[], scope: TemplateScope, shown: Filling["shown"]): string {
  const value = valueAt(path, scope);
  const text = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const [root, id = "", field] = path;
  return shown !== undefined && root === "steps" && field !== "status" ? shown(id, text) : text;
}

function valueAt(path: readonly string[], scope: TemplateScope): unknown {
  let value: unknown = scope;
  for (const part of path) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, part)) throw missing(path);
    // The line above saw that it is an own property
    value = (value as Readonly<Record<string, unknown>>)[part];
  }
  return value ?? null;
}

function missing(path: readonly string[]): TemplateError {
  return new TemplateError(`Cannot fill in "{{${path.join(".")}}}": there is no such value`);
}

/** Splits a text that was checked when its definition was loaded. */
function parse(text: string): readonly Part[] {
  return split(text).map((piece) => "text" in piece ? piece.text : { path: pathOf(piece.source) });
}

function pathOf(source: string): readonly string[] {
  return source.trim().split(".");
}

function faultIn(piece: Piece, known: KnownNames): string | undefined {
  if ("text" in piece) return undefined;
  if (!piece.closed) return '"{{" is not closed by "}}"; "{{{{" stands for a literal "{{"';
  const path = pathOf(piece.source);
  if (piece.source.length <= MAX_EXPRESSION && path.length <= SOP_LIMITS.depth && path.every(isSegment)) {
    return faultOf(path, known);
  }
  return `"{{${piece.source.slice(0, 60)}}}" is no name; there are ${ROOTS}`;
}

function isSegment(part: string): boolean {
  return SEGMENT.test(part) && part !== "__proto__";
}

function faultOf(path: readonly string[], known: KnownNames): string | undefined {
  const shown = `"{{${path.join(".")}}}"`;
  const [root, id = "", field = ""] = path;
  switch (root) {
    case "inputs": {
      const type = known.inputs.get(id);
      if (type === undefined) return `${shown} names an input that is not declared${listed(known.inputs.keys())}`;
      const nested = path.length > 2 && type !== "object" && type !== "list";
      return nested ? `${shown} goes into the input "${id}", which is of type ${type}` : undefined;
    }
    case "steps":
      if (!known.steps.has(id)) {
        return known.allSteps.has(id)
          ? `${shown} names a step that does not come before this one`
          : `${shown} names a step that there is not${listed(known.steps)}`;
      }
      if (field === "data" || path.length === 3 && (field === "output" || field === "status")) return undefined;
      return `${shown} is no value of a step; there are output, data and status`;
    case "execution":
      return path.length === 2 && (id === "id" || id === "date")
        ? undefined
        : `${shown} is no name; there are ${ROOTS}`;
    default:
      return `${shown} is no name; there are ${ROOTS}`;
  }
}

function listed(names: Iterable<string>): string {
  const all = [...names].slice(0, 10);
  return all.length === 0 ? "; there are none here" : `; there are ${all.map((name) => `"${name}"`).join(", ")}`;
}

type Piece = { readonly text: string } | { readonly source: string; readonly closed: boolean };

function split(text: string): readonly Piece[] {
  const pieces: Piece[] = [];
  let literal = "";
  for (let at = 0;;) {
    const open = text.indexOf(OPEN, at);
    if (open === -1) {
      literal += text.slice(at);
      break;
    }
    literal += text.slice(at, open);
    if (text.startsWith(ESCAPED, open)) {
      literal += OPEN;
      at = open + ESCAPED.length;
      continue;
    }
    if (literal !== "") pieces.push({ text: literal });
    literal = "";
    const close = text.indexOf(CLOSE, open);
    const closed = close !== -1;
    pieces.push({ source: text.slice(open + OPEN.length, closed ? close : undefined), closed });
    if (!closed) return pieces;
    at = close + CLOSE.length;
  }
  if (literal !== "" || pieces.length === 0) pieces.push({ text: literal });
  return pieces;
}

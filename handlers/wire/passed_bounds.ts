import { refuse } from "../../lib/base/errors.ts";

/** Most fields of one object that the gateway does not know: a copy of an object with some 100,000 of them takes a long time. */
const MAX_IN_OBJECT = 100;
/** Most of them in one body. */
const MAX_IN_BODY = 20_000;
/** Deepest nesting of arrays and objects in one of them. */
const MAX_DEPTH = 32;
/** Most characters of all of them, of names and of texts. A number, a flag and a bracket count as one. */
const MAX_CHARACTERS = 4 * 1024 * 1024;

/** Bounds of one body's fields that go on to the model unread. */
export class PassedBounds {
  #fields = 0;
  #characters = 0;

  /**
   * Counts a field.
   * @param path as `messages[].cache_control`
   * @param before fields of the same object that were counted
   * @throws {HttpError} 400 invalid_request with the path of the field
   */
  add(path: string, value: unknown, before: number): void {
    if (before >= MAX_IN_OBJECT) throw tooMuch(path, `its object has more than ${MAX_IN_OBJECT} fields like it`);
    if (++this.#fields > MAX_IN_BODY) throw tooMuch(path, `the body has more than ${MAX_IN_BODY} fields like it`);
    this.#measure(value, path, 1);
  }

  #measure(value: unknown, path: string, depth: number): void {
    this.#characters += typeof value === "string" ? value.length : 1;
    if (typeof value === "object" && value !== null) {
      if (depth > MAX_DEPTH) throw tooMuch(path, `it is nested deeper than ${MAX_DEPTH} levels`);
      for (const name in value) {
        if (!Array.isArray(value)) this.#characters += name.length;
        // The name was just listed on this object
        this.#measure((value as Record<string, unknown>)[name], path, depth + 1);
      }
    }
    if (this.#characters > MAX_CHARACTERS) {
      throw tooMuch(path, `with the fields like it, it has more than ${MAX_CHARACTERS} characters`);
    }
  }
}

const MAX_SHOWN = 128;

function tooMuch(path: string, reason: string) {
  const param = path.slice(0, MAX_SHOWN);
  const message = `Cannot pass ${JSON.stringify(param)} on to the model, a field that Postern does not know: ${reason}`;
  return refuse("invalid_request", message, { param });
}

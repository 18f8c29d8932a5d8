import type { KeyPath } from "../../config/key_path.ts";
import { SOP_LIMITS } from "./definition.ts";

/** Something wrong with the value at `path`; the reason goes on after `Cannot use "key": `. */
export interface Fault {
  readonly path: KeyPath;
  readonly reason: string;
}

/** A copy of a parsed document as plain JSON values, or the first place where it holds what JSON cannot, or too much. */
export function toPlainJson(document: unknown): { readonly value: unknown } | { readonly fault: Fault } {
  let left: number = SOP_LIMITS.values;
  const copy = (value: unknown, path: KeyPath): unknown => {
    if (--left < 0) throw new Refused({ path: path.slice(0, 1), reason: `it holds over ${SOP_LIMITS.values} values` });
    if (value === null || typeof value === "boolean" || typeof value === "string") return value;
    if (typeof value === "number") {
      if (Number.isFinite(value)) return value;
      throw new Refused({ path, reason: "it must be a finite number" });
    }
    if (value instanceof Date) throw new Refused({ path, reason: "a date must be a text here: put it into quotes" });
    if (typeof value !== "object") throw new Refused({ path, reason: "it is no value that JSON has" });
    if (path.length > SOP_LIMITS.depth) {
      throw new Refused({ path: path.slice(0, 3), reason: `it is nested deeper than ${SOP_LIMITS.depth} levels` });
    }
    if (Array.isArray(value)) return value.map((item, index) => copy(item, [...path, index]));
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => {
        if (key === "__proto__") throw new Refused({ path, reason: 'it has a key "__proto__", which is not allowed' });
        return [key, copy(item, [...path, key])];
      }),
    );
  };
  try {
    return { value: copy(document, []) };
  } catch (error) {
    if (error instanceof Refused) return { fault: error.fault };
    throw error;
  }
}

class Refused extends Error {
  readonly fault: Fault;
  constructor(fault: Fault) {
    super(fault.reason);
    this.fault = fault;
  }
}

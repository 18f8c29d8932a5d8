import { hash } from "node:crypto";

/** Names of the tools in one request, as the vendor takes them and as Postern knows them. */
export interface ToolNames {
  /** Number of names that the vendor is told in another form */
  readonly changed: number;
  toVendor(name: string): string;
  /** Returns the name that a vendor's name stands for. A name that the request does not hold is returned as it is */
  toOwn(name: string): string;
}

/** Characters of the hash behind a changed name. */
const HASH_LENGTH = 10;

/**
 * Maps the names of one request to names of a vendor's form, each to one of its own. A name of that form stays. Any other keeps its beginning
 * and ends with a hash of the whole, so that it is the same in each request; only where another tool has just that name is it another.
 * @param form form of all names; it allows letters, digits, `_` and `-`, and at least 63 characters
 */
export function createToolNames(names: Iterable<string>, form: RegExp): ToolNames {
  const distinct = new Set(names);
  const taken = new Set([...distinct].filter((name) => form.test(name)));
  const toVendor = new Map<string, string>();
  const toOwn = new Map<string, string>();
  // In the order of the names, so that two requests with the same names agree
  for (const name of [...distinct].filter((name) => !taken.has(name)).sort()) {
    let changed = nameOf(name, 0, form);
    for (let attempt = 1; taken.has(changed); attempt++) changed = nameOf(name, attempt, form);
    taken.add(changed);
    toVendor.set(name, changed);
    toOwn.set(changed, name);
  }
  return {
    changed: toVendor.size,
    toVendor: (name) => toVendor.get(name) ?? name,
    toOwn: (name) => toOwn.get(name) ?? name,
  };
}

function nameOf(name: string, attempt: number, form: RegExp): string {
  const digest = hash("sha256", attempt === 0 ? name : `${attempt}\0${name}`);
  const readable = name.slice(0, 256).replaceAll(/[^a-zA-Z0-9_-]+/g, "_");
  const begin = form.test(`${readable.slice(0, 1)}x`) ? readable : `t_${readable}`;
  return `${begin.slice(0, 63 - HASH_LENGTH - 1)}_${digest.slice(0, HASH_LENGTH)}`;
}

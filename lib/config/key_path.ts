const BARE = /^[A-Za-z0-9_-]+$/;
const PART = /\s*(?:"((?:[^"\\]|\\["\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|$)/y;

/** Where a value stands: table names from the outside in, then the key; items of a list by their index from 0. */
export type KeyPath = readonly (string | number)[];

/** A path as people write it: `gateway.port`, `tools."my.tool".access`. */
export function toKeyText(path: KeyPath): string {
  return path.map((part) => (BARE.test(String(part)) ? String(part) : JSON.stringify(part))).join(".");
}

/** The parts of `gateway.port` or `tools."my.tool".access`; undefined when the text is no key. */
export function parseKeyText(text: string): readonly string[] | undefined {
  const parts: string[] = [];
  // A copy: a sticky expression remembers where it is
  const part = new RegExp(PART);
  for (;;) {
    const match = part.exec(text);
    if (match === null) return undefined;
    parts.push(match[1]?.replace(/\\(["\\])/g, "$1") ?? match[2] ?? match[3] ?? "");
    if (match[4] === "") return parts;
  }
}

/** Tells whether a key is written in these tables. Items of lists are no keys. */
export function hasKey(table: Readonly<Record<string, unknown>>, path: KeyPath): boolean {
  let value: unknown = table;
  for (const part of path) {
    if (value === null || typeof value !== "object" || Array.isArray(value) || !Object.hasOwn(value, part)) {
      return false;
    }
    value = (value as Readonly<Record<string, unknown>>)[part];
  }
  return true;
}

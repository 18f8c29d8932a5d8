import type { AST } from "toml-eslint-parser";
import { type KeyPath, toKeyText, withoutMark } from "./toml.ts";

/** A value of a TOML text with its place. */
export interface LocatedValue {
  readonly path: KeyPath;
  readonly node: AST.TOMLKeyValue;
}

/** A TOML text as a tree with positions; offsets count without a byte order mark. */
export interface LocatedKeys {
  readonly values: readonly LocatedValue[];
  readonly tables: readonly AST.TOMLTable[];
  readonly comments: readonly AST.Comment[];
  /** 1-based line of the key at `path`, or of the nearest table around it */
  lineOf(path: KeyPath): number | undefined;
}

/**
 * Finds the place of every key. The parser is loaded when first needed: only errors and edits need places.
 * @returns undefined when the text is not TOML
 */
export async function locateKeys(text: string): Promise<LocatedKeys | undefined> {
  const { parseTOML } = await import("toml-eslint-parser");
  let tree: AST.TOMLProgram;
  try {
    tree = parseTOML(withoutMark(text));
  } catch {
    return undefined;
  }
  const values: LocatedValue[] = [];
  const tables: AST.TOMLTable[] = [];
  for (const entry of tree.body[0].body) {
    if (entry.type === "TOMLKeyValue") {
      collect(entry, [], values);
      continue;
    }
    tables.push(entry);
    for (const pair of entry.body) collect(pair, entry.resolvedKey, values);
  }
  return { values, tables, comments: tree.comments, lineOf: (path) => lineOf(path, values, tables) };
}

/** The names of a key, `a.b` being two. */
export function keyNamesOf(key: AST.TOMLKey): readonly string[] {
  return key.keys.map((part) => (part.type === "TOMLBare" ? part.name : part.value));
}

function collect(pair: AST.TOMLKeyValue, table: KeyPath, values: LocatedValue[]): void {
  const path = [...table, ...keyNamesOf(pair.key)];
  values.push({ path, node: pair });
  collectInside(pair.value, path, values);
}

function collectInside(node: AST.TOMLContentNode, path: KeyPath, values: LocatedValue[]): void {
  if (node.type === "TOMLInlineTable") { for (const pair of node.body) collect(pair, path, values); }
  if (node.type === "TOMLArray") {
    node.elements.forEach((element, index) => collectInside(element, [...path, index], values));
  }
}

function lineOf(path: KeyPath, values: readonly LocatedValue[], tables: readonly AST.TOMLTable[]): number | undefined {
  for (let length = path.length; length > 0; length--) {
    const wanted = toKeyText(path.slice(0, length));
    const value = values.find((candidate) => toKeyText(candidate.path) === wanted);
    if (value !== undefined) return value.node.loc.start.line;
    const table = tables.find((candidate) => toKeyText(candidate.resolvedKey) === wanted);
    if (table !== undefined) return table.loc.start.line;
    // A table that only has headers or dotted keys below it
    const below = [
      ...values.map((one) => [one.path, one.node] as const),
      ...tables.map((one) => [one.resolvedKey, one] as const),
    ];
    const inside = below.find(([candidate]) => toKeyText(candidate.slice(0, length)) === wanted);
    if (inside !== undefined) return inside[1].loc.start.line;
  }
  return undefined;
}

import { isDeepStrictEqual } from "node:util";
import type { AST } from "toml-eslint-parser";
import { ConfigError } from "../base/errors.ts";
import { writeAtomically } from "../base/durable_files.ts";
import { setAt } from "./layers.ts";
import { isTable } from "./schema_keys.ts";
import { readText } from "./find_config.ts";
import { acceptFile } from "./trust_store.ts";
import { type KeyPath, parseToml, type RawTable, toKeyText, toTomlKey, toTomlValue } from "./toml.ts";
import { userConfigFile } from "./folders.ts";
import { checkConfigText, type LoadOptions, locateConfig } from "./load_config.ts";
import { keyNamesOf, type LocatedKeys, locateKeys } from "./locate_keys.ts";

/** A change of text: `insert` takes the place of the characters from `start` to `end`. */
interface Splice {
  readonly start: number;
  readonly end: number;
  readonly insert: string;
}

/**
 * Sets one value in a TOML text and leaves every other character as it is: comments, order, line ends.
 *
 * A key that is not there yet goes below the comment that shows it, such as `# port = 42617`, else to the end of its table, or of a new table at the
 * end of the text.
 * @param key path of the key; items of a list of tables by index, such as `model_routes.0.hint`
 * @throws {ConfigError} `config_syntax` when the text is no TOML, `config_edit` when the key is a table or cannot be added
 */
export async function setConfigValue(text: string, key: KeyPath, value: unknown): Promise<string> {
  const before = parseToml(text, "postern.toml");
  const wanted = withValue(before, key, value);
  const located = await locateKeys(text);
  if (located === undefined) throw refuse(key, "the text cannot be edited in place; change it in an editor");
  const mark = text.startsWith("\uFEFF") ? "\uFEFF" : "";
  const body = text.slice(mark.length);
  const { start, end, insert } = findSplice(body, located, { key, value: toTomlValue(value) });
  const after = mark + body.slice(0, start) + insert + body.slice(end);
  if (!isDeepStrictEqual(parseToml(after, "postern.toml"), wanted)) {
    throw refuse(key, "the change would touch other keys; change it in an editor");
  }
  return after;
}

/**
 * Changes the text of a configuration file, checked as a whole before a byte is written; a missing file is made.
 * @returns the file's new text
 * @throws {ConfigError} the change or its result cannot be used, or something else wrote the file since it was read; nothing was written
 */
export async function changeConfigFile(file: string, edit: (text: string) => Promise<string>): Promise<string> {
  const before = await readText(file);
  const text = await edit(before ?? "");
  await checkConfigText(text, file);
  if (text === before) return text;
  // An editor takes no lock, and neither does a gateway of another data directory
  if (await readText(file) !== before) throw beingChanged(file);
  await writeAtomically(file, text);
  return text;
}

/**
 * Removes a table with everything in it from a TOML text, its own comments included, and leaves every other character as it is.
 * @returns the text as it is where there is no such table
 * @throws {ConfigError} `config_syntax` when the text is no TOML, `config_edit` when the table is part of a value on one line
 */
export async function removeConfigTable(text: string, path: KeyPath): Promise<string> {
  const before = parseToml(text, "postern.toml");
  const wanted = withoutTable(before, path);
  if (wanted === undefined) return text;
  const located = await locateKeys(text);
  const mark = text.startsWith("\uFEFF") ? "\uFEFF" : "";
  let body = text.slice(mark.length);
  for (const { start, end } of located === undefined ? [] : tableRanges(body, located, path)) {
    body = body.slice(0, start) + body.slice(end);
  }
  const after = mark + body;
  if (!isDeepStrictEqual(withoutEmpty(parseToml(after, "postern.toml")), withoutEmpty(wanted))) {
    throw refuse(path, "it cannot be removed without a change of other keys; remove it in an editor", "remove");
  }
  return after;
}

/**
 * Changes the text of the configuration file in use, or of a new file of the user. A file that the user accepted stays accepted, if its
 * text is still the accepted one.
 * @param options.now milliseconds since the epoch
 * @throws {ConfigError} the change or its result cannot be used; nothing was written
 */
export async function editConfigInUse(
  options: LoadOptions,
  edit: (text: string) => Promise<string>,
  { now }: { readonly now: number },
): Promise<{ readonly path: string; readonly isNew: boolean }> {
  const { file, trustDir } = await locateConfig(options);
  const path = file?.path ?? userConfigFile(options);
  const text = await changeConfigFile(path, async (before) => {
    // A program of a tool may have written it since it was looked at: nobody accepts that along with the change
    if (before !== (file?.text ?? "")) throw beingChanged(path);
    return await edit(before);
  });
  if (file?.trusted === true) await acceptFile(trustDir, { path, text }, { now });
  return { path, isNew: file === undefined };
}

function beingChanged(file: string): ConfigError {
  return new ConfigError("config_edit", `Cannot change "${file}": it is being changed; try again`);
}

/** Returns the ranges of the headers, keys and bodies of a table, the last one first. */
function tableRanges(
  text: string,
  { tables, values }: LocatedKeys,
  path: KeyPath,
): readonly { readonly start: number; readonly end: number }[] {
  const isWithin = (key: KeyPath) =>
    key.length >= path.length && toKeyText(key.slice(0, path.length)) === toKeyText(path);
  const inTables = tables.filter((table) => isWithin(table.resolvedKey));
  const dotted = values.filter(({ path: key, node }) =>
    isWithin(key) && !isWithin(key.slice(0, key.length - keyNamesOf(node.key).length)) &&
    node.parent.type !== "TOMLInlineTable"
  );
  const nodes: readonly AST.TOMLNode[] = [...inTables, ...dotted.map(({ node }) => node)];
  return nodes.map((node) => {
    const last = node.type === "TOMLTable" ? node.body.at(-1) ?? node.key : node;
    const start = text.lastIndexOf("\n", node.range[0] - 1) + 1;
    const end = text.indexOf("\n", endOfLine(text, last.range[1]));
    const after = end < 0 ? text.length : end + 1;
    // The blank line before a table goes with it
    const blank = /(?:^|\n)((?:[ \t]*\r?\n)+)$/.exec(text.slice(0, start))?.[1]?.length ?? 0;
    return { start: node.type === "TOMLTable" ? start - blank : start, end: after };
  }).sort((a, b) => b.start - a.start);
}

/** @returns undefined where there is no such table */
function withoutTable(before: RawTable, path: KeyPath): RawTable | undefined {
  const copy = structuredCopy(before);
  let table: unknown = copy;
  for (const [index, part] of path.entries()) {
    if (!isTable(table) || !Object.hasOwn(table, part)) return undefined;
    if (index === path.length - 1) delete table[String(part)];
    else table = table[part];
  }
  return copy;
}

/** Returns a table without the empty tables in it: headers alone may have made those. */
function withoutEmpty(table: RawTable): RawTable {
  const entries = Object.entries(table).map(([key, value]) =>
    [key, isTable(value) ? withoutEmpty(value) : value] as const
  );
  return Object.fromEntries(entries.filter(([, value]) => !isTable(value) || Object.keys(value).length > 0));
}

function findSplice(
  text: string,
  located: LocatedKeys,
  change: { readonly key: KeyPath; readonly value: string },
): Splice {
  const { key, value } = change;
  const wanted = toKeyText(key);
  const present = located.values.find((one) => toKeyText(one.path) === wanted);
  if (present !== undefined) {
    const [start, end] = present.node.value.range;
    return { start, end, insert: value };
  }
  const parent = key.slice(0, -1);
  const name = toTomlKey(String(key.at(-1)));
  const inline = inlineAncestor(located, key);
  if (inline !== undefined) return intoInlineTable(inline.node, `${inline.rest} = ${value}`);
  const newline = text.includes("\r\n") ? "\r\n" : "\n";
  const table = located.tables.find((one) => toKeyText(one.resolvedKey) === toKeyText(parent));
  const shown = shownInComment(text, located, { table, isTop: parent.length === 0, name });
  if (shown !== undefined) return { start: shown, end: shown, insert: `${newline}${name} = ${value}` };
  if (table !== undefined) {
    return afterNode(text, table.body.at(-1) ?? table.key, { line: `${name} = ${value}`, newline });
  }
  const dotted = dottedSibling(located, parent);
  if (dotted !== undefined) {
    return afterNode(text, dotted.node, { line: `${dotted.prefix}${name} = ${value}`, newline });
  }
  if (parent.length === 0) return atTop(text, located, { line: `${name} = ${value}`, newline });
  return newTable(text, { header: toDotted(parent), line: `${name} = ${value}`, newline });
}

/** Returns the end of the comment line in a table's part of the text that shows a key with a value. Undefined: there is none, or no such table. */
function shownInComment(
  text: string,
  { tables, values, comments }: LocatedKeys,
  { table, isTop, name }: { readonly table: AST.TOMLTable | undefined; readonly isTop: boolean; readonly name: string },
): number | undefined {
  if (table === undefined && !isTop) return undefined;
  const from = table?.key.range[1] ?? 0;
  const next = tables.find(({ range }) => range[0] >= from);
  const comment = comments.find(({ value, loc, range: [start] }) =>
    value.startsWith(` ${name} = `) && loc.start.column === 0 && start >= from &&
    start < (next?.range[0] ?? Infinity) &&
    // A list may have comments of its own
    !values.some(({ node: { range } }) => range[0] < start && start < range[1])
  );
  return comment === undefined ? undefined : endOfLine(text, comment.range[1]);
}

function intoInlineTable(table: AST.TOMLInlineTable, pair: string): Splice {
  const last = table.body.at(-1);
  if (last !== undefined) return { start: last.range[1], end: last.range[1], insert: `, ${pair}` };
  return { start: table.range[0], end: table.range[1], insert: `{ ${pair} }` };
}

/** The innermost inline table around the key, and the rest of the key inside it. */
function inlineAncestor(
  located: LocatedKeys,
  key: KeyPath,
): { readonly node: AST.TOMLInlineTable; readonly rest: string } | undefined {
  for (let length = key.length - 1; length > 0; length--) {
    const outer = toKeyText(key.slice(0, length));
    const node = located.values.find((one) => toKeyText(one.path) === outer)?.node.value;
    if (node?.type === "TOMLInlineTable") return { node, rest: toDotted(key.slice(length)) };
  }
  return undefined;
}

/**
 * The last key such as `gateway.host = "x"`, which makes the table `gateway` without a header, around the wanted one: no header
 * may follow there, so the new key is dotted too. `prefix` is what goes before its name.
 */
function dottedSibling(
  located: LocatedKeys,
  parent: KeyPath,
): { readonly node: AST.TOMLKeyValue; readonly prefix: string } | undefined {
  for (let length = parent.length; length > 0; length--) {
    const table = toKeyText(parent.slice(0, length));
    for (const { path, node } of located.values.toReversed()) {
      const outer = path.length - keyNamesOf(node.key).length;
      const makesTable = node.parent.type !== "TOMLInlineTable" && outer < length && path.length > length;
      if (!makesTable || toKeyText(path.slice(0, length)) !== table) continue;
      return { node, prefix: `${toDotted(parent.slice(outer))}.` };
    }
  }
  return undefined;
}

function toDotted(path: KeyPath): string {
  return path.map((part) => toTomlKey(String(part))).join(".");
}

function afterNode(
  text: string,
  node: AST.TOMLNode,
  { line, newline }: { readonly line: string; readonly newline: string },
): Splice {
  const end = endOfLine(text, node.range[1]);
  const indent = node.type === "TOMLKeyValue" ? " ".repeat(node.loc.start.column) : "";
  return { start: end, end, insert: `${newline}${indent}${line}` };
}

/** After the last key before the first table, else after the comment that heads the file, else at the very start. */
function atTop(
  text: string,
  located: LocatedKeys,
  { line, newline }: { readonly line: string; readonly newline: string },
): Splice {
  const last = located.values.findLast((one) => one.node.parent.type === "TOMLTopLevelTable");
  if (last !== undefined) return afterNode(text, last.node, { line, newline });
  const heading = /^(?:[ \t]*#[^\n]*\n)+[ \t]*\r?\n/.exec(text)?.[0].length ?? 0;
  const rest = text.slice(heading);
  return { start: heading, end: heading, insert: `${line}${newline}${rest === "" ? "" : newline}` };
}

function newTable(
  text: string,
  { header, line, newline }: { readonly header: string; readonly line: string; readonly newline: string },
): Splice {
  const gap = text === "" ? "" : text.endsWith("\n") ? newline : newline + newline;
  return { start: text.length, end: text.length, insert: `${gap}[${header}]${newline}${line}${newline}` };
}

/** Offset of the line's end, past a comment behind the value. */
function endOfLine(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  if (end < 0) return text.length;
  return text[end - 1] === "\r" ? end - 1 : end;
}

function withValue(before: RawTable, key: KeyPath, value: unknown): RawTable {
  const copy = structuredCopy(before);
  let table: unknown = copy;
  for (const [index, part] of key.entries()) {
    const last = index === key.length - 1;
    if (Array.isArray(table)) {
      if (last || table[Number(part)] === undefined) {
        throw refuse(key, "a list is set whole; only keys of its tables can be set by themselves");
      }
      table = table[Number(part)];
      continue;
    }
    if (!isTable(table)) throw refuse(key, `"${toKeyText(key.slice(0, index))}" is no table`);
    if (last && isTable(table[part])) throw refuse(key, "it is a table; set one of its keys");
    if (last) table[String(part)] = structuredCopy(value);
    else if (table[part] === undefined) setAt(table, [part], Object.create(null));
    table = table[part];
  }
  return copy;
}

function structuredCopy<T>(value: T): T {
  // The copy has the shape of the original: tables without a prototype, as the TOML parser makes them
  if (Array.isArray(value)) return value.map(structuredCopy) as T;
  if (!isTable(value)) return value;
  return Object.assign(
    Object.create(null),
    Object.fromEntries(Object.entries(value).map(([key, item]) => [key, structuredCopy(item)])),
  );
}

function refuse(key: KeyPath, reason: string, action = "set"): ConfigError {
  const text = toKeyText(key);
  return new ConfigError("config_edit", `Cannot ${action} "${text}": ${reason}`, { key: text });
}

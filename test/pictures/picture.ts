import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { isRecord } from "../../lib/base/json.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

/** Characters of a list or an object that stands on one line. */
const MAX_INLINE = 240;

/** Lines that a failure repeats. */
const MAX_TOLD = 20;

/**
 * Compares what the gateway shows with a picture of it in `test/pictures/`, line by line. With `UPDATE_PICTURES=1` in the environment the
 * picture is written instead: a change that is wanted is then a line of the commit. Without it nothing is ever written.
 */
export function comparePicture(name: string, lines: readonly string[]): void {
  const path = join(PROJECT_ROOT, "test/pictures", name);
  if (process.env["UPDATE_PICTURES"] === "1") return writeFileSync(path, `${lines.join("\n")}\n`);
  const picture = existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : [];
  if (lines.length === picture.length && lines.every((line, index) => line === picture[index])) return;
  const [before, now] = [new Set(picture), new Set(lines)];
  const changes = [
    ...picture.filter((line) => !now.has(line)).map((line) => `- ${line}`),
    ...lines.filter((line) => !before.has(line)).map((line) => `+ ${line}`),
  ];
  const told = changes.length === 0
    ? "the same lines, in another order or number"
    : changes.slice(0, MAX_TOLD).join("\n");
  assert.fail(
    `test/pictures/${name} differs in ${changes.length} lines; where that is wanted, run the test with UPDATE_PICTURES=1\n${told}`,
  );
}

/**
 * Returns a JSON value as an outline: a line for each key, in the order of the alphabet, and what is short on the line of its key. An item of
 * a list has a dash for its key, so that a new item is one line.
 */
export function outlineOf(value: unknown, indent = ""): readonly string[] {
  return entriesOf(value).flatMap(([key, held]) => {
    const text = JSON.stringify(held, (_key, part) => isRecord(part) ? Object.fromEntries(entriesOf(part)) : part);
    const isShort = text.length <= MAX_INLINE || entriesOf(held).length === 0;
    return isShort ? [`${indent}${key} ${text}`] : [`${indent}${key}`, ...outlineOf(held, `${indent} `)];
  });
}

function entriesOf(value: unknown): readonly (readonly [key: string, value: unknown])[] {
  if (Array.isArray(value)) return value.map((item) => ["-", item]);
  return isRecord(value) ? Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)) : [];
}

/** Patterns of what differs in another run of the same work, with the name that stands for it: ids keep their own prefix. */
const IRREGULAR: readonly (readonly [name: string, pattern: RegExp])[] = [
  ["", /\b(?:[a-z]+[_-])?[0-9a-v]{24}\b/g],
  ["digest_", /\b[0-9a-f]{64}\b/g],
  ["uuid_", /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g],
  ["state_", /\bv1\.[\w-]{40,}\.[\w-]{40,}/g],
];

/**
 * Returns a function that puts a name with a number in the place of each id, digest and seal of a text. Equal values get the same name, also
 * in the texts that it is given later.
 * @param folder absolute path that is written as `/workspace`
 */
export function regular(folder: string): (text: string) => string {
  const names = new Map<string, string>();
  const counts = new Map<string, number>();
  const nameOf = (name: string, found: string) => {
    const prefix = name || found.slice(0, -24) || "id_";
    const count = (counts.get(prefix) ?? 0) + 1;
    counts.set(prefix, count);
    return `${prefix}${count}`;
  };
  return (text) =>
    IRREGULAR.reduce((left, [name, pattern]) =>
      left.replaceAll(pattern, (found) => {
        const known = names.get(found) ?? nameOf(name, found);
        names.set(found, known);
        return known;
      }), text.replaceAll(folder, "/workspace"));
}

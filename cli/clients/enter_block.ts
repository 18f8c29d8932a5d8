import { isRecord } from "../../lib/base/json.ts";
import { removeConfigTable, setConfigValue } from "../../lib/config/edit_config.ts";
import { CommandError } from "../command.ts";
import type { Client } from "./client_table.ts";

type Table = Readonly<Record<string, unknown>>;

const BY_HAND = "print the block without --write and add it by hand";

/**
 * Returns the text of a client's file with the block in it, or of a new file. Keys of others stay, and in TOML and YAML their comments.
 * @throws {CommandError} the text cannot be changed without a loss
 */
export async function enterBlock(format: Client["format"], text: string, block: Table): Promise<string> {
  switch (format) {
    case "toml": {
      // An older entry of ours goes whole, so that no key of it stays
      let edited = text;
      for (const table of Object.keys(block)) edited = await removeConfigTable(edited, [table, "postern"]);
      for (const [path, value] of leavesOf(block)) edited = await setConfigValue(edited, path, value);
      return edited;
    }
    case "yaml":
      return await enterYaml(text, block);
    case "json":
      return enterJson(text, block);
    case "env":
      return Object.entries(block).map(([name, value]) => `${name}=${value}\n`).join("");
  }
}

function leavesOf(table: Table, path: readonly string[] = []): readonly (readonly [readonly string[], unknown])[] {
  return Object.entries(table).flatMap(([key, value]) =>
    isRecord(value) ? leavesOf(value, [...path, key]) : [[[...path, key], value] as const]
  );
}

function enterJson(text: string, block: Table): string {
  const before: unknown = text.trim() === "" ? {} : parseJson(text);
  const [wide] =
    text.replace(/"(?:[^"\\]|\\.)*"/gs, '""').match(/(?<![\d.])\d{16,}(?![\d.eE])/g)?.filter((number) =>
      !Number.isSafeInteger(Number(number))
    ) ?? [];
  if (wide !== undefined) {
    throw new CommandError(`Cannot change the file: the number ${wide} would be rounded; ${BY_HAND}`);
  }
  if (!isRecord(before)) throw new CommandError("Cannot change the file: it holds no JSON object");
  return `${JSON.stringify(merged(before, block), null, /^[{[]\r?\n([ \t]+)/.exec(text)?.[1] ?? 2)}\n`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CommandError(`Cannot change the file: it has comments, or is no JSON; ${BY_HAND}`, { cause });
  }
}

/** Returns a table with the keys of another in place of its own, down to the entry that is ours. */
function merged(before: Table, after: Table): Table {
  const entries = Object.entries(after).map(([key, value]) => {
    const old = Object.hasOwn(before, key) ? before[key] : undefined;
    // The entry of our own name is replaced whole, so that no old key stays in it
    return [
      key,
      isRecord(old) && isRecord(value) && key.toLowerCase() !== "postern" ? merged(old, value) : value,
    ] as const;
  });
  return { ...before, ...Object.fromEntries(entries) };
}

async function enterYaml(text: string, block: Table): Promise<string> {
  const { isMap, isSeq, parseDocument } = await import("yaml");
  const document = parseDocument(text);
  if (document.errors.length > 0 || (document.contents !== null && !isMap(document.contents))) {
    throw new CommandError(`Cannot change the file: it is no YAML table; ${BY_HAND}`);
  }
  for (const [key, value] of Object.entries(block)) {
    if (!Array.isArray(value)) {
      if (!document.has(key)) document.set(key, value);
      continue;
    }
    const list = document.get(key);
    // A list that another key refers to would be replaced there too
    if (list !== undefined && list !== null && !isSeq(list)) {
      throw new CommandError(`Cannot change the file: "${key}" is no list of its own; ${BY_HAND}`);
    }
    for (const item of value.filter(isRecord)) {
      const index = isSeq(list) ? list.items.findIndex((one) => isMap(one) && one.get("name") === item["name"]) : -1;
      if (!isSeq(list)) document.set(key, document.createNode([item]));
      else if (index < 0) list.add(document.createNode(item));
      else list.set(index, document.createNode(item));
    }
  }
  return document.toString({ lineWidth: 0 });
}

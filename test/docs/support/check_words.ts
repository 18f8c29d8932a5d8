import type { ArgsDef } from "citty";
import { shownFlag } from "../../../cli/command.ts";
import { findGroup, findVerb } from "../../../cli/find_verb.ts";
import { parseToml } from "../../../lib/config/toml.ts";
import { schemaAt, unknownKeys } from "../../../lib/config/schema_keys.ts";
import type { Block, Page } from "./read_pages.ts";

const GLOBAL_FLAGS = ["config", "data-dir", "workspace", "json", "help", "version"];
/** Finds the program's name and its words in a command line, a unit or a list of words */
const COMMAND = /(?:^|[\s;&|("'`=/])postern((?: +[^\s|;&`)]+)+)/gm;

/** Says which verbs, flags and configuration keys of a page do not exist: in all its code, and in the code of its prose. */
export async function unknownWords(page: Page): Promise<readonly string[]> {
  const inline = [...page.prose.matchAll(/`([^`\n]+)`/g)].map((match) => match[1] ?? "");
  const found = [
    ...(await Promise.all(page.blocks.map(async (block) => named(block.place, await unknownInBlock(block))))).flat(),
    ...named(page.path, (await Promise.all(inline.map(unknownInText))).flat()),
    ...named(page.path, inline.flatMap(unknownSection)),
  ];
  return found;
}

function named(place: string, words: readonly string[]): readonly string[] {
  return words.map((word) => `${place}: ${word}`);
}

async function unknownInBlock({ language, file, text }: Block): Promise<readonly string[]> {
  const isConfig = language === "toml" && (file === undefined || file === "postern.toml");
  const keys = isConfig ? unknownKeys(parseToml(text, "page.toml")).map((path) => `no key ${path.join(".")}`) : [];
  return [...await unknownInText(text), ...keys];
}

async function unknownInText(text: string): Promise<readonly string[]> {
  const commands = text.replaceAll(/\\\n\s*/g, " ").matchAll(COMMAND);
  const words = await Promise.all([...commands].map((match) => unknownInCommand((match[1] ?? "").trim().split(/ +/))));
  const variables = [...text.matchAll(/\bPOSTERN__([A-Z0-9_]+)/g)].map((match) => match[1] ?? "").filter((name) =>
    schemaAt(name.toLowerCase().split("__")) === undefined
  );
  return [...words.flat(), ...variables.map((name) => `no key for POSTERN__${name}`)];
}

async function unknownInCommand(words: readonly string[]): Promise<readonly string[]> {
  const [first = "", second = ""] = words;
  // No command of its own: "postern, ...", "postern <command>", a flag of the program
  if (!/^[a-z]+$/.test(first)) return [];
  const found = findVerb(words);
  if (found === undefined) {
    const isGroup = findGroup(first) !== undefined;
    return isGroup && !/^[a-z]+$/.test(second) ? [] : [`no command "postern ${first} ${second}"`];
  }
  if (found.oldSpelling !== undefined) return [`"postern ${found.oldSpelling}" is now "postern ${found.name}"`];
  const { args } = await found.verb.load() as { readonly args: ArgsDef };
  const known = [...Object.entries(args).map(([name, arg]) => shownFlag(name, arg)), ...GLOBAL_FLAGS];
  const flags = words.flatMap((word) => /^--([a-z][a-z-]*)/.exec(word)?.[1] ?? []);
  return flags.filter((flag) => !known.includes(flag)).map((flag) => `no flag --${flag} of "postern ${first}"`);
}

/** Checks code such as `[autonomy] level = "full"` or `[agents.<name>]`. */
function unknownSection(code: string): readonly string[] {
  const [whole, table = "", key] = /^\[+([a-z][\w.<>"-]*)\]+(?: ([a-z_]+))?/.exec(code) ?? [];
  if (whole === undefined) return [];
  const path = [...table.matchAll(/"([^"]*)"|([^.]+)/g)].map((match) => match[1] ?? match[2] ?? "");
  const isList = schemaAt([...path, 0]) !== undefined;
  return schemaAt([...path, ...(isList ? [0] : []), ...(key === undefined ? [] : [key])]) === undefined
    ? [`no key "${whole}"`]
    : [];
}

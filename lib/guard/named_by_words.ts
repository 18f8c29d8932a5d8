import { realpath, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { readsOfCommand } from "../system/process/command_reads.ts";
import { namesFiles, type PlacedPart, placeParts } from "../system/process/placed_parts.ts";
import { candidatesOf, realPathOf } from "../system/process/screen_arguments.ts";
import type { Effects } from "./policy.ts";
import { type CallPart, commandsIn, UNKNOWN_WORD } from "./rules.ts";
import { runsNoOther } from "./understood_commands.ts";

/** Path that words of a command may name, as a part of its call. */
export type NamedPart = Required<Pick<CallPart, "command" | "path" | "named">>;

/** Places that the words of one call are looked for at. The words of further ones are as good as unknown */
const MAX_PLACES = 8192;

/**
 * Returns the files that the words of a call's commands may name, by the names and where these really lie, links resolved; the folders that the
 * commands may look through; and the paths in a text that a program may run as a command. What a program opens unasked is not known.
 * @param folder absolute path of the folder that the command runs in
 */
export async function namedByWords({ command, line }: Effects, folder: string): Promise<readonly NamedPart[]> {
  const root = await realpath(folder).catch(() => folder);
  const parts = line === undefined
    ? [{ words: command ?? [], placed: { args: command ?? [], isKnown: true, folders: [root] } }]
    : placeParts(line, root).map((placed, index) => ({
      words: line.parts[index]?.words.map((word) => word ?? UNKNOWN_WORD) ?? [],
      placed,
    }));
  const named: NamedPart[] = [];
  for (const { words, placed } of parts) {
    if (!namesFiles(words[0] ?? "")) continue;
    const found = named.length > MAX_PLACES ? [EVERYWHERE] : await namedByPart(words, placed);
    named.push(...found.map((each) => ({ ...each, command: words })));
  }
  return named;
}

type Named = Omit<NamedPart, "command">;

/** Signs between the names in a text that a program may run. */
const BETWEEN = /[\s;|&()<>"'`${}\\]+/;
const SHELL = /(?:^|\/)(?:eval|(?:a|ba|da|z|k|fi)?sh)$/i;
/** Signs by which a shell makes other words of a text than stand in it. */
const MADE = /[$*?[\\`~]|[^\s;|&()<>=]["']+[^\s;|&()<>]/;

/** All that a command may look through whose words nobody knows. */
const EVERYWHERE: Named = { path: "/", named: "folder" };

async function namedByPart(
  words: readonly string[],
  { args, isKnown, folders }: Pick<PlacedPart, "args" | "isKnown" | "folders">,
): Promise<readonly Named[]> {
  if (!isKnown || folders === undefined) return [EVERYWHERE];
  const files = args.flatMap((arg) => [...candidatesOf(arg)]);
  const isPlain = runsNoOther(words[0] ?? "");
  const run = isPlain ? [] : commandsIn(words.map((word) => word.toLowerCase()));
  const commands = words.filter((_word, index) => run[index] !== undefined);
  if (words.some((word) => SHELL.test(word)) && commands.some((text) => MADE.test(text))) return [EVERYWHERE];
  const namesIn = (given: readonly string[]) =>
    given.filter((text) => BETWEEN.test(text)).flatMap((text) =>
      text.split(BETWEEN).flatMap((name) => [...candidatesOf(name)])
    );
  const texts = isPlain ? [] : namesIn(args);
  const below = namesIn(commands);
  if ((files.length + texts.length + below.length) * folders.length > MAX_PLACES) return [EVERYWHERE];
  const named: Named[] = [];
  for (const folder of folders) {
    for (
      const [name, kind] of [
        ...files.map((file) => [file, "file"] as const),
        ...texts.map((text) => [text, "text"] as const),
        ...below.map((text) => [text, "folder"] as const),
      ]
    ) {
      for (const path of new Set([resolve(folder, name), await realPathOf(name, folder)])) {
        if (kind !== "folder") named.push({ path, named: kind });
        if (kind !== "text" && await isFolder(path)) named.push({ path, named: "folder" });
      }
    }
    const isSearch = readsOfCommand(words, folder).includes(folder);
    if (isSearch) named.push({ path: folder, named: "folder" });
  }
  return named;
}

async function isFolder(path: string): Promise<boolean> {
  return await stat(path).then((found) => found.isDirectory(), () => false);
}

import { sep } from "node:path";
import type { Config } from "../config/config.ts";
import { foldName } from "../system/files/sensitive_files.ts";
import { expandForbidden } from "../system/files/forbidden_paths.ts";
import { isAmongHosts } from "../system/net/url_rules.ts";
import { runsNoOther } from "./understood_commands.ts";

/** Answers of a rule, the strictest first. */
export const ANSWERS = ["deny", "ask", "allow"] as const;
/** Answer of a rule. */
export type RuleAnswer = (typeof ANSWERS)[number];

/** Stands for words of a command line that show only when it runs, be it several or none. No word of a command holds a NUL. */
export const UNKNOWN_WORD = "\0";

/** Part of a call: one command of it with one file and one address. A call may go as far as its furthest part may. */
export interface CallPart {
  readonly tool: string;
  /** Field `op` of the input; null where it has none */
  readonly op: string | null;
  /** Words of the command, UNKNOWN_WORD among them. Undefined: the part runs none */
  readonly command: readonly string[] | undefined;
  /** Present for a command that is redirected from or to a file, which is `path` where it is known. Default: it is not */
  readonly redirects?: "from" | "to" | undefined;
  /** Absolute path. Undefined: the part names none */
  readonly path: string | undefined;
  /**
   * Present where `path` is what words of the command may name: a file, a folder that it may look through, or a path in a text that it may run.
   * No rule that allows goes by it
   */
  readonly named?: "file" | "folder" | "text" | undefined;
  /** Host as URLs have it. Undefined: the part names none */
  readonly host: string | undefined;
}

/** Rule of the list of rights, whichever setting or answer it is compiled from. */
export interface Rule<Part = CallPart> {
  /** As `rule:no-push`, `auto_approve:shell` or `remembered:rule_0123` */
  readonly id: string;
  readonly then: RuleAnswer;
  /** Reason of the rule's answer, as the middle of a sentence about the call that ends with `it` */
  readonly reason: string;
  /** Edit that takes the rule away */
  readonly change: string;
  /** Tells whether the rule speaks of a part. An allow covers only what it surely names, a deny or ask whatever it may name */
  readonly covers: (part: Part) => boolean;
}

/** Answer of the list about one part, with every rule that gives it. */
export interface Settled<Part = CallPart> {
  readonly then: RuleAnswer;
  readonly by: readonly Rule<Part>[];
}

/**
 * Returns what a list of rules says of one part: any deny, else any ask, else any allow, whatever their order. The one place where rules
 * meet. undefined: no rule speaks of the part
 */
export function settle<Part>(rules: readonly Rule<Part>[], part: Part): Settled<Part> | undefined {
  const speaking = rules.filter(({ covers }) => covers(part));
  for (const then of ANSWERS) {
    const by = speaking.filter((rule) => rule.then === then);
    if (by.length > 0) return { then, by };
  }
  return undefined;
}

/**
 * A written rule, as `[[autonomy.rules]]` has it. An empty pattern says nothing. The name begins with `workspace/` for a rule of the
 * workspace's own file.
 */
export type WrittenRule = RuleSettings["rules"][number];

/** The settings that are compiled into the list. */
export type RuleSettings = Pick<Config["autonomy"], "rules" | "auto_approve" | "always_ask">;

/** Folders that patterns of paths begin at. Absolute */
export interface RulePlaces {
  readonly root: string;
  readonly home: string;
}

/** Short names for three tools, accepted in the lists; an edit names what the list says. */
const ALIASES: Readonly<Record<string, string>> = {
  glob: "glob_search",
  search: "content_search",
  memory_read: "memory_recall",
};

/** Compiles the settings into the list of rights. */
export function compileRules(settings: RuleSettings, places: RulePlaces): readonly Rule[] {
  return [
    ...settings.rules.flatMap((rule) => [compileWritten(rule, places), ...compileUnknown(rule, places)]),
    ...[...new Set(settings.always_ask)].map((entry) => compileEntry(entry, "always_ask", "ask")),
    ...[...new Set(settings.auto_approve)].map((entry) => compileEntry(entry, "auto_approve", "allow")),
  ];
}

function compileEntry(entry: string, list: string, then: RuleAnswer): Rule {
  const name = ALIASES[entry] ?? entry;
  return {
    id: `${list}:${name}`,
    then,
    reason: `[autonomy] ${list} names it`,
    change: `remove "${entry}" from [autonomy] ${list}`,
    covers: ({ tool }) => tool === name,
  };
}

const SAYS: Readonly<Record<RuleAnswer, string>> = { deny: "denies it", ask: "asks about it", allow: "allows it" };

/** Compiles a written rule. Every pattern that it has must fit the same part. */
export function compileWritten(rule: WrittenRule, places: RulePlaces): Rule {
  const { name, then } = rule;
  const isWide = then !== "allow";
  const command = commandOf(rule);
  const path = rule.path === "" ? [] : namesOf(rule.path, places);
  const read = isWide ? foldedNames : namesOfPath;
  const pattern = isWide ? path.map(foldName) : path;
  const isNamed = isWide
    ? wideCommand(command)
    : (words: readonly string[]) => matchesRow(command, words, { any: "*", same: matchesText });
  // Parts of a line share the words of their command
  let last: { readonly words: readonly string[]; readonly fits: boolean } | undefined;
  const fits = (words: readonly string[]) => {
    if (last?.words !== words) last = { words, fits: isNamed(words) };
    return last.fits;
  };
  return {
    id: `rule:${name}`,
    then,
    reason: `the rule "${name}" ${SAYS[then]}`,
    change: `remove "${name}" from [[autonomy.rules]]`,
    covers: (part) =>
      matchesText(rule.tool, part.tool) &&
      (isWide || part.named === undefined) &&
      (path.length === 0 || part.named === undefined || part.named === "file") &&
      (rule.op === "" || rule.op === part.op) &&
      (command.length === 0 || (part.command !== undefined && fits(part.command))) &&
      // To allow a command says nothing of the file that its output goes to
      (isWide || command.length === 0 || path.length > 0 || part.redirects !== "to") &&
      (path.length === 0 || (part.path !== undefined && matchesPath(pattern, read(part.path))) ||
        (isWide && SEARCHES.has(part.tool) && part.path !== undefined && mayLieBelow(pattern, read(part.path)))) &&
      (rule.host === "" || (part.host !== undefined && (rule.host === "*" || isAmongHosts(part.host, [rule.host])))),
  };
}

/**
 * Compiles the question about a command that may be what a rule denies or asks about: by its unknown words, its redirection, a folder that it
 * may look through, or a text that it may run.
 */
function compileUnknown(rule: WrittenRule, places: RulePlaces): readonly Rule[] {
  const [program] = commandOf(rule);
  if (rule.then === "allow" || (program === undefined && rule.path === "")) return [];
  const pathless = compileWritten({ ...rule, path: "" }, places);
  const pattern = rule.path === "" ? [] : namesOf(rule.path, places).map(foldName);
  const mayBe = ([name = "", ...rest]: readonly string[]) =>
    program !== undefined && [name, ...rest].includes(UNKNOWN_WORD) &&
    (!runsNoOther(name) || matchesText(program.toLowerCase(), name.toLowerCase()));
  return [{
    id: `rule:${rule.name}`,
    then: "ask",
    reason: `the rule "${rule.name}" may mean what shows only when the line runs, so a person is asked about it`,
    change: `remove "${rule.name}" from [[autonomy.rules]]`,
    covers: (part) => {
      const { tool, command, path, redirects, named } = part;
      if (!matchesText(rule.tool, tool) || command === undefined) return false;
      const isMeant = rule.path !== "" &&
        (path === undefined
          ? redirects !== undefined
          : named === "folder"
          ? mayLieBelow(pattern, foldedNames(path))
          : named === "text" && matchesPath(pattern, foldedNames(path)));
      return mayBe(command) || (isMeant && pathless.covers(part));
    },
  }];
}

function commandOf({ command }: WrittenRule): readonly string[] {
  return command.split(" ").filter((word) => word !== "").map((word) => /^\*+$/.test(word) ? "*" : word);
}

/** Returns the names of a pattern's absolute path. A slash at the end stands for all that is in the folder. */
function namesOf(pattern: string, { root, home }: RulePlaces): readonly string[] {
  const full = expandForbidden(pattern, { home, workspaceRoot: root });
  return [...full.split(sep), ...(pattern.endsWith("/") ? ["**"] : [])];
}

/** Tools that read all that lies below the path that they are given. */
const SEARCHES: ReadonlySet<string> = new Set(["content_search", "glob_search", "git_operations"]);

/** Tells whether a path below the given folder may match. */
function mayLieBelow(pattern: readonly string[], folder: readonly string[]): boolean {
  const names = folder.filter((name, index) => index === 0 || name !== "");
  const deep = pattern.indexOf("**");
  return (deep !== -1 && deep <= names.length ? names.slice(0, deep) : names).every((name, index) =>
    matchesText(pattern[index] ?? "", name)
  );
}

function matchesPath(pattern: readonly string[], names: readonly string[]): boolean {
  return matchesRow(pattern, names, { any: "**", same: matchesText });
}

function namesOfPath(path: string): readonly string[] {
  return path.split(sep);
}

/** Returns what a function makes of a value, kept for the last one: all rules look at one part before they look at the next. */
function keepingLast<T, R>(make: (value: T) => R): (value: T) => R {
  let last: { readonly value: T; readonly made: R } | undefined;
  return (value) => {
    if (last === undefined || last.value !== value) last = { value, made: make(value) };
    return last.made;
  };
}

const foldedNames = keepingLast((path: string): readonly string[] => path.split(sep).map(foldName));

/** Words after which a program takes a whole command in one word, options aside. */
const TAKES_COMMAND = /^(?:[-+][a-z]*c|--command|-e|--eval|eval|-s|--split-string|--call)$/;
/** Begin of a word that such a command is glued to. */
const GLUED_COMMAND = /^(?:-[cs]|--(?:command|eval|split-string|call)=)(?=.*\s)/s;
/** Programs that take a command in any of their words. */
const RUN_WORDS: ReadonlySet<string> = new Set(["watch", "parallel", "ssh", "hyperfine", "tmux"]);

/** Words of a command in lower case: as they are, and with those of the commands that a program takes in one word, where it takes any. */
const foldedWords = keepingLast((words: readonly string[]): readonly (readonly string[])[] => {
  const folded = words.map((word) => word.toLowerCase());
  const commands = commandsIn(folded);
  const inner = folded.flatMap((word, index) => commands[index]?.split(/[\s;|&()<>"'`]+/) ?? [word]);
  return inner.length === folded.length ? [folded] : [folded, inner];
});

/**
 * Returns for each word the command that a program takes in it.
 * @param folded in lower case
 * @returns undefined for a word that is none
 */
export function commandsIn(folded: readonly string[]): readonly (string | undefined)[] {
  const isRun = folded.some((word) => RUN_WORDS.has(programName(word)));
  let isNext = false;
  return folded.map((word) => {
    const [glued] = GLUED_COMMAND.exec(word) ?? [];
    const isCommand = isRun || glued !== undefined || (isNext && (!word.startsWith("-") || /\s/.test(word)));
    isNext = TAKES_COMMAND.test(word) || (isNext && !isCommand);
    return isCommand ? word.slice(glued?.length) : undefined;
  });
}

/** Returns the name of a program without its folder. */
function programName(word: string): string {
  return word.slice(Math.max(word.lastIndexOf("/"), word.lastIndexOf("\\")) + 1);
}

/**
 * Compiles a pattern that a deny or ask matches word by word: without case, the program with or without its folder, and behind programs that
 * may start another: `env rm x` and `sh -c "rm x"` are an `rm` as well.
 */
export function wideCommand(pattern: readonly string[]): (words: readonly string[]) => boolean {
  const [program = "", ...rest] = pattern.map((word) => word.toLowerCase());
  const same = (wanted: string, word: string) =>
    matchesText(wanted, word) || (wanted === program && matchesText(wanted, programName(word)));
  return (words) => {
    const row = runsNoOther(words[0] ?? "") ? [program, ...rest] : ["*", program, ...rest];
    return foldedWords(words).some((own) => matchesRow(row, own, { any: "*", same }));
  };
}

/**
 * Matches the items of a row with those of a pattern, in which `any` stands for any number of items. Takes at most as many steps as the two
 * lengths multiplied.
 */
function matchesRow(
  pattern: readonly string[],
  items: readonly string[],
  { any, same }: { readonly any: string; readonly same: (pattern: string, item: string) => boolean },
): boolean {
  let at = 0;
  let item = 0;
  /** Place behind the last `any`, and the first item that it does not stand for */
  let back: { readonly at: number; item: number } | undefined;
  while (item < items.length) {
    const wanted = pattern[at];
    if (wanted === any) back = { at: ++at, item };
    else if (wanted !== undefined && same(wanted, items[item] ?? "")) {
      at++;
      item++;
    } else if (back === undefined) return false;
    else {
      at = back.at;
      item = ++back.item;
    }
  }
  return pattern.slice(at).every((wanted) => wanted === any);
}

/** Matches a text with a pattern, in which `*` stands for any characters. Each piece is looked for once, from the last one's end on. */
export function matchesText(pattern: string, text: string): boolean {
  if (!pattern.includes("*")) return pattern === text;
  const [first = "", ...rest] = pattern.split("*");
  const last = rest.pop() ?? "";
  const end = text.length - last.length;
  if (end < first.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = text.indexOf(piece, at);
    if (found === -1 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}

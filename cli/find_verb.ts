import type { Verb } from "./command.ts";
import { VERBS } from "./verbs.ts";

/** Verb that a command line names. */
export interface FoundVerb {
  /** Name in the table of verbs, such as `token add` */
  readonly name: string;
  readonly verb: Verb;
  /** Number of words of the command line that make up the name */
  readonly words: number;
  /** Old spelling that was used, such as `token create`. Undefined: the words are as good as the name */
  readonly oldSpelling?: string;
}

/** Nouns beside those of the table: what the thing was called before. */
const OTHER_NOUNS: ReadonlyMap<string, string> = new Map([["cron", "schedule"], ["sop", "procedure"]]);
/** Verbs that were renamed, with the new ones. They count where the group has no verb of the old name. */
const OLD_VERBS: ReadonlyMap<string, string> = new Map([
  ["create", "add"],
  ["install", "add"],
  ["info", "show"],
  ["revoke", "remove"],
  ["trust", "enable"],
]);
/** Verbs that are as good as those of the table, where the group has no verb of this name. */
const OTHER_VERBS: ReadonlyMap<string, string> = new Map([
  ["delete", "remove"],
  ["forget", "remove"],
  ["pause", "disable"],
  ["resume", "enable"],
]);

/** Finds the verb that a command line begins with: a noun in singular or plural and a verb, such as `runs list`, or one word. */
export function findVerb([first = "", second]: readonly string[]): FoundVerb | undefined {
  for (const noun of nounForms(first)) {
    for (
      const [word = "", isOld] of [[second, false], [OTHER_VERBS.get(second ?? ""), false], [
        OLD_VERBS.get(second ?? ""),
        true,
      ]] as const
    ) {
      const verb = verbOf(`${noun} ${word}`);
      if (verb === undefined) continue;
      return { name: `${noun} ${word}`, verb, words: 2, ...(isOld ? { oldSpelling: `${first} ${second}` } : {}) };
    }
  }
  const verb = verbOf(first);
  return verb === undefined ? undefined : { name: first, verb, words: 1 };
}

/** Returns the group that a word names in singular or plural, such as `tool` for `tools`. */
export function findGroup(word: string): string | undefined {
  return nounForms(word).find((noun) => Object.keys(VERBS).some((name) => name.startsWith(`${noun} `)));
}

function verbOf(name: string): Verb | undefined {
  return Object.hasOwn(VERBS, name) ? VERBS[name] : undefined;
}

function nounForms(word: string): readonly string[] {
  const other = OTHER_NOUNS.get(word) ?? OTHER_NOUNS.get(word.replace(/s$/, ""));
  return [
    word,
    `${word}s`,
    word.replace(/s$/, ""),
    word.replace(/y$/, "ies"),
    word.replace(/ies$/, "y"),
    ...(other === undefined ? [] : [other]),
  ];
}

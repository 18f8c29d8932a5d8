import { relative, sep } from "node:path";
import { canonicalDigest } from "../base/json.ts";
import {
  type CallPart,
  compileRules,
  compileWritten,
  type RulePlaces,
  type RuleSettings,
  settle,
  UNKNOWN_WORD,
  type WrittenRule,
} from "./rules.ts";
import { runsNoOther } from "./understood_commands.ts";

/** Call that a person was asked about. */
export interface QuestionedCall {
  readonly tool: string;
  /** undefined: the input as it is kept does not say what the call was */
  readonly parts: readonly CallPart[] | undefined;
}

/** Rule that would have saved questions. */
export interface SuggestedRule {
  readonly rule: WrittenRule;
  /** Questions that it would have saved beside those that the rules before it save */
  readonly saves: number;
}

/** Questions that a rule must save */
const MIN_SAVED = 2;
/** Rules that are proposed at once */
const MAX_SUGGESTED = 20;

/**
 * Proposes rules that allow calls which a person approved: the one that saves most questions first, and of several that save the same, the
 * narrowest. None covers a part of a call that was ever denied, read as a denial would read it.
 * @param options.settings rules that there are: what they decide is asked no more, or each time
 */
export function suggestRules(
  calls: { readonly approved: readonly QuestionedCall[]; readonly denied: readonly QuestionedCall[] },
  { settings, ...places }: RulePlaces & { readonly settings: RuleSettings },
): readonly SuggestedRule[] {
  const { denied } = calls;
  const present = compileRules(settings, places);
  const approved = calls.approved.filter(({ parts = [] }) => {
    const said = parts.map((part) => settle(present, part)?.then);
    return said.includes(undefined) && !said.includes("ask") && !said.includes("deny");
  });
  const patterns = new Map<string, Pattern>();
  for (const { parts = [] } of approved) {
    for (const pattern of parts.flatMap((part) => patternsOf(part, places))) {
      patterns.set(JSON.stringify(pattern), pattern);
    }
  }
  const candidates = [...patterns.values()].filter((pattern) => !wasDenied(pattern, denied, places)).map((pattern) => {
    const { covers } = compileWritten({ ...pattern, name: "", then: "allow" }, places);
    return { pattern, saves: new Set(approved.filter(({ parts }) => parts?.every(covers) === true)) };
  });
  const names = new Set(settings.rules.map(({ name }) => name));
  const chosen: SuggestedRule[] = [];
  while (chosen.length < MAX_SUGGESTED) {
    // Patterns come from the narrowest to the widest, and the first of the best is taken
    const most = Math.max(0, ...candidates.map(({ saves }) => saves.size));
    const best = candidates.find(({ saves }) => saves.size === most);
    if (best === undefined || most < MIN_SAVED) break;
    chosen.push({ rule: { ...best.pattern, name: nameFor(best.pattern, names), then: "allow" }, saves: most });
    const saved = [...best.saves];
    for (const { saves } of candidates) for (const call of saved) saves.delete(call);
  }
  return chosen;
}

type Pattern = Omit<WrittenRule, "name" | "then">;

function wasDenied(pattern: Pattern, denied: readonly QuestionedCall[], places: RulePlaces): boolean {
  const { covers } = compileWritten({ ...pattern, name: "", then: "deny" }, places);
  return denied.some(({ tool, parts }) => parts === undefined ? tool === pattern.tool : parts.some(covers));
}

/** Returns the patterns that fit a part, from the narrowest to the widest that still says something. Empty where none does. */
function patternsOf(part: CallPart, places: RulePlaces): readonly Pattern[] {
  const { tool, command, path, host, redirects } = part;
  const about = { tool, op: part.op ?? "", command: "", path: "", host: "" };
  if (command !== undefined) {
    return redirects === "to" ? [] : commandsOf(command).map((text) => ({ ...about, command: text }));
  }
  const place = path === undefined ? "" : relative(places.root, path);
  const paths = place === "" ? [] : pathsOf(place);
  if (path !== undefined && place !== "") return paths.map((text) => ({ ...about, path: text }));
  if (host !== undefined) return host === "" ? [] : [{ ...about, host }];
  return part.op === null ? [] : [about];
}

/** Programs whose second word says no more than that the third is run. */
const RUN_WORDS: ReadonlySet<string> = new Set(["run", "run-script", "exec", "x", "task", "tool"]);

function commandsOf(words: readonly string[]): readonly string[] {
  const [program = "", next = ""] = words;
  const odd = words.findIndex((word) => word === "" || word === UNKNOWN_WORD || /[\s*]/.test(word));
  const plain = odd === -1 ? words : words.slice(0, odd);
  const fewest = runsNoOther(program) ? 1 : next.startsWith("-") ? words.length : RUN_WORDS.has(next) ? 3 : 2;
  const beginnings = plain.map((_, index) => plain.slice(0, plain.length - index)).filter(({ length }) =>
    length >= fewest
  );
  return [...(odd === -1 ? [words.join(" ")] : []), ...beginnings.map((each) => `${each.join(" ")} *`)];
}

function pathsOf(place: string): readonly string[] {
  const names = place.split(sep);
  const name = names.at(-1) ?? "";
  if (names[0] === ".." || /[*\\]/.test(place)) return [];
  const end = name.lastIndexOf(".");
  const folders = names.slice(0, -1);
  const above = folders.map((_, index) => [...folders.slice(0, folders.length - index), "**"].join("/"));
  return [names.join("/"), ...(end > 0 ? [[...folders, `*${name.slice(end)}`].join("/")] : []), ...above];
}

/** Returns a name that says the pattern and ends with a mark of it, so that no other pattern gets the same one another time. */
function nameFor(pattern: Pattern, names: Set<string>): string {
  const { tool, op, command, path, host } = pattern;
  const text = [tool, op, command, path, host].join("-").toLowerCase();
  const words = text.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, MAX_WORDS) || "rule";
  const plain = `${words}-${canonicalDigest(pattern).slice(0, 4)}`;
  let name = plain;
  for (let count = 2; names.has(name); count++) name = `${plain}-${count}`;
  names.add(name);
  return name;
}

/** With the mark and a number behind it, a name has at most 64 characters. */
const MAX_WORDS = 56;

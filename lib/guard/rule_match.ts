import { canonicalDigest } from "../base/json.ts";
import type { ApprovalRule } from "../base/records/approval.ts";
import { cutText, exactLine } from "../base/text.ts";
import { isWithin } from "../system/files/forbidden_paths.ts";
import type { Access } from "./policy.ts";
import { type Rule, UNKNOWN_WORD, wideCommand } from "./rules.ts";
import { isTaskRunner, isUnderstood } from "./understood_commands.ts";

/** A call as rules are looked up for it. */
export interface RuleSubject {
  readonly tool: string;
  readonly workspace: string;
  readonly inputDigest: string;
  /** Properties of the call that wider rules compare. Default: only rules for this exact call */
  readonly wider?: WiderSubject | undefined;
  /** True for a command that reaches the network: an approval of the same command without a network does not count for it. Default false */
  readonly reachesNetwork?: boolean | undefined;
  /** Paths that the call changes, where `wider.folder` is not known: a denial for a folder counts for them. Absolute. Default: none */
  readonly paths?: readonly string[] | undefined;
}

/** Properties of a call that rules for more than one input compare. */
export interface WiderSubject {
  /** Field `op` of the input; null where it has none */
  readonly op: string | null;
  readonly access: Access;
  /** Deepest folder that holds all the call changes, links resolved. Absolute; undefined: the call changes no files */
  readonly folder: string | undefined;
  /** Words of the command; undefined: the call runs none, or none that an approval could speak of */
  readonly command: readonly string[] | undefined;
  /** Words of a command of a line, UNKNOWN_WORD among them: a denial counts whatever else the line does. Default: `command` */
  readonly words?: readonly string[] | undefined;
}

/** Calls that a rule stands for: one exact call, a tool's changes in a folder, or a command with its first argument. */
export type RuleMatch =
  | {
    readonly kind: "call";
    readonly inputDigest: string;
    /** Present for a command that reaches the network */
    readonly access?: "network";
  }
  | { readonly kind: "folder"; readonly op: string | null; readonly access: Access; readonly folder: string }
  | {
    readonly kind: "command";
    readonly op: string | null;
    readonly access: Access;
    readonly command: readonly [name: string, first: string];
  };

/** Longer words are no name that a person reads */
const MAX_WORD = 200;
/** Longer inputs are cut in a rule's sentence */
const MAX_INPUT_SHOWN = 4000;

/** Returns the rules that an answer about this call can store: the exact call first. */
export function offeredMatches({ inputDigest, wider, reachesNetwork }: RuleSubject): readonly RuleMatch[] {
  const call: RuleMatch = { kind: "call", inputDigest, ...(reachesNetwork ? { access: "network" } : {}) };
  if (wider === undefined) return [call];
  return [
    call,
    ...(wider.folder === undefined ? [] : [folderMatch(wider, wider.folder)]),
    ...commandMatches(wider),
  ];
}

/**
 * Returns the rule of the list of rights that a remembered answer is. An approval stands for what its words say; a denial also for the same
 * call with a network, and for a command with whatever arguments: somebody who denied it for good would deny it with them too.
 */
export function compileAnswer(
  { id, decision }: Pick<ApprovalRule, "id" | "decision">,
  match: RuleMatch,
): Rule<RuleSubject> {
  return {
    id: `remembered:${id}`,
    then: decision === "deny" ? "deny" : "allow",
    reason: "a person decided about it",
    change: `revoke it with postern approval revoke ${id}`,
    covers: (subject) => isOf(subject, match, decision === "deny"),
  };
}

function isOf(
  { inputDigest, wider, reachesNetwork = false, paths = [] }: RuleSubject,
  match: RuleMatch,
  isWide: boolean,
) {
  if (match.kind === "call") {
    return match.inputDigest === inputDigest && (isWide || reachesNetwork === (match.access === "network"));
  }
  if (wider === undefined || wider.op !== match.op || !(isWide || wider.access === match.access)) return false;
  if (match.kind === "folder") {
    const places = wider.folder !== undefined ? [wider.folder] : isWide ? paths : [];
    return places.some((place) => isWithin(place, match.folder));
  }
  const { command = [], words = command } = wider;
  if (isWide) return isDenied(words, match.command);
  return command[0] === match.command[0] && command[1] === match.command[1] && isUnderstood(command);
}

/** Tells whether words may be a command with its first argument, be it behind another program: read as a written denial reads them. */
function isDenied(words: readonly string[], [name, first]: readonly [name: string, first: string]): boolean {
  return wideCommand([name, first, "*"])(words) || (words[0] === name && words[1] === UNKNOWN_WORD);
}

function folderMatch({ op, access }: WiderSubject, folder: string): RuleMatch {
  return { kind: "folder", op, access, folder };
}

/** Returns no match for a command whose arguments are not understood, as those of `env`, `find` or `npx`. */
function commandMatches({ op, access, command = [] }: WiderSubject): readonly RuleMatch[] {
  const [name, first] = command;
  if (name === undefined || first === undefined || first === "" || first.length > MAX_WORD) return [];
  if (!isUnderstood(command)) return [];
  return [{ kind: "command", op, access, command: [name, first] }];
}

/** Returns the id of the rule for a match: the same for the same. @param runId null: for good */
export function ruleIdOf(
  { tool, workspace }: Pick<RuleSubject, "tool" | "workspace">,
  match: RuleMatch,
  runId: string | null,
): string {
  // The id of a rule for an exact call is made as earlier versions made it
  const about = match.kind === "call" && match.access === undefined ? { input: match.inputDigest } : { match };
  return `rule_${canonicalDigest({ tool, workspace, ...about, run: runId }).slice(0, 32)}`;
}

/** The parts of a rule that its sentence names. */
export interface RuleSentence {
  readonly tool: string;
  readonly workspace: string;
  readonly match: RuleMatch;
  /** Input of the call that was asked about; known secrets masked */
  readonly input: unknown;
  readonly decision: "approve" | "deny";
  /** null: for good */
  readonly runId: string | null;
}

/** Returns a rule as a sentence: the exact text a person agrees to. */
export function ruleText({ tool, workspace, match, input, decision, runId }: RuleSentence): string {
  const verb = decision === "approve" ? "Allow" : "Deny";
  const inRun = runId === null ? "" : ` in run ${runId}`;
  const head = `${verb} ${quoted(tool)} in ${quoted(workspace)}${inRun}`;
  switch (match.kind) {
    case "call": {
      const json = exactLine(JSON.stringify(input) ?? "null");
      const digest = match.inputDigest;
      return `${head} with exactly the input ${cutText(json, { limit: MAX_INPUT_SHOWN, digest })}${withNetwork(match)}`;
    }
    case "folder":
      return `${head}${withOp(match.op)} on whatever it changes in the folder ${quoted(match.folder)} and below, ` +
        "with any content";
    case "command": {
      const [name, first] = match.command;
      return `${head}${withOp(match.op)} to run ${quoted(name)} with the first argument ${quoted(first)}, ` +
        `whatever arguments follow${
          isTaskRunner(name) ? " that are no options of its own" : ""
        }, and whatever the files it names then hold${withNetwork(match)}`;
    }
  }
}

function withNetwork({ access }: { readonly access?: Access }): string {
  return access === "network" ? ", with a way to the hosts that [url_access] domain_allowlist then names" : "";
}

function withOp(op: string | null): string {
  return op === null ? "" : ` with op ${quoted(op)}`;
}

function quoted(text: string): string {
  return exactLine(JSON.stringify(text));
}

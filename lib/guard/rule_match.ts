import { dirname } from "node:path";
import { canonicalDigest } from "../base/json.ts";
import { cutText, exactLine } from "../base/text.ts";
import type { Access } from "./policy.ts";
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
}

/** Properties of a call that rules for more than one input compare. */
export interface WiderSubject {
  /** Field `op` of the input; null where it has none */
  readonly op: string | null;
  readonly access: Access;
  /** Deepest folder that holds all the call changes, links resolved. Absolute; undefined: the call changes no files */
  readonly folder: string | undefined;
  /** Words of the command; undefined: the call runs none */
  readonly command: readonly string[] | undefined;
}

/** Calls that a rule stands for: one exact call, a tool's changes in a folder, or a command with its first argument. */
export type RuleMatch =
  | {
    readonly kind: "call";
    readonly inputDigest: string;
    /** Set for a command that reaches the network */
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
/** Folders above one another that a rule is looked for in */
const MAX_DEPTH = 256;
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

/** Returns every rule that could decide this call: those that are offered, and those of the folders above. */
export function matchesOf(subject: RuleSubject): readonly RuleMatch[] {
  const { wider } = subject;
  const above: RuleMatch[] = [];
  if (wider?.folder !== undefined) {
    let folder = wider.folder;
    for (let depth = 0; depth < MAX_DEPTH && dirname(folder) !== folder; depth++) {
      folder = dirname(folder);
      above.push(folderMatch(wider, folder));
    }
  }
  return [...offeredMatches(subject), ...above];
}

/**
 * Returns the rules that can deny this call and not allow it: those of the same command without a network, and with other arguments than
 * are understood. Somebody who denied it for good would deny it with them too.
 */
export function denyingMatchesOf(subject: RuleSubject): readonly RuleMatch[] {
  const { wider, reachesNetwork } = subject;
  if (wider === undefined) return reachesNetwork ? matchesOf({ ...subject, reachesNetwork: false }) : [];
  if (!reachesNetwork) return anyCommandMatches(wider);
  const without = { ...wider, access: "write" } as const;
  return [
    ...anyCommandMatches(wider),
    ...anyCommandMatches(without),
    ...matchesOf({ ...subject, reachesNetwork: false, wider: without }),
  ];
}

function folderMatch({ op, access }: WiderSubject, folder: string): RuleMatch {
  return { kind: "folder", op, access, folder };
}

/** Returns no match for a command whose arguments are not understood, as those of `env`, `find` or `npx`. */
function commandMatches(wider: WiderSubject): readonly RuleMatch[] {
  return isUnderstood(wider.command ?? []) ? anyCommandMatches(wider) : [];
}

function anyCommandMatches({ op, access, command = [] }: WiderSubject): readonly RuleMatch[] {
  const [name, first] = command;
  if (name === undefined || first === undefined || first === "" || first.length > MAX_WORD) return [];
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

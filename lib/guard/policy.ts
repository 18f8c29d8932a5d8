import { resolve } from "node:path";
import { BUILT_IN_FORBIDDEN_PATHS } from "../base/built_in_forbidden_paths.ts";
import type { CommandLineParts } from "../base/parse_command_line.ts";
import type { Approval } from "../base/records/approval.ts";
import type { Taint } from "../base/taint.ts";
import { createForbiddenBy, expandForbidden } from "../system/files/forbidden_paths.ts";
import { placeRedirections } from "../system/process/placed_parts.ts";
import {
  ANSWERS,
  type CallPart,
  compileRules,
  type RuleAnswer,
  type RuleSettings,
  settle,
  UNKNOWN_WORD,
} from "./rules.ts";

import { isFreeBeside } from "./understood_commands.ts";

/** The widest change that a call may make. `state` is the agent's own records in the data directory. */
export type Access = Approval["access"];

/** The paths, addresses and command that a call is about to touch, for the policy, the approval and the audit. */
export interface Effects {
  /** As the tool was given them, relative to `root` */
  readonly paths?: readonly string[];
  /** Tool whose `allowed_root` the paths are relative to. Default: the workspace itself */
  readonly root?: "read_file" | "write_file";
  readonly urls?: readonly string[];
  readonly command?: readonly string[];
  /** Parts of the command line that the command has bash run. Each of them counts. Default: the command is one program with its arguments */
  readonly line?: CommandLineParts;
  /** Sites that a person signed the call's browser in at */
  readonly logins?: readonly string[];
  /** Task of a person before the call goes on, in the model's words. Such a call always asks */
  readonly handoff?: string;
}

/** A rule that was looked at, with its answer. `pass`: the rule does not apply to this call. */
export interface RuleStep {
  /** As `always_ask:shell` or `level:read_only/write` */
  readonly rule: string;
  readonly says: RuleAnswer | "pass";
}

/** Decision of the policy about one call, with its reason. */
export interface Decision {
  readonly kind: RuleAnswer;
  /** A sentence with the smallest change that flips the decision */
  readonly reason: string;
  /** The rule that decided, the last of `path` that does not pass */
  readonly rule: string;
  /** Every rule that was looked at, in order */
  readonly path: readonly RuleStep[];
  /**
   * The smallest change of the configuration that flips the decision: a deny into an ask or an allow, an ask into an allow, an
   * allow into an ask. Each is one edit, such as `add "shell" to [autonomy] auto_approve`, and all of them together are needed.
   * Empty when no configuration flips it.
   */
  readonly change: readonly string[];
}

/** The rule that asks because the run has read content from outside. */
export const RULE_OUTSIDE_CONTENT = "outside_content";

/**
 * Tells whether a rule asks each time, by a written rule, `always_ask`, after content from outside, for a step of a procedure, to hand a page
 * over or for the server of a tool. Such an answer counts for one call alone.
 */
export function asksAlways(rule: string): boolean {
  return ["rule:", "always_ask:", "sop:", HANDOFF, ELICITATION].some((prefix) => rule.startsWith(prefix)) ||
    rule === RULE_OUTSIDE_CONTENT;
}

/** Begin of the rule of a command line that `auto_approve` does not cover. */
export const UNJUDGED = "unjudged_line:";

/** Begin of the rule of a call that a person does a part of. */
export const HANDOFF = "handoff:";

/** Begin of the rule of an elicitation, before the name of its server. */
export const ELICITATION = "elicitation:";

/** Tells whether a call changes the files that its effects name: a write does, and a download that goes to a file. */
export function changesFiles(call: Pick<DecideInput, "access" | "effects">): boolean {
  return accessesOf(call).includes("write");
}

/**
 * Returns every access that a call needs, the widest last. A command that reaches the network can change files and run programs as well,
 * and a download changes a file: each of the two must be allowed.
 */
export function accessesOf({ access, effects }: Pick<DecideInput, "access" | "effects">): readonly Access[] {
  const writesToo = effects.command !== undefined || effects.root === "write_file";
  return access === "network" && writesToo ? ["write", "network"] : [access];
}

/** Effect of each access, as the verb of a sentence. */
export const DOES: Readonly<Record<Access, string>> = {
  read: "only reads",
  state: "changes the agent's own records",
  write: "can change files or run programs",
  network: "reaches the network",
};

/** Levels of `[autonomy] level`, from the narrowest on. */
export const LEVELS = ["read_only", "supervised", "full"] as const;
/** A level of autonomy. */
export type Level = (typeof LEVELS)[number];

/** Answer of each level to each access, before lists and forbidden paths (docs/design/policy.md "Autonomy"). */
export const LEVEL_TABLE: Readonly<Record<Level, Readonly<Record<Access, RuleAnswer>>>> = {
  read_only: { read: "allow", state: "deny", write: "deny", network: "deny" },
  supervised: { read: "allow", state: "allow", write: "ask", network: "ask" },
  full: { read: "allow", state: "allow", write: "allow", network: "allow" },
};

/** Reads a level without case, `-` and `_`: `ReadOnly` is `read_only`. undefined for any other text. */
export function parseLevel(text: string): Level | undefined {
  const plain = text.toLowerCase().replace(/[-_]/g, "");
  return LEVELS.find((level) => level.replace("_", "") === plain);
}

/** The part of `[autonomy]` that decides. The lists hold names of tools. */
export interface AutonomyRules extends RuleSettings {
  /** read_only, supervised or full, read without case, `-` and `_` */
  readonly level: string;
  readonly forbidden_paths: readonly string[];
  /** Empty: `ask`, except at level `full` */
  readonly after_outside_content: "" | "ask" | "allow";
}

/** Where the call would happen. All paths are absolute. */
export interface DecideWorkspace {
  readonly root: string;
  /** The folder that the call's paths are relative to */
  readonly fileRoot: string;
  readonly home: string;
  /** Postern's own data directory and configuration file */
  readonly ownPaths: readonly string[];
}

/** A call with the rules and places that decide about it. */
export interface DecideInput {
  readonly tool: string;
  /** Access of this call, computed by the tool */
  readonly access: Access;
  readonly effects: Effects;
  /** Field `op` of the input. Default: it has none */
  readonly op?: string | null | undefined;
  /** Edit that turns the tool on, such as `set [security.write_file] enabled = true`. Undefined when it is on */
  readonly offUntil: string | undefined;
  /** Words that stand for that edit in a reason, as the command that makes it. Default: the edit */
  readonly offWay?: string | undefined;
  readonly autonomy: AutonomyRules;
  readonly workspace: DecideWorkspace;
  /** Outside content that the run has read */
  readonly taint: Taint;
  /** True for a change of records that carries the taint to whoever reads them, or that asks a person anyway. Default false */
  readonly carriesTaint?: boolean | undefined;
  /** True when the run has read each address of the call, letter by letter. Default false */
  readonly hasReadUrls?: boolean | undefined;
  /** Paths that words of its commands may name, which rules that deny or ask go by. Default: none */
  readonly named?: readonly Required<Pick<CallPart, "command" | "path" | "named">>[] | undefined;
}

/**
 * Decides whether a call may run, and says why. Pure: no disk, no clock.
 *
 * A tool that is off is denied, then forbidden paths count, then the level. Then the list of rules, in which any deny wins, else any ask,
 * else any allow: an allow turns the level's ask into an allow, unless content from outside asks. Nothing beats a deny. An unknown level
 * denies everything.
 * Source: docs/design/policy.md "Autonomy"
 */
export function decide(input: DecideInput): Decision {
  const verdicts = settleParts(input);
  const denyRules = denyRulesFor(input, verdicts);
  return denied(input.tool, denyRules) ?? decideByLevel(input, { denyRules, verdicts });
}

/** Returns the denial, or undefined when no rule denies. All rules that deny must be lifted, so all of their edits are named at once. */
function denied(tool: string, denyRules: readonly DenyRule[]): Decision | undefined {
  const standing = denyRules.filter(denies);
  const [first] = standing;
  if (first === undefined) return undefined;
  const lasting = standing.find(({ change }) => change.length === 0);
  const change = lasting === undefined ? standing.flatMap((denyRule) => denyRule.change) : [];
  return {
    kind: "deny",
    reason: `Cannot call "${tool}": ${first.reason}; ${
      lasting?.wayOut ?? toSentence(standing.flatMap(({ says, change }) => says ?? change))
    }`,
    rule: first.rule,
    path: [...denyRules.slice(0, denyRules.indexOf(first)).map(toPass), { rule: first.rule, says: "deny" }],
    change,
  };
}

function decideByLevel(
  input: DecideInput,
  { denyRules, verdicts }: { readonly denyRules: readonly DenyRule[]; readonly verdicts: Verdicts },
): Decision {
  const { tool, access, effects, autonomy } = input;
  // An unknown level is denied by a rule, and no rule denied
  const level = parseLevel(autonomy.level) as Level;
  const accesses = accessesOf({ access, effects });
  const says = strictest(accesses.map((each) => LEVEL_TABLE[level][each]));
  const does = `${effectOf(accesses)}${signedIn(effects)}`;
  const isAfterOutside = asksAfterOutside(input, level);
  const [asking] = verdicts.filter(({ settled }) => settled?.then === "ask");
  const allowing = verdicts.find(({ isAllowed }) => isAllowed);
  const missing = verdicts.filter((each) =>
    !each.isAllowed && each.part.named === undefined && !(allowing !== undefined && isFree(each, effects))
  ).map(({ part }) => part.tool);
  const rule = `level:${level}/${access}`;
  const path: readonly RuleStep[] = [...denyRules.filter(({ rule }) => rule !== RULE_LEVEL).map(toPass), {
    rule,
    says,
  }];
  const approve = says === "ask" ? [...new Set(missing)].map((name) => `add "${name}" to [autonomy] auto_approve`) : [];

  if (effects.handoff !== undefined) {
    const rule = `${HANDOFF}${tool}`;
    const reason = `Cannot go on with "${tool}" without a person, who is asked to: ${effects.handoff}`;
    return { kind: "ask", reason, rule, path: [...path, { rule, says: "ask" }], change: [] };
  }
  if (asking?.settled !== undefined) {
    const [{ id: rule } = { id: "" }] = asking.settled.by;
    const allow = isAfterOutside ? [ALLOW_OUTSIDE] : [];
    const change = [...changesOf(verdicts, "ask"), ...approve, ...allow];
    const outside = isAfterOutside ? `, and ${readOutside(input)}` : "";
    const reason = toAsk(tool, `${reasonOf(asking, verdicts)}${signedIn(effects)}${outside}`, change);
    return { kind: "ask", reason, rule, path: [...path, { rule, says: "ask" }], change };
  }
  const listed: readonly RuleStep[] = [...path, { rule: "always_ask", says: "pass" }];
  if (isAfterOutside) {
    const change = [...approve, ALLOW_OUTSIDE];
    const what = FETCHING.has(tool) ? "nothing that it has read names this address" : `the call ${does}`;
    const why = `${readOutside(input)}, and ${what}`;
    const asked: RuleStep = { rule: RULE_OUTSIDE_CONTENT, says: "ask" };
    const elsewhere = says === "allow"
      ? `level "${level}" allows it`
      : allowing !== undefined && missing.length === 0 && whyUnjudged({ access, effects }) === undefined
      ? reasonOf(allowing, [allowing])
      : undefined;
    const narrow = elsewhere && `in a conversation without such content ${elsewhere}, or `;
    const reason = toAsk(tool, why, change, narrow);
    return { kind: "ask", reason, rule: asked.rule, path: [...listed, asked], change };
  }
  const unlisted: readonly RuleStep[] = [...listed, { rule: RULE_OUTSIDE_CONTENT, says: "pass" }];
  if (says === "allow") {
    const change = [`add "${tool}" to [autonomy] always_ask`];
    const reason = toAllow(tool, `it ${does}, which level "${level}" allows`, change);
    return { kind: "allow", reason, rule, path: unlisted, change };
  }
  const isApproved = missing.length === 0;
  const unjudged = isApproved ? whyUnjudged({ access, effects }) : undefined;
  if (unjudged !== undefined) {
    const rule = `${UNJUDGED}${tool}`;
    const { why, change, wayOut } = unjudged;
    const reason = `Cannot call "${tool}" without approval: ${why}; ${wayOut}`;
    return { kind: "ask", reason, rule, path: [...unlisted, { rule, says: "ask" }], change };
  }
  if (isApproved && allowing?.settled !== undefined) {
    const [{ id: rule } = { id: "" }] = allowing.settled.by;
    const change = allowing.settled.by.map((each) => each.change);
    const reason = toAllow(tool, `${reasonOf(allowing, [allowing])}${signedIn(effects)}`, change);
    return { kind: "allow", reason, rule, path: [...unlisted, { rule, says: "allow" }], change };
  }
  const reason = toAsk(tool, `it ${does}, which level "${level}" asks about`, approve);
  return { kind: "ask", reason, rule, path: [...unlisted, { rule: "auto_approve", says: "pass" }], change: approve };
}

/** Returns why a command line of bash asks though its tool is approved. undefined: it does not, or the command is no such line. */
function whyUnjudged(
  { access, effects: { line } }: Pick<DecideInput, "access" | "effects">,
): { readonly why: string; readonly wayOut: string; readonly change: readonly string[] } | undefined {
  if (line?.asks !== undefined) {
    const wayOut = "written in plainer parts it runs without asking";
    return { why: `nobody can tell what its command line runs: ${line.asks}`, wayOut, change: [] };
  }
  if (line === undefined || access !== "network") return undefined;
  const change = ['set [security.shell] network = "none"'];
  return {
    why: "its command line reaches the network",
    wayOut: `${toSentence(change)} to let it run without asking`,
    change,
  };
}

/**
 * Tools that reach the network and ask no more than before after content from outside: they bring more of it, and send little. An address
 * that the model made up could carry anything to its server, so it must stand in what the run has read.
 */
const FETCHING: ReadonlySet<string> = new Set(["web_fetch", "web_search"]);
const ALLOW_OUTSIDE = 'set [autonomy] after_outside_content = "allow"';

function readOutside({ taint }: Pick<DecideInput, "taint">): string {
  return `the run has read content from outside (${taint.join(", ")})`;
}

/**
 * Tells whether a call asks because its run has read content from outside, which may have told the model what to do. Where the key is
 * not set, level `full` does not ask.
 */
function asksAfterOutside(input: DecideInput, level: Level): boolean {
  const { tool, access } = input;
  if (!mindsOutside(input, level)) return false;
  switch (access) {
    case "read":
      return false;
    case "state":
      // A later run would obey records that outside content wrote, and nobody gets back those that it deleted
      return input.carriesTaint !== true;
    case "write":
      return true;
    case "network":
      return !FETCHING.has(tool) || input.hasReadUrls !== true;
  }
}

/** The tool that the lists name for writing files. */
const WRITING = "write_file";

/**
 * Returns the tools that the lists must name for a call: its own, and `write_file` for a download that goes to a file. A command is named
 * by its own tool alone, since who starts commands may write files anyway.
 */
function namesOf(call: Pick<DecideInput, "tool" | "access" | "effects">): readonly string[] {
  const isSaved = call.effects.command === undefined && accessesOf(call).length > 1;
  return isSaved ? [call.tool, WRITING] : [call.tool];
}

/** Part of a call, with what the list of rules says of it. */
interface Verdict {
  readonly part: CallPart;
  readonly settled: ReturnType<typeof settle>;
  /** True when a rule allows the part, be it that another one asks about it */
  readonly isAllowed: boolean;
}

/** Verdicts on the parts of a call, which has at least the part of its own tool. */
type Verdicts = readonly [Verdict, ...Verdict[]];

function settleParts(input: DecideInput): Verdicts {
  const { tool, op = null, named = [], autonomy, workspace: { root, home } } = input;
  const rules = compileRules(autonomy, { root, home });
  const further = named.map((part): CallPart => ({ tool, op, host: undefined, ...part }));
  return [...partsOf(input), ...further].map((part) => ({
    part,
    settled: settle(rules, part),
    isAllowed: rules.some(({ then, covers }) => then === "allow" && covers(part)),
  })) as [Verdict, ...Verdict[]]; // a part of its own tool is among them
}

/** Tells whether a part of a line writes no file and is free beside what the line runs, such as `cd` or `echo`. */
function isFree({ part: { command = [], redirects } }: Verdict, { line }: Effects): boolean {
  return line !== undefined && redirects !== "to" &&
    isFreeBeside(command, line.parts.map(({ words }) => words.map((word) => word ?? UNKNOWN_WORD)));
}

/** Returns the parts of a call: each of its commands with each file and each address. A file that a download goes to is a part of its own. */
export function partsOf(
  { tool, access, effects, op = null, workspace }: Pick<DecideInput, "tool" | "access" | "effects" | "op"> & {
    readonly workspace: Pick<DecideWorkspace, "fileRoot">;
  },
): readonly CallPart[] {
  const paths = anyOf(effects.paths?.map((path) => resolve(workspace.fileRoot, path)));
  const hosts = anyOf(effects.urls?.map((url) => URL.parse(url)?.hostname ?? ""));
  const own = { tool, op, command: effects.command };
  if (effects.line !== undefined) {
    return linePartsOf(effects.line, workspace.fileRoot).map((part) => ({ ...own, ...part }));
  }
  return namesOf({ tool, access, effects }).flatMap((name) =>
    (name === tool ? hosts : [undefined]).flatMap((host) =>
      paths.map((path): CallPart => ({ ...own, tool: name, path, host }))
    )
  );
}

/** Programs that add what they read to the words of another one. */
const FED = /^(?:.*\/)?(?:xargs|parallel)$/s;

type LinePart = Pick<CallPart, "command" | "path" | "host" | "redirects">;

/** Returns the commands of a line of bash, once for each file that they are redirected from or to. One more stands for what is not understood. */
function linePartsOf(
  line: CommandLineParts,
  folder: string,
): readonly LinePart[] {
  const placed = placeRedirections(line, folder);
  const known = line.parts.flatMap(({ words }, index): readonly LinePart[] => {
    const known = words.map((word) => word ?? UNKNOWN_WORD);
    const command = known.some((word) => FED.test(word)) ? [...known, UNKNOWN_WORD] : known;
    const files = placed[index] ?? [];
    const plain = { command, path: undefined, host: undefined };
    if (files.length === 0) return [plain];
    return files.map(({ path, writes }) => ({
      ...plain,
      path: path && resolve(path),
      redirects: writes ? "to" : "from",
    }));
  });
  const unread: LinePart = { command: [UNKNOWN_WORD], path: undefined, host: undefined, redirects: "to" };
  return line.asks === undefined && known.length > 0 ? known : [...known, unread];
}

/** Returns the items, or the lack of one. */
function anyOf<T>(items: readonly T[] = []): readonly (T | undefined)[] {
  return items.length === 0 ? [undefined] : [...new Set(items)];
}

/** Returns the edits that take away every rule with this answer. */
function changesOf(verdicts: readonly Verdict[], then: RuleAnswer): readonly string[] {
  const by = verdicts.flatMap(({ settled }) => settled?.then === then ? settled.by : []);
  return [...new Set(by.map(({ change }) => change))];
}

/** Returns why the list says so of a part, which is named where the call has others. */
function reasonOf({ part, settled }: Verdict, verdicts: readonly Verdict[]): string {
  const reason = settled?.by[0]?.reason ?? "";
  if (part.command !== undefined && verdicts.length > 1) {
    const words = part.command.map((word) => word === UNKNOWN_WORD ? "..." : word).join(" ");
    return reason.replace(/it$/, JSON.stringify(words.slice(0, MAX_PATH_SHOWN)));
  }
  if (part.tool === verdicts[0]?.part.tool) return reason;
  return `${reason.replace(/it$/, JSON.stringify(part.tool))}, and the call writes a file`;
}

function mindsOutside({ autonomy, taint }: Pick<DecideInput, "autonomy" | "taint">, level: Level): boolean {
  const { after_outside_content: after } = autonomy;
  return taint.length > 0 && after !== "allow" && (after !== "" || level !== "full");
}

/**
 * Returns why a call that only reads may not look a name up, as a sentence part: the look-up tells the name's server of it, so it is a way
 * out for whatever the model puts into a name. undefined when it may.
 */
export function noLookupReason(run: Pick<DecideInput, "autonomy" | "taint">): string | undefined {
  const level = parseLevel(run.autonomy.level);
  if (level === undefined || level === "read_only") {
    return "the host was not looked up, since the level lets nothing reach the network";
  }
  if (!mindsOutside(run, level)) return undefined;
  return "the host was not looked up, since the run has read content from outside and a look-up tells the name's server of it";
}

/** Returns the effect of a call with these accesses, as the verb of a sentence. */
function effectOf(accesses: readonly Access[]): string {
  return accesses.map((each) => DOES[each]).join(" and ");
}

/** Says where a person signed the browser of a call in, as the end of a sentence part; empty where nobody has. */
function signedIn({ logins = [] }: Effects): string {
  return logins.length === 0 ? "" : `, in a browser that is signed in at ${logins.map(shown).join(", ")}`;
}

function strictest(answers: readonly RuleAnswer[]): RuleAnswer {
  return ANSWERS.find((answer) => answers.includes(answer)) ?? "allow";
}

function toPass({ rule }: DenyRule): RuleStep {
  return { rule, says: "pass" };
}

/** Returns the reason of a question. @param narrow way beside the edits, with the `or` between them. Default: none */
function toAsk(tool: string, why: string, change: readonly string[], narrow = ""): string {
  return `Cannot call "${tool}" without approval: ${why}; ${narrow}${toSentence(change)} to allow it without asking`;
}

function toAllow(tool: string, why: string, change: readonly string[]): string {
  return `Can call "${tool}" without asking: ${why}; ${toSentence(change)} to be asked first`;
}

function toSentence(change: readonly string[]): string {
  return change.join(" and ");
}

/** The rule of a tool that is off. */
export const RULE_ENABLED = "enabled";
/** The rule of a level that does not deny. */
export const RULE_LEVEL = "level";

/** Longer paths are shortened in a sentence */
const MAX_PATH_SHOWN = 200;

/** A rule that can deny a call whatever the lists say. */
interface DenyRule {
  /** Reason of the denial. Undefined when the rule does not deny */
  readonly reason: string | undefined;
  readonly rule: string;
  /** Edits that lift the denial. Empty where no configuration does */
  readonly change: readonly string[];
  /** Words for the edits in a reason. Default: the edits */
  readonly says?: string | undefined;
  /** The way out where no edit helps. Undefined where an edit does */
  readonly wayOut?: string;
}

/** Returns the deny rules for this call, in the order in which they count. A rule that denies has a reason. Pure: no disk, no clock. */
function denyRulesFor(input: DecideInput, verdicts: Verdicts): readonly DenyRule[] {
  const written = input.autonomy.rules.length === 0 ? [] : [writtenRule(verdicts)];
  return [offRule(input), forbiddenPathRule(input), levelRule(input), ...written];
}

/** Tells whether a deny rule denies this call. */
function denies({ reason }: DenyRule): boolean {
  return reason !== undefined;
}

function offRule({ offUntil, offWay }: DecideInput): DenyRule {
  if (offUntil === undefined) return passing(RULE_ENABLED);
  return { reason: "it is off", rule: RULE_ENABLED, change: [offUntil], says: offWay };
}

function levelRule({ access, effects, autonomy }: DecideInput): DenyRule {
  const level = parseLevel(autonomy.level);
  const accesses = accessesOf({ access, effects });
  const isDenied = (each: Level) => accesses.some((one) => LEVEL_TABLE[each][one] === "deny");
  if (level !== undefined && !isDenied(level)) return passing(RULE_LEVEL);
  // There is one: the widest level allows everything
  const wider = LEVELS.find((each) => !isDenied(each)) as Level;
  return {
    reason: level === undefined
      ? `"${autonomy.level}" is no level, which are read_only, supervised and full`
      : `it ${effectOf(accesses)}, which level "${level}" never allows`,
    rule: level === undefined ? "level:unknown" : `level:${level}/${access}`,
    change: [`set [autonomy] level = "${wider}"`],
  };
}

function writtenRule(verdicts: Verdicts): DenyRule {
  const denying = verdicts.find(({ settled }) => settled?.then === "deny");
  const [first] = denying?.settled?.by ?? [];
  if (denying === undefined || first === undefined) return passing("rules");
  return { reason: reasonOf(denying, verdicts), rule: first.id, change: changesOf(verdicts, "deny") };
}

function forbiddenPathRule({ effects, autonomy, workspace }: DecideInput): DenyRule {
  const rule = "forbidden_path";
  const paths = (effects.paths ?? []).map((path) => ({ given: path, full: resolve(workspace.fileRoot, path) }));
  if (paths.length === 0) return passing(rule);
  const { root: workspaceRoot, home } = workspace;
  const expand = (path: string) => expandForbidden(path, { home, workspaceRoot });
  const fixed = [...BUILT_IN_FORBIDDEN_PATHS.map(expand), ...workspace.ownPaths];
  const chosen = [...new Set(autonomy.forbidden_paths)].map((name) => ({ name, path: expand(name) }));
  const firstHit = (forbidden: readonly string[]) => {
    const forbiddenBy = createForbiddenBy({ workspaceRoot, forbidden });
    for (const { given, full } of paths) {
      const by = forbiddenBy(full);
      if (by !== undefined) return { given, by };
    }
    return undefined;
  };
  const hit = firstHit([...fixed, ...chosen.map(({ path }) => path)]);
  if (hit === undefined) return passing(rule);
  const reason = `${shown(hit.given)} lies in the forbidden path "${hit.by}"`;
  const found = { reason, rule: `${rule}:${hit.by}` };
  const lasting = firstHit(fixed);
  if (lasting !== undefined) {
    const wayOut = workspace.ownPaths.includes(lasting.by)
      ? `no setting opens "${lasting.by}" to tools: it is Postern's own`
      : `no setting opens "${lasting.by}" to tools, except where the workspace itself lies in it`;
    return { ...found, change: [], wayOut };
  }
  // Each of the user's entries that denies a path by itself
  const removed = chosen.filter(({ path }) => firstHit([path]) !== undefined).map(({ name }) => name);
  return { ...found, change: removed.map((name) => `remove "${name}" from [autonomy] forbidden_paths`) };
}

function passing(rule: string): DenyRule {
  return { reason: undefined, rule, change: [] };
}

function shown(path: string): string {
  return JSON.stringify(path.length > MAX_PATH_SHOWN ? `${path.slice(0, MAX_PATH_SHOWN)}...` : path);
}

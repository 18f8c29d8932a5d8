import { type Barrier, barriersTo, RULE_LEVEL, stands } from "./barriers.ts";
import type { DecideInput } from "./decide_input.ts";
import { type Decision, DOES, type RuleStep } from "./decision.ts";
import { type Level, LEVEL_TABLE, parseLevel } from "./level.ts";

/** Short names for three tools, accepted in the lists; an edit names what the list says. */
const ALIASES: Readonly<Record<string, string>> = {
  glob: "glob_search",
  search: "content_search",
  memory_read: "memory_recall",
};

/**
 * Whether a call may run, and why. Pure: no disk, no clock.
 *
 * A tool that is off is denied, then forbidden paths count, then the level; `auto_approve` turns an ask into an allow,
 * `always_ask` an allow into an ask and wins; nothing beats a deny. An unknown level denies everything.
 * Source: docs/design/policy.md "Autonomy"
 */
export function decide(input: DecideInput): Decision {
  const barriers = barriersTo(input);
  return denied(input.tool, barriers) ?? decideByLevel(input, barriers);
}

/** undefined when no barrier stands. All that stand must be lifted, so all of their edits are named at once. */
function denied(tool: string, barriers: readonly Barrier[]): Decision | undefined {
  const standing = barriers.filter(stands);
  const [first] = standing;
  if (first === undefined) return undefined;
  const lasting = standing.find(({ change }) => change.length === 0);
  const change = lasting === undefined ? standing.flatMap((barrier) => barrier.change) : [];
  return {
    kind: "deny",
    reason: `Cannot call "${tool}": ${first.reason}; ${lasting?.wayOut ?? toSentence(change)}`,
    rule: first.rule,
    path: [...barriers.slice(0, barriers.indexOf(first)).map(toPass), { rule: first.rule, says: "deny" }],
    change,
  };
}

function decideByLevel({ tool, access, autonomy }: DecideInput, barriers: readonly Barrier[]): Decision {
  // An unknown level is a barrier, and none stands
  const level = parseLevel(autonomy.level) as Level;
  const says = LEVEL_TABLE[level][access];
  const asking = named(autonomy.always_ask, tool);
  const approving = named(autonomy.auto_approve, tool);
  const rule = `level:${level}/${access}`;
  const path: readonly RuleStep[] = [...barriers.filter(({ rule }) => rule !== RULE_LEVEL).map(toPass), { rule, says }];
  const approve = says === "ask" && approving.length === 0 ? [`add "${tool}" to [autonomy] auto_approve`] : [];

  if (asking.length > 0) {
    const rule = `always_ask:${tool}`;
    const change = [...remove(asking, "always_ask"), ...approve];
    const reason = toAsk(tool, "[autonomy] always_ask names it", change);
    return { kind: "ask", reason, rule, path: [...path, { rule, says: "ask" }], change };
  }
  const unlisted: readonly RuleStep[] = [...path, { rule: "always_ask", says: "pass" }];
  if (says === "allow") {
    const change = [`add "${tool}" to [autonomy] always_ask`];
    const reason = toAllow(tool, `it ${DOES[access]}, which level "${level}" allows`, change);
    return { kind: "allow", reason, rule, path: unlisted, change };
  }
  if (approving.length > 0) {
    const rule = `auto_approve:${tool}`;
    const change = remove(approving, "auto_approve");
    const reason = toAllow(tool, "[autonomy] auto_approve names it", change);
    return { kind: "allow", reason, rule, path: [...unlisted, { rule, says: "allow" }], change };
  }
  const reason = toAsk(tool, `it ${DOES[access]}, which level "${level}" asks about`, approve);
  return { kind: "ask", reason, rule, path: [...unlisted, { rule: "auto_approve", says: "pass" }], change: approve };
}

function toPass({ rule }: Barrier): RuleStep {
  return { rule, says: "pass" };
}

function toAsk(tool: string, why: string, change: readonly string[]): string {
  return `Cannot call "${tool}" without approval: ${why}; ${toSentence(change)} to allow it without asking`;
}

function toAllow(tool: string, why: string, change: readonly string[]): string {
  return `Can call "${tool}" without asking: ${why}; ${toSentence(change)} to be asked first`;
}

function remove(names: readonly string[], list: string): readonly string[] {
  return names.map((name) => `remove "${name}" from [autonomy] ${list}`);
}

function toSentence(change: readonly string[]): string {
  return change.join(" and ");
}

/** The entries of a list that mean this tool. */
function named(names: readonly string[], tool: string): readonly string[] {
  return [...new Set(names)].filter((name) => name === tool || ALIASES[name] === tool);
}

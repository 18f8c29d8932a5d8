import type { Config } from "./config.ts";
import { isTable } from "./schema_keys.ts";
import type { KeyPath, RawTable } from "./toml.ts";

type WrittenRule = Config["autonomy"]["rules"][number];

/** Begin of the name of a rule that is in the workspace's own file. */
export const WORKSPACE_RULE = "workspace/";

/**
 * Returns the lists of rules of all layers as one: a rule takes the place of one of an earlier layer with its name.
 * @returns undefined where no layer has any, or where one has something else than a list, which the schema refuses
 */
export function joinRules(layers: readonly RawTable[]): readonly unknown[] | undefined {
  const given = layers.map(rulesOf).filter((list) => list !== undefined);
  const lists: readonly (readonly unknown[])[] = given.filter((list) => Array.isArray(list));
  if (lists.length === 0 || lists.length < given.length) return undefined;
  return lists.reduce((joined, list) => {
    const names = new Set(list.map(nameOf));
    return [...joined.filter((rule) => !names.has(nameOf(rule))), ...list];
  });
}

/** Returns the value of `autonomy.rules` in a layer. */
export function rulesOf({ autonomy }: RawTable): unknown {
  return isTable(autonomy) ? autonomy["rules"] : undefined;
}

function nameOf(rule: unknown): string | undefined {
  const name = isTable(rule) ? rule["name"] : undefined;
  return typeof name === "string" ? name : undefined;
}

/**
 * Finds rules of a workspace's own file that allow something: nothing that lies in a workspace widens what the agent may do.
 * @param rules as the file has them
 */
export function* wideningRules(rules: unknown): Iterable<RuleFinding> {
  for (const [index, rule] of Array.isArray(rules) ? rules.entries() : []) {
    if (!isTable(rule) || rule["then"] !== "allow") continue;
    const way = "write it to your own file, ~/.config/postern/postern.toml, or remember an answer";
    const reason = `a rule in a file of the workspace may only "ask" or "deny"; ${way} (rule "${nameOf(rule)}")`;
    yield { path: ["autonomy", "rules", index, "then"], reason };
  }
}

/** Something wrong with a written rule. `reason` goes on after `Cannot use "key" (place): `. */
interface RuleFinding {
  readonly path: KeyPath;
  readonly reason: string;
}

/** Finds written rules that can match nothing, or that allow too much. */
export function* ruleChecks(
  { autonomy: { rules }, security: { shell } }: Pick<Config, "autonomy" | "security">,
): Iterable<RuleFinding> {
  for (const [index, rule] of rules.entries()) {
    const about = (key: keyof WrittenRule, reason: string) => ({
      path: ["autonomy", "rules", index, key],
      reason: `${reason} (rule "${rule.name}")`,
    });
    if (rules.findIndex(({ name }) => name === rule.name) < index) yield about("name", "another rule has this name");
    // Object.entries knows names as texts alone
    for (
      const [key, check] of Object.entries(CHECKS) as readonly [
        keyof typeof CHECKS,
        (text: string) => string | undefined,
      ][]
    ) {
      const reason = rule[key] === "" ? undefined : check(rule[key]);
      if (reason !== undefined) yield about(key, reason);
    }
    // The sandbox bounds what a contained line does
    const wide = rule.then === "allow" && shell.syntax === "plain" ? tooWide(rule) : undefined;
    if (wide !== undefined) yield about(...wide);
  }
}

/** Returns why a pattern can match nothing, or says something else than it seems to. undefined for one that is fine. */
const CHECKS = {
  command: (text: string) =>
    text.trim() === "" || /[\p{Cc}]/u.test(text)
      ? 'it must be words with spaces between them, such as "git log *"'
      : undefined,
  path: (text: string) => {
    const names = text.split("/");
    if (names.includes("..")) return 'it must not have ".."; name a path outside the workspace from "/" or "~/" on';
    if (/[\\\p{Cc}]/u.test(text)) return 'it must have "/" between names, and no control characters';
    const odd = names.find((name) => name.includes("**") && name !== "**");
    return odd === undefined ? undefined : `"**" must be a name of its own, such as "docs/**", not "${odd}"`;
  },
  host: (text: string) =>
    /^(?:\*|(?:\*\.)?[^\s/:@?#*]+|\[[0-9a-fA-F:.]+\])$/.test(text)
      ? undefined
      : 'it must be a host without scheme, port and path, such as "example.org" or "*.example.org"',
};

/** Commands are what a plain shell bounds by its list of programs alone. */
const STARTS_COMMANDS: readonly string[] = ["shell", "process_tool"];

function tooWide({ tool, op, command, path, host }: WrittenRule): [keyof WrittenRule, string] | undefined {
  const starts = STARTS_COMMANDS.some((name) =>
    tool.endsWith("*") ? name.startsWith(tool.slice(0, -1)) : name === tool
  );
  if (!starts || path !== "" || host !== "" || (op !== "" && op !== "start")) return undefined;
  const way = 'it would allow every command; begin "command" with the program, such as "git log *"';
  if (command === "") return ["tool", way];
  const [program = ""] = command.trim().split(" ");
  return program.includes("*") ? ["command", way] : undefined;
}

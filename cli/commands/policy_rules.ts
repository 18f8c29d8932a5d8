import { join, resolve } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import * as v from "valibot";
import { exactLine } from "../../lib/base/text.ts";
import { readText } from "../../lib/config/find_config.ts";
import { locateKeys } from "../../lib/config/locate_keys.ts";
import { rulesOf, WORKSPACE_RULE } from "../../lib/config/rule_checks.ts";
import { parseToml } from "../../lib/config/toml.ts";
import { LEVEL_TABLE, parseLevel } from "../../lib/guard/policy.ts";
import type { WrittenRule } from "../../lib/guard/rules.ts";
import { launchersIn } from "../../lib/guard/understood_commands.ts";
import { CommandError, defineCliCommand, EXIT } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { printable, toTable, wrapText } from "../terminal/terminal_text.ts";
import { explainCall, loadRunning } from "./policy.ts";

const ORDER = "Any deny wins, else any ask, else an allow; where no rule speaks, the level decides.";

/** Command `postern policy list`: the one list that decides about calls, with where each entry comes from. */
export const policyListCommand = defineCliCommand({
  args: {},
  example: "postern policy list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { loaded: { config: { autonomy, tools }, file, sources, workspace } } = await loadRunning(context);
      const { data } = await gateway.call("GET /v1/approval-rules");
      const lines = new Map([
        ...await linesOf(join(workspace, "postern.toml"), WORKSPACE_RULE),
        ...file === undefined ? [] : await linesOf(file.path, ""),
      ]);
      const from = (key: string) => {
        const source = sources.get(key) ?? "default";
        return source === "file" ? `${file?.path} ${key}` : `${source} ${key}`;
      };
      const fromRule = (name: string) => {
        const key = `autonomy.rules.${name}`;
        return (["file", undefined].includes(sources.get(key)) ? lines.get(name) : undefined) ?? from(key);
      };
      // A configuration in use has a level of the table
      const levels = LEVEL_TABLE[parseLevel(autonomy.level) ?? "read_only"];
      const list = [
        ...autonomy.rules.map((rule) => [`rule:${rule.name}`, rule.then, describeRule(rule), fromRule(rule.name)]),
        ...autonomy.always_ask.map((name) => [`always_ask:${name}`, "ask", name, from("autonomy.always_ask")]),
        ...autonomy.auto_approve.map((name) => [`auto_approve:${name}`, "allow", name, from("autonomy.auto_approve")]),
        ...data.map(({ id, decision, text, created_at }) => [
          `remembered:${id}`,
          decision === "deny" ? "deny" : "allow",
          text,
          `an answer of ${created_at}`,
        ]),
        ...Object.entries(tools).flatMap(([name, { access }]) =>
          access === "" ? [] : [[`access:${name}`, levels[access], `counts as ${access}`, from(`tools.${name}.access`)]]
        ),
        ...Object.entries(levels).map(([access, says]) => [
          `level:${autonomy.level}/${access}`,
          says,
          "where no rule speaks",
          from("autonomy.level"),
        ]),
      ].map((cells) => cells.map(exactLine));
      const table = toTable(["RULE", "SAYS", "ABOUT", "FROM"], list, context.io.columns);
      context.print(
        list.map(([rule, says, about, place]) => ({ rule, says, about, from: place })),
        printable([table, "", ...wrapText(ORDER, context.io.columns)].join("\n")),
      );
      for (const { name, then, command } of autonomy.rules) {
        const [program = "", next] = command.split(" ");
        if (then !== "allow" || next?.startsWith("*") !== true || launchersIn([program]).length === 0) continue;
        const why = `allows every program, since "${program}" starts others: name more words before the "*"`;
        context.say(`Warning: the rule "${name}" ${why}`);
      }
    }),
});

/** Returns the tool and the patterns of a written rule in words. */
function describeRule({ tool, op, command, path, host }: WrittenRule): string {
  const patterns = Object.entries({ op, command, path, host }).filter(([, text]) => text !== "");
  return [tool, ...patterns.map(([key, text]) => `${key} ${JSON.stringify(text)}`)].join(" ");
}

/** Returns the place of each rule of a file by its name, such as `/home/me/postern.toml:12`. The configuration was just loaded from it. */
async function linesOf(path: string, prefix: string): Promise<readonly (readonly [name: string, place: string])[]> {
  const text = await readText(path) ?? "";
  const located = await locateKeys(text);
  // The file was just checked
  const rules = (rulesOf(parseToml(text, path)) ?? []) as readonly { readonly name: string }[];
  return rules.map(({ name }, index) =>
    [prefix + name, `${path}:${located?.lineOf(["autonomy", "rules", index])}`] as const
  );
}

const MAX_CALLS = 1_000;
const callsSchema = v.strictObject({
  calls: v.pipe(
    v.array(v.strictObject({
      tool: v.pipe(v.string(), v.nonEmpty()),
      input: v.optional(v.union([v.string(), v.record(v.string(), v.unknown())]), {}),
      /** Judges it as in a run that has read content from outside */
      outside: v.optional(v.boolean(), false),
      expect: v.picklist(["allow", "ask", "deny"]),
      /** Rule that is to decide, such as `rule:docs` */
      rule: v.optional(v.string()),
    })),
    v.minLength(1),
    v.maxLength(MAX_CALLS),
  ),
});

/**
 * Command `postern policy test <file>`: the decision about each call of a table, beside the one that is expected. Runs nothing.
 *
 * Exit code 1 where one differs.
 */
export const policyTestCommand = defineCliCommand({
  args: {
    file: {
      type: "positional",
      required: true,
      description: "TOML file with [[calls]]: tool, input, expect (allow, ask, deny), and perhaps outside and rule",
    },
  },
  example: "postern policy test policy_calls.toml",
  async run(context, { file }) {
    const path = resolve(context.io.cwd, file);
    const text = await readText(path);
    if (text === undefined) throw new CommandError(`Cannot read "${path}": there is no such file`);
    const parsed = v.safeParse(callsSchema, parseToml(text, path));
    if (!parsed.success) {
      const [{ message, path: at = [] }] = parsed.issues;
      throw new CommandError(`Cannot use "${path}": ${at.map(({ key }) => key).join(".") || "calls"}: ${message}`);
    }
    const results = [];
    for (const { tool, input, outside, expect, rule } of parsed.output.calls) {
      const given = typeof input === "string" ? input : JSON.stringify(input);
      const { judged } = await explainCall(context, { name: tool, text: given, outside });
      const { kind, rule: by, reason } = judged.kind === "judged"
        ? judged.decision
        : { kind: "deny" as const, rule: "bad_input", reason: messageOf(judged.error) };
      const ok = kind === expect && (rule === undefined || rule === by);
      results.push({ tool, input: given, outside, expect, decision: kind, rule: by, reason, ok });
    }
    const rows = results.map((call) => [
      ...[call.ok ? "ok" : "DIFFERS", call.tool, exactLine(call.input), call.expect, call.decision, call.rule],
    ]);
    const wrong = results.filter(({ ok }) => !ok);
    const count = `${results.length - wrong.length} of ${results.length} calls are decided as expected`;
    const table = toTable(["", "TOOL", "INPUT", "EXPECTED", "DECISION", "RULE"], rows, context.io.columns);
    const reasons = wrong.flatMap(({ reason }) => ["", reason]);
    context.print({ calls: results, ok: wrong.length === 0 }, printable([table, ...reasons, "", count].join("\n")));
    return wrong.length === 0 ? EXIT.ok : EXIT.failed;
  },
});

import { resolve } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { isInWorkspace, type LoadedConfig } from "../../lib/config/load_config.ts";
import { toTomlValue } from "../../lib/config/toml.ts";
import { partsOf } from "../../lib/guard/policy.ts";
import type { WrittenRule } from "../../lib/guard/rules.ts";
import { type QuestionedCall, suggestRules } from "../../lib/guard/suggest_rules.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { opOf, prepareUnder } from "../../lib/tools/runtime/tool_policy.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { editConfiguration } from "../edit_configuration.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { printable } from "../terminal/terminal_text.ts";
import { loadRunning } from "./policy.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const DAYS = 28;

/**
 * Command `postern policy suggest`: rules that would have saved questions of the last weeks which were answered with yes. Changes nothing
 * without --pick.
 */
export const policySuggestCommand = defineCliCommand({
  args: {
    pick: {
      type: "string",
      valueHint: "names",
      description: "Names or numbers of the rules to write to your configuration, as 1,3",
    },
  },
  example: "postern policy suggest",
  async run(context, { pick }) {
    const { loaded } = await loadRunning(context);
    let calls: readonly Approval[] = [];
    await withGateway(context, async (gateway) => {
      calls = (await approvalsOf(gateway)).filter(({ kind = "call" }) => kind === "call");
    });
    const since = new Date(systemClock.now() - DAYS * DAY_MS).toISOString();
    const approved = calls.filter(({ status, rule, workspace, created_at }) =>
      status === "approved" && rule.startsWith("level:") && workspace === loaded.workspace && created_at >= since
    );
    const denied = calls.filter(({ status }) => status === "denied");
    const [yes = [], no = []] = [approved, denied].map((all) => all.map((each) => answered(each, loaded)));
    const places = { root: loaded.workspace, home: context.io.home };
    const suggested = suggestRules({ approved: yes, denied: no }, { ...places, settings: loaded.config.autonomy });
    const picked = pick === undefined ? [] : readPick(pick, suggested.map(({ rule }) => rule));
    if (picked.length > 0) await write(context, loaded, picked);
    const added = picked.map(({ name }) => name);
    const blocks = suggested.map(({ rule, saves }, index) =>
      `# ${index + 1}: would have saved ${saves} questions\n${toBlock(rule)}`
    );
    const way = `postern policy suggest --pick ${suggested[0]?.rule.name} writes the first to your configuration`;
    const text = suggested.length === 0
      ? `No rule would have saved two of the ${approved.length} questions of ${DAYS} days that were answered with yes`
      : added.length > 0
      ? `Added ${added.join(", ")}`
      : [...blocks, way].join("\n");
    context.print({ suggested, added }, printable(text));
    return EXIT.ok;
  },
});

/** Reads every approval that is kept, newest first. */
async function approvalsOf(gateway: ReachedGateway): Promise<readonly Approval[]> {
  const approvals: Approval[] = [];
  for (let after: string | undefined, isMore = true; isMore;) {
    const page = await gateway.call("GET /v1/approvals", { query: { limit: 1000, after } });
    approvals.push(...page.data);
    isMore = page.has_more && page.data.length > 0;
    after = page.data.at(-1)?.id;
  }
  return approvals;
}

/** Returns an approval as a call. Its parts are not known where the tool is another's, or a secret in the input is masked. */
function answered({ tool: name, input }: Approval, { config, workspace }: LoadedConfig): QuestionedCall {
  const tool = BUILTIN_TOOLS.find((each) => each.name === name);
  const text = JSON.stringify(input) ?? "{}";
  if (tool === undefined || text.includes("[redacted]")) return { tool: name, parts: undefined };
  try {
    const { access, effects, input: read } = prepareUnder(tool, text, config);
    const root = effects.root === undefined ? "." : config.security[effects.root].allowed_root;
    const places = { fileRoot: resolve(workspace, root) };
    return { tool: name, parts: partsOf({ tool: name, access, effects, op: opOf(read), workspace: places }) };
  } catch {
    // An input of an earlier version
    return { tool: name, parts: undefined };
  }
}

function readPick(text: string, rules: readonly WrittenRule[]): readonly WrittenRule[] {
  const picked = text.split(",").map((part) => {
    const rule = rules.find(({ name }) => name === part) ?? rules[Number(part) - 1];
    if (rule !== undefined) return rule;
    throw new UsageError(`Cannot pick "${part}": none of the ${rules.length} rules that are suggested now has it`);
  });
  return [...new Set(picked)];
}

function toBlock(rule: WrittenRule): string {
  const { name, tool, op, command, path, host, then } = rule;
  const given = Object.entries({ name, tool, op, command, path, host, then }).filter(([, text]) => text !== "");
  return `[[autonomy.rules]]\n${given.map(([key, text]) => `${key} = ${toTomlValue(text)}`).join("\n")}\n`;
}

async function write(
  context: CommandContext,
  { file, workspace }: LoadedConfig,
  rules: readonly WrittenRule[],
): Promise<void> {
  if (file !== undefined && await isInWorkspace(file.path, workspace, context.io)) {
    throw new CommandError(
      `Cannot write the rules to "${file.path}": a rule in a file of the workspace may only "ask" or "deny"; ` +
        "move your configuration to ~/.config/postern/postern.toml",
    );
  }
  await editConfiguration(
    context,
    (text) => Promise.resolve([text.trimEnd(), ...rules.map(toBlock)].join("\n\n").trimStart()),
  );
}

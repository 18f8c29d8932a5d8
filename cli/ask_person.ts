import type { Approval } from "../lib/base/records/approval.ts";
import { CommandError } from "./cli_error.ts";
import type { CommandContext } from "./command.ts";
import type { ReachedGateway } from "./reach_gateway.ts";
import { harmless } from "./terminal_text.ts";

/** What a person should know of a call before answering: the exact input, why it is asked about, and what it changes. */
export function describeApproval(approval: Approval): string {
  const { tool, access, input, reason, workspace, files, bound = [], containment, always_rule: rule } = approval;
  const changes = files.map(({ path, sha256 }) => `  ${path} ${sha256 === null ? "(new)" : `sha256:${sha256}`}`);
  const others = bound.map(({ kind, name, sha256 }) =>
    `  ${kind} ${name} ${sha256 === null ? "(none)" : `sha256:${sha256}`}`
  );
  return [
    `${tool} (${access}) in ${workspace}`,
    typeof input === "string" ? input : JSON.stringify(input, null, 2),
    reason,
    ...(containment === undefined || containment === null ? [] : [containment.text]),
    ...(changes.length === 0 ? [] : ["Files:", ...changes]),
    ...(others.length === 0 ? [] : ["Bound to:", ...others]),
    ...(rule === null ? [] : [`"always" stores: ${rule}`]),
  ].join("\n");
}

/**
 * Asks the person at the terminal about a call, and answers the approval; any line but a yes is a denial.
 * @param options.inRun a run waits for the answer, so that one may stand for the rest of the run
 * @returns undefined where nobody answered, as at Ctrl-C or the end of the terminal: the question is still open
 */
export async function askPerson(
  { io, say }: CommandContext,
  gateway: ReachedGateway,
  { id, inRun }: { readonly id: string; readonly inRun: boolean },
): Promise<"approve" | "deny" | undefined> {
  const path = `/v1/approvals/${encodeURIComponent(id)}`;
  const approval = await gateway.request({ method: "GET", path }) as Approval;
  say(harmless(describeApproval(approval)));
  const choices = approval.always_rule === null ? "y/N" : inRun ? "y/N/run/always" : "y/N/always";
  const line = await io.ask(`Run this call? [${choices}] `);
  if (line === undefined) return undefined;
  const body = toAnswer(line, choices);
  try {
    await gateway.request({ method: "POST", path, body });
    return body.decision;
  } catch (error) {
    // It expired, or was answered elsewhere
    if (!(error instanceof CommandError)) throw error;
    say(error.message);
    return "deny";
  }
}

function toAnswer(line: string, choices: string) {
  const word = line.trim().toLowerCase();
  if (word === "y" || word === "yes") return { decision: "approve" } as const;
  const remember = (["run", "always"] as const).find((each) => each === word && choices.includes(each));
  return remember === undefined ? { decision: "deny" } as const : { decision: "approve", remember } as const;
}

import type { Approval } from "../../lib/base/records/approval.ts";
import { askPerson } from "./ask_person.ts";
import type { CommandContext } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";

/**
 * Asks the person at the terminal what a run that works in this process asks: nobody else can reach it. With --json nobody is asked.
 * @returns whether the question is settled; one that nobody answered stays open, and stderr tells what to do
 */
export async function answerQuestion(context: CommandContext, gateway: ReachedGateway, id: string): Promise<boolean> {
  const path = `/v1/approvals/${encodeURIComponent(id)}`;
  const { status } = await gateway.request({ method: "GET", path }) as Approval;
  if (status !== "pending") return true;
  const answer = context.flags.json ? undefined : await askPerson(context, gateway, { id, inRun: false });
  if (answer !== undefined) return true;
  context.say(`The run waits for an answer: postern approvals approve ${id}, or deny; a gateway then goes on with it`);
  return false;
}

import { createSystemRandom } from "../../lib/base/random.ts";
import { systemClock } from "../../lib/base/clock.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { asSentence, exactLine } from "../../lib/base/text.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import type { CommandContext } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { askPerson } from "./ask_person.ts";

/** Milliseconds between looks at the questions of a call. */
const LOOK_MS = 500;
const MAX_WAITING = 100;

/** Options of `answerInCall`. */
export interface CallQuestions<T> {
  /** True for a tool that may ask a person while it runs */
  readonly mayAsk: boolean;
  /** Makes the call in a request with this id. */
  readonly call: (requestId: string) => Promise<T>;
}

/**
 * Makes a call. Where the tool may ask a person, each question of this call is shown while it waits. The person at the
 * terminal answers there. Without a terminal, and with --json, the ways to answer are said.
 * @returns the reply of the call
 */
export async function answerInCall<T>(
  context: CommandContext,
  gateway: ReachedGateway,
  { mayAsk, call }: CallQuestions<T>,
): Promise<T> {
  // Another call of the same tool may run at the same time: its questions are those of its own request
  const requestId = createSystemRandom().id("req_");
  if (!mayAsk) return await call(requestId);
  const seen = new Set<string>();
  const over = new AbortController();
  const reply = call(requestId).finally(() => over.abort());
  // A look that fails is told before the reply
  reply.catch(() => {});
  for (;;) {
    await systemClock.sleep(LOOK_MS, over.signal).catch(() => {});
    if (over.signal.aborted) return await reply;
    for (const question of await questionsOf(gateway, requestId)) {
      if (seen.has(question.id)) continue;
      seen.add(question.id);
      await answer(context, gateway, question);
    }
  }
}

async function questionsOf(gateway: ReachedGateway, requestId: string): Promise<readonly Approval[]> {
  const { data } = await gateway.call("GET /v1/approvals", { query: { status: "pending", limit: MAX_WAITING } });
  return data.filter(({ kind, request_id: id }) => kind === "elicitation" && id === requestId).reverse();
}

async function answer(context: CommandContext, gateway: ReachedGateway, approval: Approval): Promise<void> {
  const { id } = approval;
  const { io, flags, say } = context;
  const canAsk = io.canAsk && !flags.json;
  if (canAsk && await askPerson(context, gateway, { id, inRun: false }) !== undefined) return;
  const asks = `${asSentence(exactLine(sayAsker(approval)))} asks something`;
  if (gateway.running !== undefined) {
    return say(`${asks}, and the call waits: postern approval approve ${id}, or deny; the dashboard shows it too`);
  }
  // The question ends with this process, and no other one can answer it
  say(
    `${asks}, and nobody can answer here, so it is told no: call the tool at a terminal, or while postern gateway runs`,
  );
  await gateway.request({ method: "POST", path: `/v1/approvals/${id}`, body: { decision: "deny" } });
}

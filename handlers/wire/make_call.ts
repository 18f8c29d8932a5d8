import * as v from "valibot";
import { hasScope } from "../../lib/base/records/caller.ts";
import { type Clock, withTimeout } from "../../lib/base/clock.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import type { RequestContext } from "../route.ts";
import { callerOf } from "../door.ts";
import { errorReply, jsonReply } from "./reply.ts";
import { type Approvals, sayAnswerer } from "../../lib/guard/approvals.ts";
import { toNewApproval } from "../../lib/runs/supervisor/create_approver.ts";
import {
  type ApprovalAnswer,
  type ApprovalRequest,
  type Approver,
  nobodyCouldAnswer,
} from "../../lib/tools/runtime/tool_call.ts";

/** Fields of a body that calls a tool. */
export const callFields = {
  /** An object, or the tool's plain-text form */
  input: v.optional(v.union([v.record(v.string(), v.unknown()), v.string()])),
  /** true: a person has seen this exact call and approves it; needs the scope `approve` */
  approved: v.optional(v.boolean()),
  /** Id of an approval of this exact call that a person has given: it allows the call once */
  approval_id: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(128))),
} as const;

/** Reply of a call. */
export const callReplySchema = v.object({
  output: v.string(),
  is_error: v.boolean(),
  data: v.optional(v.unknown()),
  approval_id: v.optional(v.string()),
});

/** A tool call that a client makes. */
export interface MadeCall {
  /** Name of the tool in the registry */
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>> | string | undefined;
  readonly approved: boolean | undefined;
  readonly approval_id: string | undefined;
}

/** Returns the input of a call as the text that its tool takes. */
export function toInputText(input: MadeCall["input"] = {}): string {
  return typeof input === "string" ? input : JSON.stringify(input);
}

/** Makes a client's tool call through the same executor and policy as the agent's own calls, and replies with the result. */
export async function makeCall(
  context: RequestContext,
  { name, input, approved = false, approval_id: given }: MadeCall,
): Promise<Response> {
  const { services } = context;
  // A repeat must find the call, so it outlives its client (docs/design/http.md "Idempotency")
  const signal = context.claim === undefined ? context.signal : new AbortController().signal;
  const caller = callerOf(context, "http");
  let hadEffect = false;
  try {
    const { result, approvalId } = await services.tools.call({
      name,
      input: toInputText(input),
      runId: services.random.id("run_"),
      callId: services.random.id("call_"),
      requestId: context.requestId,
      caller,
      depth: 0,
      direct: true,
      signal,
      onStart({ access }) {
        hadEffect = access !== "read";
        return Promise.resolve();
      },
      approver: askByReply({
        approvals: services.approvals,
        clock: services.clock,
        given,
        granted: approved && hasScope(caller.scopes, "approve"),
        timeoutMs: services.config().runs.approval_timeout_secs * 1000,
      }),
    });
    return jsonReply(context, 200, {
      output: result.output,
      is_error: result.isError,
      ...(result.data === undefined ? {} : { data: result.data }),
      ...(approvalId === undefined ? {} : { approval_id: approvalId }),
    });
  } catch (error) {
    return errorReply(context, error, { hadEffect });
  }
}

/** Options of `askByReply`. */
export interface AskByReplyOptions {
  readonly approvals: Approvals;
  readonly clock: Clock;
  /** Id of the approval that the caller brings along; undefined: none */
  readonly given: string | undefined;
  /** true: the caller has the scope `approve` and approves this call */
  readonly granted: boolean;
  /** How long an approval waits for its answer */
  readonly timeoutMs: number;
}

/** Shortest time limit of an approval that is granted at once, in milliseconds: a slow disk must not let it expire before it is used. */
const AT_ONCE_MS = 60_000;

/** Time that a call waits for the program around the gateway, where it answers approvals, in milliseconds. */
const PROGRAM_MS = 2_000;

/**
 * Returns the approver of a call whose client does not wait. The reply names the approval; the client repeats the call once a person has
 * answered.
 */
export function askByReply({ approvals, clock, given, granted, timeoutMs }: AskByReplyOptions): Approver {
  const use = async (id: string, request: ApprovalRequest): Promise<ApprovalAnswer> => {
    const used = await approvals.use(id, request.binding.digest);
    if (used.ok) return { decision: "approve", reason: `Approved by ${sayAnswerer(used.approval)}`, approvalId: id };
    return used.waiting
      ? { decision: "deny", rule: "approval_waits", reason: used.reason, approvalId: id }
      : { decision: "deny", rule: "approval_failed", reason: used.reason };
  };
  return async (request) => {
    if (given !== undefined && !granted) return await use(given, request);
    const asked = await approvals.ask({
      ...toNewApproval(request, granted ? Math.max(timeoutMs, AT_ONCE_MS) : timeoutMs),
      isAnswered: granted,
    });
    if (asked === undefined) {
      return nobodyCouldAnswer(
        `the limit of waiting approvals is reached, so no person could be asked: ${request.reason}`,
      );
    }
    const { id, expires_at } = asked;
    if (granted) {
      await approvals.answer(id, { decision: "approve", by: request.caller });
      return await use(id, request);
    }
    const answered = await answerOfProgram(id, { approvals, clock });
    if (answered?.status === "approved") return await use(id, request);
    if (answered?.status === "denied") {
      const why = answered.note === null ? "" : `: ${answered.note}`;
      const reason = `Cannot call "${request.tool}": ${sayAnswerer(answered)} denied it${why}`;
      return { decision: "deny", rule: "approval", reason, approvalId: id };
    }
    return {
      decision: "deny",
      rule: "approval_waits",
      reason: `${request.reason}. A person may approve it as "${id}" until ${expires_at}: then repeat this call with ` +
        `"approval_id": "${id}". With the scope "approve", "approved": true allows it at once`,
      approvalId: id,
    };
  };
}

/** Returns the approval after the program had its time to answer. Undefined where it answers none. */
async function answerOfProgram(
  id: string,
  { approvals, clock }: Pick<AskByReplyOptions, "approvals" | "clock">,
): Promise<Approval | undefined> {
  if (approvals.program === undefined) return undefined;
  await withTimeout(approvals.program.isLeft(id), { ms: PROGRAM_MS, clock });
  return await approvals.get(id);
}

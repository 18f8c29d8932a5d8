import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { hasScope } from "../../lib/base/records/caller.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import type { RequestContext } from "../route.ts";
import { callerOf } from "../door.ts";
import { askByReply } from "./ask_by_reply.ts";
import { errorReply, sendJson } from "./reply.ts";

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
  const allowed = context.identity?.tools;
  if (allowed !== undefined && !matchesPatterns(name, allowed)) {
    throw refuse("insufficient_scope", `Cannot call "${name}": the tools of this token do not name it`);
  }
  // A repeat must find the call, so it outlives its client (docs/design/http.md "Idempotency")
  const signal = context.claim === undefined ? context.signal : new AbortController().signal;
  const caller = callerOf(context, "http");
  let hadEffect = false;
  try {
    const { result, approvalId } = await services.tools.call({
      name,
      input: toInputText(input),
      scope: {
        runId: services.random.id("run_"),
        requestId: context.requestId,
        conversationId: null,
        caller,
        depth: 0,
        direct: true,
        signal,
      },
      callId: services.random.id("call_"),
      allowed,
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
        elicitMs: services.config().autonomy.approval_timeout_secs * 1000,
      }),
    });
    return sendJson(context, 200, {
      output: result.output,
      is_error: result.isError,
      ...(result.data === undefined ? {} : { data: result.data }),
      ...(approvalId === undefined ? {} : { approval_id: approvalId }),
    });
  } catch (error) {
    // The executor of a cluster throws it for a call that has changed nothing
    const isRefused = services.cluster.ownership.isOutage(error);
    return errorReply(context, error, { hadEffect: hadEffect && !isRefused });
  }
}

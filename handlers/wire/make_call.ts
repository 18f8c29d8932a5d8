import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { Services } from "../../lib/services.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import type { RouteInput } from "../define_route.ts";
import { jsonReply, type Reply } from "./reply.ts";

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

/** Fields of a call as a body has them. */
type CallFields = v.InferOutput<v.ObjectSchema<typeof callFields, undefined>>;

/** Returns the input of a call as the text that its tool takes. */
export function toInputText(input: CallFields["input"] = {}): string {
  return typeof input === "string" ? input : JSON.stringify(input);
}

/**
 * Makes the tool call of a request and replies with the result.
 * @param name of the tool in the registry
 * @throws {HttpError} 403 insufficient_scope for a tool that the token does not name
 */
export async function makeCall(
  name: string,
  { input, approved = false, approval_id: approvalId }: CallFields,
  { calls, request }: {
    readonly calls: Services["calls"];
    readonly request: Pick<RouteInput, "identity" | "caller" | "requestId" | "claim" | "signal">;
  },
): Promise<Reply> {
  const { identity, caller, requestId } = request;
  const allowed = identity?.tools;
  if (allowed !== undefined && !matchesPatterns(name, allowed)) {
    throw refuse("insufficient_scope", `Cannot call "${name}": the tools of this token do not name it`);
  }
  // A repeat must find the call, so it outlives its client (docs/design/http.md "Idempotency")
  const signal = request.claim === undefined ? request.signal : new AbortController().signal;
  const call = { name, input: toInputText(input), allowed, caller, requestId, signal };
  const made = await (await calls()).callOrAsk(call, { approved, approvalId });
  if ("error" in made) return made;
  const { result: { output, isError, data }, approvalId: waiting } = made;
  return jsonReply(200, {
    output,
    is_error: isError,
    ...(data === undefined ? {} : { data }),
    ...(waiting === undefined ? {} : { approval_id: waiting }),
  });
}

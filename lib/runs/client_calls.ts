import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import { type Caller, hasScope } from "../base/records/caller.ts";
import type { Config } from "../config/config.ts";
import type { Approvals } from "../guard/approvals.ts";
import type { ToolCallOutcome, ToolCallRequest, ToolExecutor } from "../tools/runtime/tool_executor.ts";
import { askByReply } from "./supervisor/ask_by_reply.ts";

/** A tool call that a client makes by itself, outside every run. */
export interface ClientCall extends Pick<ToolCallRequest, "name" | "input" | "allowed"> {
  readonly caller: Caller;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** Ids of a call, and of the run that its records name. */
export interface ClientCallIds {
  readonly runId: string;
  readonly callId: string;
}

/** Ways of a call to a person, and to its client. */
export type CallWays = Pick<ToolCallRequest, "approver" | "onStart" | "onProgress" | "model" | "client">;

/** Answer to a call that its client brings along. */
export interface BroughtAnswer {
  /** True: the client approves the call itself, which counts with the scope `approve` */
  readonly approved: boolean;
  /** Id of an approval that a person has given. Undefined: none */
  readonly approvalId: string | undefined;
}

/** A call that was begun and failed. */
export interface FailedCall {
  readonly error: unknown;
  /** A tool with an effect ran before, so the client must not retry */
  readonly hadEffect: boolean;
}

/** Parts of a gateway that calls of clients need. */
export interface ClientCallsParts {
  readonly tools: Pick<ToolExecutor, "call">;
  readonly approvals: Approvals;
  readonly clock: Clock;
  readonly random: Random;
  readonly config: () => Config;
  /** Tells of errors that a call threw before it changed anything */
  readonly cluster: { readonly ownership: { isOutage(error: unknown): boolean } };
}

/** Tool calls of clients, by the same executor and policy as the agent's own calls. */
export class ClientCalls {
  readonly #parts: ClientCallsParts;

  constructor(parts: ClientCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call. @param waysOf returns its ways, which may name its ids. @throws as ToolExecutor.call */
  async call(
    { name, input, allowed, caller, requestId, signal }: ClientCall,
    waysOf: (ids: ClientCallIds) => CallWays,
  ): Promise<ToolCallOutcome> {
    const { random, tools } = this.#parts;
    const runId = random.id("run_");
    const callId = random.id("call_");
    const scope = { runId, requestId, conversationId: null, caller, depth: 0, direct: true, signal };
    return await tools.call({ ...{ name, input, allowed, callId, scope }, ...waysOf({ runId, callId }) });
  }

  /** Makes a call whose client does not wait for a person, see `askByReply`. */
  async callOrAsk(call: ClientCall, answer: BroughtAnswer): Promise<ToolCallOutcome | FailedCall> {
    const { approvals, clock, config, cluster } = this.#parts;
    let hadEffect = false;
    const approver = askByReply({
      ...{ approvals, clock },
      given: answer.approvalId,
      granted: answer.approved && hasScope(call.caller.scopes, "approve"),
      timeoutMs: config().runs.approval_timeout_secs * 1000,
      elicitMs: config().autonomy.approval_timeout_secs * 1000,
    });
    const onStart: CallWays["onStart"] = ({ access }) => {
      hadEffect = access !== "read";
      return Promise.resolve();
    };
    try {
      return await this.call(call, () => ({ approver, onStart }));
    } catch (error) {
      // The executor of a cluster throws it for a call that has changed nothing
      return { error, hadEffect: hadEffect && !cluster.ownership.isOutage(error) };
    }
  }
}

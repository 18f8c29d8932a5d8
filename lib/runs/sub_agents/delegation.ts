import { CancelError, cancelError, neverAborted } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ProviderError, ToolError } from "../../base/errors.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import type { Run } from "../../base/records/run.ts";
import { joinTaints, UNTAINTED } from "../../base/taint.ts";
import { createPatience, patiently } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { DelegatedAnswer } from "../../tools/agents/sub_agents.ts";
import type { CallContext } from "../../tools/runtime/tool_call.ts";
import { OWNS_ALL, type RunRights } from "../journal/run_store.ts";
import type { RunHandle, RunSupervisor } from "../run_request.ts";
import { startSubAgent, subAgentRequest } from "./sub_agent_request.ts";
import { SUB_AGENTS, type SubAgentRecord } from "./sub_agent_records.ts";

/** Services that delegations need. */
export interface DelegationOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** @throws {ToolError} `agent_unavailable` */
  readonly supervisor: () => RunSupervisor;
  /** Fences of the gateways of the database. Default: the gateway is alone */
  readonly cluster?: Pick<RunRights, "own" | "isCurrent" | "isOutage"> | undefined;
  /** Aborts when the gateway closes. Default: never */
  readonly closing?: AbortSignal | undefined;
}

/** Runs of agents whose callers wait for the answer. Both throw ToolError `agent_failed`, and CancelError when the caller's signal aborts. */
export interface Delegation {
  /** Tells whether a caller waits for the answer of a delegation, here or at another gateway of the cluster. */
  isWaitedFor(record: Pick<SubAgentRecord, "id" | "waiter">): Promise<boolean>;
  /** Starts a delegation that ends with its caller and uses the caller's approver, and waits for the answer. */
  attached(
    planned: Omit<SubAgentRecord, "run_id">,
    order: { readonly prompt: string; readonly by: CallContext },
  ): Promise<DelegatedAnswer>;
  /** Waits for the answer of a durable delegation. A shutdown leaves it to the next start. */
  durable(record: SubAgentRecord, by: CallContext): Promise<DelegatedAnswer>;
}

/** Returns the delegations over a supervisor. */
export function createDelegation(
  { store, clock, supervisor, cluster = OWNS_ALL, closing = neverAborted() }: DelegationOptions,
): Delegation {
  const waitedFor = new Set<string>();
  const keep = (record: SubAgentRecord) => store.batch([SUB_AGENTS.put(record.id, record)]);
  const keepLate = patiently(createPatience({ clock, signal: closing }), keep);

  /** Keeps the end of a delegation. The answer does not wait for a database of a cluster that is down. */
  const keepEnd = async (record: SubAgentRecord) => {
    try {
      await keep(record);
    } catch (error) {
      if (!cluster.isOutage(error)) throw error;
      void keepLate(record).catch(() => {}); // It counts as left then
    }
  };

  return {
    isWaitedFor: async ({ id, waiter }) =>
      waitedFor.has(id) ||
      (waiter !== undefined && waiter.id !== cluster.own()?.id && await cluster.isCurrent(waiter)),
    async attached(planned, { prompt, by }) {
      const request = subAgentRequest(planned, { text: prompt, by, durable: false });
      const handle = await startSubAgent(supervisor(), {
        ...request,
        reader: { approver: by.inherited?.approver },
      });
      const waiter = cluster.own();
      const record: SubAgentRecord = { ...planned, run_id: handle.id, ...(waiter === undefined ? {} : { waiter }) };
      const cancel = () => handle.cancel(cancelError(by.signal).reason);
      by.signal.addEventListener("abort", cancel, { once: true });
      waitedFor.add(record.id);
      let status: NonNullable<SubAgentRecord["ended"]>["status"] = "failed";
      let isUnknown = false;
      try {
        await keep(record);
        if (by.signal.aborted) cancel();
        const answer = await readAnswer(handle, { record, by });
        status = "completed";
        return answer;
      } catch (error) {
        if (error instanceof CancelError) status = "cancelled";
        isUnknown = cluster.isOutage(error);
        throw error;
      } finally {
        by.signal.removeEventListener("abort", cancel);
        handle.cancel("cancelled");
        const ended = { ...record, ended: { status, at: new Date(clock.now()).toISOString() } };
        // A delegation whose record met an outage has no end to keep either
        if (!isUnknown) await keepEnd(ended);
        waitedFor.delete(record.id);
      }
    },
    async durable(record, { signal }) {
      try {
        return answerOf(record, await supervisor().ended(record.run_id, signal));
      } catch (error) {
        const isLeft = error instanceof CancelError && error.reason !== "shutdown";
        if (isLeft) await supervisor().cancel(record.run_id, error.reason);
        throw error;
      }
    },
  };
}

/** The record of a delegation, and the caller that waits for its answer. */
interface Waiting {
  readonly record: SubAgentRecord;
  readonly by: CallContext;
}

/** Returns the answer of an attached run, read to its end. */
async function readAnswer(handle: RunHandle, waiting: Waiting): Promise<DelegatedAnswer> {
  let answer = "";
  let taint = UNTAINTED;
  try {
    for await (const events of handle.events()) {
      answer += textIn(events, waiting);
      taint = joinTaints(taint, ...events.map((event) => "taint" in event ? event.taint : undefined));
    }
  } catch (error) {
    if (error instanceof ProviderError) throw failed(waiting.record, error.message);
    throw error;
  }
  return { answer, taint };
}

/** Returns the text of some events, and tells the caller which tools they start. @throws {ToolError | CancelError} the run failed */
function textIn(events: readonly AgentEvent[], { record, by }: Waiting): string {
  let text = "";
  for (const event of events) {
    if (event.type === "text_delta") text += event.delta;
    if (event.type === "tool_start") by.progress(`${record.agent ?? record.id}: ${event.tool}`);
    if (event.type !== "error") continue;
    if (by.signal.aborted) throw cancelError(by.signal);
    throw failed(record, event.message);
  }
  return text;
}

function answerOf(record: SubAgentRecord, run: Run | undefined): DelegatedAnswer {
  if (run?.status === "completed") return { answer: run.result ?? "", taint: run.taint ?? UNTAINTED };
  if (run?.status === "needs_review") {
    throw failed(
      record,
      `it was interrupted in the middle of a call with an effect; run "${run.id}" waits for a person`,
    );
  }
  throw failed(record, run?.error?.message ?? "its run is gone");
}

function failed({ agent, id }: SubAgentRecord, reason: string): ToolError {
  return new ToolError("agent_failed", `Cannot get the answer of the agent "${agent ?? id}": ${reason}`);
}

import {
  createScriptedProvider,
  createScriptedProviders,
  type Script,
  type ScriptedProvider,
} from "../../fixtures/scripted_provider.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { type Logger, SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics, type Metrics } from "../../lib/base/telemetry/metrics.ts";
import type { ModelWishes, Providers } from "../../lib/providers/provider.ts";
import type {
  AskedAgent,
  RunAuthor,
  RunHandle,
  RunReader,
  RunRequest,
  RunSupervisor,
} from "../../lib/runs/run_request.ts";
import type { RunApprovals, RunConfiguration } from "../../lib/runs/supervisor/launch_run.ts";
import type { RunLimits } from "../../lib/runs/supervisor/run_queue.ts";
import type { AgentSettings } from "../../lib/runs/supervisor/run_settings.ts";
import { Supervisor, type SupervisorOptions } from "../../lib/runs/supervisor/supervisor.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createFakeToolExecutor, type FakeTool, type FakeToolExecutor } from "./fake_tool_executor.ts";
import { createSeededRandom } from "./seeded_random.ts";

export interface SupervisedOptions {
  readonly tools?: readonly FakeTool[];
  /** In place of the fake tools */
  readonly realTools?: ToolExecutor;
  readonly agent?: Partial<AgentSettings>;
  readonly limits?: Partial<RunLimits>;
  readonly store?: Store;
  readonly clock?: FakeClock;
  readonly log?: Logger;
  readonly cluster?: SupervisorOptions["cluster"];
  readonly seed?: number;
  readonly retentionDays?: number;
  /** Default: nothing is halted */
  readonly halted?: RunConfiguration["halted"];
  /** Default: cancel */
  readonly whenReaderLeaves?: "go_on" | "cancel";
  readonly tokensPerDay?: number;
  /** Default: nobody is told */
  readonly tellEnd?: RunConfiguration["tellEnd"];
  readonly approverOf?: RunApprovals["approverOf"];
  readonly agentOf?: SupervisorOptions["agentOf"];
  readonly onRunEnd?: (runId: string) => void;
  readonly isChannelConversation?: (id: string) => boolean;
  readonly leftApprovals?: Omit<RunApprovals, "approverOf">;
  /** Wraps the scripted model, for example with its routing */
  readonly wrap?: (providers: Providers) => Providers;
}

/** A supervisor over a scripted model, fake tools, a memory store and a clock that stands still. */
export interface Supervised {
  readonly runs: RunSupervisor;
  readonly provider: ScriptedProvider;
  readonly executor: FakeToolExecutor;
  readonly store: Store;
  readonly clock: FakeClock;
  readonly metrics: Metrics;
}

export function supervised(script: Script, options: SupervisedOptions = {}): Supervised {
  const clock = options.clock ?? createFakeClock();
  const store = options.store ?? createMemoryStore();
  const provider = createScriptedProvider(script, { clock });
  const executor = createFakeToolExecutor(options.tools ?? []);
  const metrics = createMetrics();
  const runs = new Supervisor({
    kit: { clock, random: createSeededRandom(options.seed ?? 1), log: options.log ?? SILENT, metrics },
    store,
    providers: (options.wrap ?? ((providers) => providers))(createScriptedProviders(provider)),
    tools: options.realTools ?? executor,
    configured: {
      agent: () => ({
        systemPrompt: "",
        maxIterations: 20,
        maxToolCalls: 100,
        parallelTools: true,
        toolSearch: "auto",
        contextWindowTokens: 0,
        tokensPerRun: 0,
        tools: ["*"],
        ...options.agent,
      }),
      limits: () => ({ maxConcurrent: 16, maxQueued: 1000, maxPerConversation: 8, ...options.limits }),
      retentionDays: () => options.retentionDays ?? 0,
      tokensPerDay: () => options.tokensPerDay ?? 0,
      tellEnd: options.tellEnd,
      halted: options.halted,
      whenReaderLeaves: () => options.whenReaderLeaves ?? "cancel",
      isChannelConversation: options.isChannelConversation,
    },
    approvals: { ...options.leftApprovals, approverOf: options.approverOf },
    ...(options.agentOf === undefined ? {} : { agentOf: options.agentOf }),
    ...(options.cluster === undefined ? {} : { cluster: options.cluster }),
    ...(options.onRunEnd === undefined ? {} : { onRunEnd: options.onRunEnd }),
  });
  return { runs, provider, executor, store, clock, metrics };
}

/** Fields of a request, with those of its parts beside them. `agent` is the name of one. */
export type AskOptions =
  & Partial<Omit<RunRequest, "by" | "wishes" | "reader" | "agent"> & RunAuthor & ModelWishes>
  & RunReader
  & Omit<AskedAgent, "name">
  & { readonly agent?: string | undefined };

/** A request of one user message; attached, with the agent's tools. */
export function ask(text: string, options: AskOptions = {}): RunRequest {
  const { caller, requestId, parentId, depth, workspace, taint, links, after, ...beside } = options;
  const { clientTools, toolChoice, parallelToolCalls, parameters, ...own } = beside;
  const { controller, whole, canApprove, approver, agent, tools, limits, instructions, ...rest } = own;
  return {
    kind: "chat",
    by: {
      caller: caller ?? { via: "http", tokenId: "tok_1", scopes: ["chat"] },
      ...{ requestId, parentId, depth, workspace, taint, links, after },
    },
    messages: [{ role: "user", content: text }],
    wishes: { clientTools: clientTools ?? [], toolChoice, parallelToolCalls, parameters: parameters ?? {} },
    durable: false,
    reader: { controller, whole, canApprove, approver },
    agentTools: "configured",
    agent: { name: agent, tools, limits, instructions },
    ...rest,
  };
}

/** All events of a run, read to its end. */
export async function readAll(handle: RunHandle): Promise<AgentEvent[]> {
  const events: AgentEvent[] = [];
  for await (const batch of handle.events()) events.push(...batch);
  return events;
}

/** The joined text of the events. */
export function textIn(events: readonly AgentEvent[]): string {
  return events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : [])).join("");
}

/** The types of the events, in order. */
export function typesOf(events: readonly AgentEvent[]): string[] {
  return events.map((event) => event.type);
}

/** The only event of this type. */
export function only<T extends AgentEvent["type"]>(
  events: readonly AgentEvent[],
  type: T,
): Extract<AgentEvent, { type: T }> {
  const found = events.filter((event) => event.type === type);
  if (found.length !== 1) {
    throw new Error(`Expected one ${type}, found ${found.length} in ${typesOf(events).join(", ")}`);
  }
  return found[0] as Extract<AgentEvent, { type: T }>; // it was filtered by this type
}

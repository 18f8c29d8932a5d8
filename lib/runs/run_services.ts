import type { Clock } from "../base/clock.ts";
import { lazilyEach, lazyService } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Config } from "../config/config.ts";
import type { Approvals } from "../guard/approvals.ts";
import type { AuditAppend } from "../guard/audit/audit_chain.ts";
import type { AgentProviders } from "../providers/agent_providers.ts";
import type { Providers } from "../providers/provider.ts";
import type { Store } from "../storage/store.ts";
import type { SubAgents } from "../tools/agents/sub_agents.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import {
  createStoredConversations,
  keepConversations,
  type StoredConversations,
} from "./conversations/stored_conversations.ts";
import { cancelRunsOf } from "./journal/stored_runs.ts";
import type { OnRecorded } from "./journal/run_store.ts";
import type { RunSupervisor } from "./run_request.ts";
import { createAgentOf } from "./supervisor/agent_profile.ts";
import { createApprover } from "./supervisor/create_approver.ts";
import { type ClusterMember, MEMBER_ALONE } from "./supervisor/run_coordination.ts";
import { createSupervisor, type SupervisorOptions } from "./supervisor/supervisor.ts";

interface CommonOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** The newest configuration. */
  readonly config: () => Config;
}

/** Options of `createRuns`. */
export interface RunsOptions extends CommonOptions {
  readonly random: Random;
  readonly metrics: Metrics;
  readonly approvals: Approvals;
  readonly audit: AuditAppend;
  readonly tools: ToolExecutor;
  readonly providers: Providers;
  /** Providers of `[agents.<name>]`. */
  readonly agents: AgentProviders;
  /** Returns the texts that a new run begins with, see SupervisorOptions. Default: there are none */
  readonly guidance?: SupervisorOptions["guidance"];
  /** Told of the events of each run, see SupervisorOptions. Default: nobody is */
  readonly onEvents?: OnRecorded | undefined;
  /** Closes what a run had open. Default: nothing */
  readonly onRunEnd?: (runId: string) => void;
  /** Membership among the gateways of the database. Default: the gateway is alone */
  readonly cluster?: ClusterMember | undefined;
  readonly opened: OpenedList;
}

/** Creates the run supervisor with the settings of the newest configuration. */
export function createRuns(options: RunsOptions): RunSupervisor {
  const { config, approvals } = options;
  // A reload makes another configuration
  const [agentSettings, runLimits] = [lazilyEach(toAgentSettings), lazilyEach(toRunLimits)];
  const runs = createSupervisor({
    ...options,
    agent: () => agentSettings(config()),
    agentOf: createAgentOf({ agents: () => config().agents, providers: options.agents }),
    limits: () => runLimits(config()),
    tokensPerDay: () => config().budget.tokens_per_day,
    retentionDays: () => config().runs.retention_days,
    pendingApprovals: (runIds) => approvals.ofRuns(runIds, "pending"),
    withdraw: (id) => approvals.cancel(id),
    isChannelConversation: (id) => isChannelConversation(config().channels, id),
    approverOf: createApprover({
      approvals,
      timeoutMs: () => ({
        attached: config().autonomy.approval_timeout_secs * 1000,
        durable: config().runs.approval_timeout_secs * 1000,
      }),
    }),
  });
  // After a drain nothing is left to stop. A start that fails half-way stops the runs that it has recovered
  return options.opened.own(runs, (open) => open.drain(0));
}

/** Creates the sub-agents, which are loaded when an agent first asks for one. */
export function createLazySubAgents({ store, clock, config, tools, runs, cluster }: Omit<CommonOptions, "log"> & {
  /** Membership among the gateways of the database, and the signal that aborts when the gateway closes */
  readonly cluster: Pick<ClusterMember, "ownership"> & { readonly closing?: AbortSignal | undefined };
  readonly tools: () => ToolExecutor;
  readonly runs: () => RunSupervisor | undefined;
}): SubAgents {
  return lazyService(async () => {
    const { createSubAgents } = await import("./sub_agents/sub_agent_service.ts");
    const { ownership, closing } = cluster;
    return createSubAgents({ store, clock, agents: () => config().agents, tools, runs, cluster: ownership, closing });
  }, ["spawn", "list", "status", "result", "message", "cancel", "delegate", "delegations"]);
}

/**
 * Creates the stored conversations, and forgets those whose time is over.
 * @param options.runs undefined without an agent
 */
export function createConversationServices(
  { store, clock, log, config, runs, opened, cluster = MEMBER_ALONE }: CommonOptions & {
    /** Membership among the gateways of the database. Default: the gateway is alone */
    readonly cluster?: Pick<ClusterMember, "ownership"> | undefined;
    readonly runs: RunSupervisor | undefined;
    readonly opened: OpenedList;
  },
): StoredConversations {
  const { lines } = cluster.ownership;
  const worksHere = (id: string) => runs?.worksIn(id) ?? false;
  const conversations = createStoredConversations({
    store,
    isAtWork: (id) => worksHere(id) || lines.worksIn(id),
    unheld: (id) => lines.unheld(id),
  });
  const stop = keepConversations(conversations, { clock, log, days: () => config().conversations.retention_days });
  opened.own(stop, (end) => end());
  return conversations;
}

/** Returns a function that cancels the runs of a token that was revoked, and logs how many. Never rejects. */
export function createRevocation({ store, log, runs }: Pick<CommonOptions, "store" | "log"> & {
  readonly runs: () => RunSupervisor | undefined;
}): (tokenId: string) => Promise<void> {
  return async (tokenId) => {
    try {
      const cancelled = await cancelRunsOf(tokenId, { store, supervisor: runs });
      if (cancelled > 0) log.info("Runs of a token that was revoked are cancelled", { token_id: tokenId, cancelled });
    } catch (error) {
      log.error("Runs of a token that was revoked could not be cancelled", { token_id: tokenId, error });
    }
  };
}

function toAgentSettings({ agent, budget }: Config) {
  return {
    systemPrompt: agent.system_prompt,
    tools: agent.tools,
    toolSearch: agent.tool_search,
    maxIterations: agent.max_iterations,
    maxToolCalls: agent.max_tool_calls,
    parallelTools: agent.parallel_tools,
    contextWindowTokens: agent.context_window_tokens,
    tokensPerRun: budget.tokens_per_run,
  };
}

function toRunLimits({ runs }: Config) {
  return {
    maxConcurrent: runs.max_concurrent,
    maxQueued: runs.max_queued,
    maxPerConversation: runs.max_per_conversation,
  };
}

/** Tells whether a conversation is that of a channel: its id, or the part before the first colon, is the channel's name. */
function isChannelConversation(channels: Config["channels"], id: string): boolean {
  const [name = ""] = id.split(":", 1);
  return name === "default" || Object.hasOwn(channels, name);
}

/**
 * Tools and runs of a gateway, for the services that are made before them.
 *
 * Schedules, procedures and sub-agents are tools, and they start runs, which use the tools: one of them must be made first. They are
 * given the functions of the seam, which is joined once both are made.
 */
export interface WorkSeam {
  /** Returns the tools. @throws {TypeError} before `join` */
  readonly tools: () => ToolExecutor;
  /** Returns the run supervisor. Undefined before `join`, and without an agent */
  readonly runs: () => RunSupervisor | undefined;
  /** Hands in what was made; once, before any run goes on. */
  join(work: { readonly tools: ToolExecutor; readonly runs: RunSupervisor | undefined }): void;
}

/** Creates a seam that is not joined yet. */
export function createWorkSeam(): WorkSeam {
  let joined: Parameters<WorkSeam["join"]>[0] | undefined;
  return {
    tools() {
      if (joined === undefined) throw new TypeError("Cannot use the tools: they are not made yet");
      return joined.tools;
    },
    runs: () => joined?.runs,
    join: (work) => void (joined = work),
  };
}

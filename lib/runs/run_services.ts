import type { Tokens } from "../access/tokens.ts";
import type { Kit } from "../base/kit.ts";
import { lazily, lazilyEach } from "../base/lazily.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Run } from "../base/records/run.ts";
import type { Config } from "../config/config.ts";
import type { Extensions } from "../extensions/open_extensions.ts";
import type { Approvals, Told } from "../guard/approvals.ts";
import type { AuditAppend } from "../guard/audit/audit_chain.ts";
import type { Halts } from "../guard/halts.ts";
import type { OpenProviders } from "../providers/provider_services.ts";
import type { Store } from "../storage/store.ts";
import type { SubAgents } from "../tools/agents/sub_agents.ts";
import type { DrainableExecutor } from "../tools/runtime/drainable_executor.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import {
  createStoredConversations,
  keepConversations,
  type StoredConversations,
} from "./conversations/stored_conversations.ts";
import { cancelRunsOf } from "./journal/stored_runs.ts";
import type { RunEventFeed, TellProgram } from "./journal/run_event_feed.ts";
import type { OnRecorded } from "./journal/run_store.ts";
import type { RunSupervisor } from "./run_request.ts";
import { createAgentOf } from "./supervisor/agent_profile.ts";
import { createApprover } from "./supervisor/create_approver.ts";
import type { ClusterMember } from "./supervisor/run_coordination.ts";
import { Supervisor } from "./supervisor/supervisor.ts";

/** Needs of `runsWing`. */
export interface RunsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly store: Store };
  readonly guard: {
    readonly approvals: Approvals;
    readonly audit: { readonly append: AuditAppend };
    readonly halts: Pick<Halts, "refusalOfRun">;
  };
  /** Closes the browser that a run had open. */
  readonly system: { readonly browsers: { closeRun(runId: string): Promise<unknown> } };
  /** Texts that a run begins with. */
  readonly extensions: Pick<Extensions, "skills" | "instructions">;
  readonly tools: DrainableExecutor;
  readonly models: { readonly live: OpenProviders | undefined };
  /** Receives the events of each run. Undefined: the program wants none */
  readonly feed: { readonly take: OnRecorded } | undefined;
  readonly work: Pick<WorkSeam, "join">;
  readonly cluster: ClusterMember;
  readonly automation: { readonly tellOfRun: (run: Run) => Promise<Told | undefined> };
}

/** The run supervisor. Undefined without an agent. */
export const runsWing = defineWing({ name: "runs", start: startRuns });

/** Creates the run supervisor where there is an agent, and hands it to those who were made before it. */
function startRuns(needs: RunsNeeds, opened: OpenedList): RunSupervisor | undefined {
  const { models: { live }, tools, work } = needs;
  const runs = live && createRuns(needs, { live, opened });
  work.join({ tools: tools.executor, runs });
  return runs;
}

/** Creates the run supervisor with the settings of the newest configuration. */
function createRuns(
  needs: RunsNeeds,
  { live, opened }: { readonly live: OpenProviders; readonly opened: OpenedList },
): RunSupervisor {
  const { kit, config, storage: { store }, guard, system, extensions, cluster } = needs;
  const { approvals } = guard;
  // A reload makes another configuration
  const [agentSettings, runLimits] = [lazilyEach(toAgentSettings), lazilyEach(toRunLimits)];
  const runs = new Supervisor({
    ...{ kit, store, cluster },
    providers: live.providers,
    tools: needs.tools.executor,
    audit: guard.audit.append,
    async guidance() {
      const { skills, instructions } = extensions;
      const [{ prompt, isAny }, told] = await Promise.all([skills.offer(), instructions.offer()]);
      return { instructions: told, skills: prompt, hasSkills: isAny };
    },
    onEvents: needs.feed?.take,
    onRunEnd(runId) {
      system.browsers.closeRun(runId).catch((error: unknown) => {
        kit.log.error("The browser of a run could not be closed", { run_id: runId, error });
      });
    },
    agentOf: createAgentOf({ agents: () => config().agents, providers: live.agents }),
    configured: {
      agent: () => agentSettings(config()),
      limits: () => runLimits(config()),
      tokensPerDay: () => config().budget.tokens_per_day,
      retentionDays: () => config().runs.retention_days,
      tellEnd: needs.automation.tellOfRun,
      halted: (runId) => guard.halts.refusalOfRun(runId),
      whenReaderLeaves: () => config().runs.when_reader_leaves,
      isChannelConversation: (id) => isChannelConversation(config().channels, id),
    },
    approvals: {
      approverOf: createApprover({
        approvals,
        askers: approvals.askers,
        timeoutMs: () => ({
          attached: config().autonomy.approval_timeout_secs * 1000,
          durable: config().runs.approval_timeout_secs * 1000,
        }),
      }),
      pendingApprovals: (runIds) => approvals.ofRuns(runIds, "pending"),
      withdraw: (id) => approvals.cancel(id),
    },
  });
  // After a drain nothing is left to stop. A start that fails half-way stops the runs that it has recovered
  return opened.own(runs, (open) => open.drain(0));
}

/** Needs of `feedWing`. */
export interface FeedNeeds {
  readonly kit: Kit;
  readonly program: {
    readonly additions?: {
      readonly hooks?: { readonly onRunEvent?: TellProgram | undefined; readonly ready: Promise<void> } | undefined;
    } | undefined;
  };
}

/** Feed of run events to the program. Undefined where it wants none. */
export const feedWing = defineWing({
  name: "feed",
  async start(
    { program: { additions: { hooks } = {} }, kit: { clock, log } }: FeedNeeds,
  ): Promise<RunEventFeed | undefined> {
    if (hooks?.onRunEvent === undefined) return undefined;
    const { RunEventFeed } = await import("./journal/run_event_feed.ts");
    return new RunEventFeed({ tell: hooks.onRunEvent, ready: hooks.ready, clock, log });
  },
});

/** Needs of `subAgentsWing`. */
export interface SubAgentsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly store: Store };
  readonly work: Pick<WorkSeam, "tools" | "runs">;
  /** Rights to write runs, and the signal that aborts when the gateway closes */
  readonly cluster: Pick<ClusterMember, "ownership"> & { readonly closing: AbortSignal | undefined };
}

/** Runs that an agent starts. */
export const subAgentsWing = defineWing({ name: "subAgents", start: createLazySubAgents });

/** Creates the sub-agents, which are loaded when an agent first asks for one. */
function createLazySubAgents(needs: SubAgentsNeeds): SubAgents {
  const { kit: { clock }, config, storage: { store }, work: { tools, runs }, cluster } = needs;
  const loaded = lazily(async () => {
    const { SubAgentService } = await import("./sub_agents/sub_agent_service.ts");
    const { ownership, closing } = cluster;
    return new SubAgentService({
      store,
      clock,
      agents: () => config().agents,
      tools,
      runs,
      cluster: ownership,
      closing,
    });
  });
  return {
    spawn: async (...given) => await (await loaded()).spawn(...given),
    list: async (...given) => await (await loaded()).list(...given),
    status: async (...given) => await (await loaded()).status(...given),
    result: async (...given) => await (await loaded()).result(...given),
    message: async (...given) => await (await loaded()).message(...given),
    cancel: async (...given) => await (await loaded()).cancel(...given),
    delegate: async (...given) => await (await loaded()).delegate(...given),
    delegations: async (...given) => await (await loaded()).delegations(...given),
  };
}

/** Needs of `conversationsWing`. */
export interface ConversationsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly store: Store };
  /** Undefined without an agent */
  readonly runs: RunSupervisor | undefined;
  readonly cluster: Pick<ClusterMember, "ownership">;
}

/** The stored conversations. */
export const conversationsWing = defineWing({ name: "conversations", start: startConversations });

/** Creates the stored conversations, and forgets those whose time is over. */
function startConversations(needs: ConversationsNeeds, opened: OpenedList): StoredConversations {
  const { kit: { clock, log }, config, storage: { store }, runs, cluster } = needs;
  const { lines } = cluster.ownership;
  const conversations = createStoredConversations({
    store,
    runIn: (id) => runs?.runIn(id) ?? lines.runIn(id),
    unheld: (id) => lines.unheld(id),
  });
  const stop = keepConversations(conversations, { clock, log, days: () => config().conversations.retention_days });
  opened.own(stop, (end) => end());
  return conversations;
}

/** Needs of `workWing`. */
export interface WorkNeeds {
  readonly kit: Kit;
  readonly storage: { readonly store: Store };
  readonly access: { readonly tokens: Pick<Tokens, "onRevoke"> };
}

/** Tools and runs for the wings before them. The runs of a token end when it is revoked. */
export const workWing = defineWing({
  name: "work",
  start({ kit: { log }, storage: { store }, access }: WorkNeeds): WorkSeam {
    const work = createWorkSeam();
    access.tokens.onRevoke(createRevocation({ store, log, runs: work.runs }));
    return work;
  },
});

/** Returns a function that cancels the runs of a token that was revoked, and logs how many. Never rejects. */
function createRevocation({ store, log, runs }: {
  readonly store: Store;
  readonly log: Logger;
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
function createWorkSeam(): WorkSeam {
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

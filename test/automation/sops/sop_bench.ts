import type { Script } from "../../../fixtures/scripted_provider.ts";
import { ProcedureService } from "../../../lib/automation/sops/sop_service.ts";
import type { SopService, SopsOptions } from "../../../lib/automation/sops/sop_service.ts";
import { type Caller, SCOPES } from "../../../lib/base/records/caller.ts";
import { type Logger, SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import type { Approvals } from "../../../lib/guard/approvals.ts";
import { SharedApprovalNews } from "../../../lib/guard/approval_news.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import { createApprover } from "../../../lib/runs/supervisor/create_approver.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import type { ToolExecutor } from "../../../lib/tools/runtime/tool_executor.ts";
import type { SopExecutionView, SopStatus } from "../../../lib/tools/sops/sops.ts";
import type { ClusterLink } from "../../support/clustered.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { supervised } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";
import type { Workspace } from "../../support/workspace.ts";

export interface SopBenchOptions {
  readonly workspace: Workspace;
  readonly tools?: readonly FakeTool[];
  readonly script?: Script;
  readonly store?: Store;
  readonly clock?: FakeClock;
  /** Another one for each start, as ids of a real gateway are new */
  readonly seed?: number;
  readonly log?: Logger;
  /** Default true */
  readonly hasAgent?: boolean;
  /** Membership of a cluster, whose store `store` is. Default: the gateway is alone */
  readonly cluster?: Pick<ClusterLink, "cluster" | "member">;
  /** Returns the secrets that are masked in an input. Default: none is */
  readonly masked?: ToolExecutor["masked"];
  /** Default: every token has all scopes */
  readonly scopesOf?: SopsOptions["scopesOf"];
}

/** Procedures over a supervisor, a scripted model, fake tools and a clock that stands still. */
export interface SopBench {
  readonly sops: SopService;
  readonly runs: RunSupervisor;
  readonly approvals: Approvals;
  readonly clock: FakeClock;
  readonly store: Store;
  /** Starts one of `own/` as the agent does */
  execute(sop: string, inputs?: Readonly<Record<string, unknown>>): Promise<string>;
  /** Lets work go on until the execution has this status. @throws {AssertionError} it does not come to it in 60 s */
  until(id: string, status: SopStatus | ((execution: SopExecutionView) => boolean)): Promise<SopExecutionView>;
}

const AGENT: Caller = { via: "http", tokenId: "tok_agent", scopes: ["admin"] };
const PERSON: Caller = { via: "http", tokenId: "tok_person", scopes: ["approve", "runs"] };

/** A model's call, in a run that an administrator started. */
export const BY_AGENT = { caller: AGENT, runId: "run_agent", mayGrant: false } as const;
/** A person's own call. */
export const BY_PERSON = { caller: PERSON, runId: "run_person", mayGrant: true } as const;

export function createSopBench(options: SopBenchOptions): SopBench {
  const { workspace, seed = 1, log = SILENT } = options;
  const clock = options.clock ?? createFakeClock();
  const store = options.store ?? createMemoryStore();
  const random = createSeededRandom(seed * 1000);
  const audit = createFakeAudit(store);
  const approvals = new StoredApprovals({
    ...{ store, clock, random, log },
    metrics: createMetrics(),
    audit: audit.append,
    news: options.cluster && new SharedApprovalNews({ store, clock, log, bus: options.cluster.cluster.bus }),
  });
  const { runs, executor } = supervised(options.script ?? [], {
    store,
    clock,
    log,
    seed: seed * 1000 + 1,
    tools: options.tools ?? [],
    ...(options.cluster === undefined ? {} : { cluster: options.cluster.member }),
    approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: 60_000, durable: 3_600_000 }) }),
  });
  const tools = { ...executor, masked: options.masked ?? executor.masked };
  const sops = new ProcedureService({
    kit: { clock, random, log },
    store,
    approvals,
    files: createFiles({ clock, home: "/home/nobody", ownPaths: [] }),
    scopesOf: options.scopesOf ?? (() => SCOPES),
    runs: () => (options.hasAgent === false ? undefined : runs),
    tools: () => tools,
    work: options.cluster?.cluster.work,
    workspaceRoot: workspace.root,
    dataDir: workspace.path("data"),
    settings: () => ({
      dirs: [workspace.path("own")],
      approvalTimeoutMs: 3_600_000,
      forbiddenPaths: [],
      retentionDays: 30,
    }),
  });
  return {
    sops,
    runs,
    approvals,
    clock,
    store,
    execute: async (sop, inputs = {}) => (await sops.execute({ ...BY_AGENT, sop, inputs })).id,
    async until(id, status) {
      const isThere = typeof status === "function" ? status : (view: SopExecutionView) => view.status === status;
      let view = await sops.status(id, BY_AGENT);
      await until(
        async () => isThere(view = await sops.status(id, BY_AGENT)),
        () => `It never came to that: ${JSON.stringify(view, null, 1)}`,
      );
      return view;
    },
  };
}

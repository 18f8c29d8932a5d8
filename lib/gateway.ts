import { accessWing } from "./access/access_services.ts";
import { automationWing, recoveryWing } from "./automation/automation_services.ts";
import { cancelError, SHUTTING_DOWN } from "./base/cancel.ts";
import { ConfigError } from "./base/errors.ts";
import { lazily } from "./base/lazily.ts";
import { defineWing, type OpenedList, openInSteps, startInOrder } from "./base/opened_list.ts";
import { type Coordination, createAlone } from "./coordination.ts";
import { extensionsWing } from "./extensions/open_extensions.ts";
import { createBase, foldersWing, type GatewayBase, kitWing, markerWing, rekey, storageWing } from "./gateway_base.ts";
import { createFacts, drain, drainWing, reloadsWing, stateReasonOf } from "./gateway_state.ts";
import { guardWing } from "./guard/guard_services.ts";
import { memoryWing } from "./memory/memory_services.ts";
import type { ClusterNeeds } from "./open_cluster.ts";
import { modelsWing } from "./providers/provider_services.ts";
import { createStoredRuns } from "./runs/journal/stored_runs.ts";
import { conversationsWing, feedWing, runsWing, subAgentsWing, workWing } from "./runs/run_services.ts";
import type { GatewayServices, ServicesOptions } from "./services.ts";
import { systemWing } from "./system/system_services.ts";
import { secretsWing, toolServicesWing, toolsWing } from "./tools/create_tools.ts";

/**
 * Builds the services of one gateway and hands them to each other. Holds the data directory's lock until `close()`.
 *
 * A start that fails at any step leaves nothing open.
 * @throws {ConfigError} see `openStore`, and a provider that cannot be used; {CancelError} the signal aborted during a wait
 */
export async function createServices(options: ServicesOptions): Promise<GatewayServices> {
  const { signal } = options;
  try {
    return await openInSteps(async (opened) => {
      const started = new AbortController();
      const base = await createBase(options, { opened, started: started.signal });
      const made = await startWings(base, opened);
      started.abort();
      return toServices(made, opened.close);
    });
  } catch (error) {
    // A wait that was cut off ends as if the database were away
    throw signal?.aborted === true && !(error instanceof ConfigError) ? cancelError(signal) : error;
  }
}

/** Starts the wings in this order, and so closes them in the reverse one. A wing is this one line, and its needs are in its own file. */
function startWings(base: GatewayBase, opened: OpenedList) {
  return startInOrder(base, opened, [
    storageWing,
    clusterWing,
    kitWing,
    foldersWing,
    guardWing,
    accessWing,
    markerWing,
    systemWing,
    workWing,
    automationWing,
    secretsWing,
    extensionsWing,
    memoryWing,
    subAgentsWing,
    toolServicesWing,
    toolsWing,
    modelsWing,
    feedWing,
    runsWing,
    recoveryWing,
    conversationsWing,
    drainWing,
    reloadsWing,
  ]);
}

/** This gateway among those of its database. A gateway alone loads nothing of clusters. */
const clusterWing = defineWing({
  name: "cluster",
  async start(needs: ClusterNeeds, opened): Promise<Coordination> {
    const { local: { clock }, storage: { store, shared } } = needs;
    if (shared === undefined) return createAlone({ clock, store });
    const { openCluster } = await import("./open_cluster.ts");
    return await openCluster(needs, { opened, shared });
  },
});

/** Returns the services of started wings. */
function toServices(
  made: Awaited<ReturnType<typeof startWings>>,
  close: GatewayServices["close"],
): GatewayServices {
  const { program, kit, telemetry, state, storage, cluster, guard, access, system } = made;
  const { automation, extensions, memory, models, runs, reloads } = made;
  const tools = made.tools.executor;
  const startedAt = kit.clock.now();
  return {
    version: program.version,
    programName: program.programName ?? "postern",
    clock: kit.clock,
    random: kit.random,
    log: kit.log,
    metrics: kit.metrics,
    recentLog: telemetry.recentLog,
    redactor: telemetry.redactor,
    environment: kit.environment,
    config: made.config,
    reload: reloads.reload,
    store: storage.store,
    rekey: (by) => rekey(made, by),
    sharedWindows: cluster.sharedWindows,
    cluster,
    tokens: access.tokens,
    pairing: access.pairing,
    tickets: access.tickets,
    audit: guard.audit,
    approvals: guard.approvals,
    taintedFiles: guard.taintedFiles,
    tools,
    calls: lazily(async () => {
      const { ClientCalls } = await import("./runs/client_calls.ts");
      return new ClientCalls({ tools, approvals: guard.approvals, cluster, config: made.config, ...kit });
    }),
    async turnOnTool(name, by) {
      const { turnOnTool } = await import("./tools/turn_on_tool.ts");
      const parts = { tools, writer: program.configWriter, reload: reloads.reload, audit: guard.audit.append };
      return await turnOnTool(name, by, parts);
    },
    offers: program.offers ?? { prompts: new Map(), resources: [] },
    cron: automation.cron,
    deliveries: automation.deliveries,
    webhooks: lazily(async () => {
      const { Webhooks } = await import("./automation/channels/webhooks.ts");
      return new Webhooks({ ...kit, store: storage.store, config: made.config, deliveries: automation.deliveries });
    }),
    containment: system.containment,
    listensOn: system.ownAddress.listensOn,
    browserOf: (runId) => system.browsers.view(runId),
    conversations: made.conversations,
    memory: memory.memory,
    browserLogins: memory.browserLogins,
    nodes: extensions.nodes,
    plugins: extensions.plugins.load,
    mcpServers: extensions.mcpOperator,
    learningTools: () => extensions.mcp.now?.learning(),
    mcpSignIn: extensions.mcpSignIn,
    skills: extensions.skills.load,
    instructions: extensions.instructions.load,
    storedRuns: createStoredRuns({ store: storage.store, history: () => cluster.ownership.history() }),
    agent: models.live && runs && { providers: models.live.providers, runs },
    trustModelServer: (address, by) => models.trust(address, guard.recordServerTrust(by)),
    startedAt,
    workspaceRoot: program.workspaceRoot,
    facts: createFacts(made, startedAt),
    isDraining: () => made.state.draining !== undefined,
    stateReason: () => stateReasonOf(made),
    onDrain: (listener) => void state.drainListeners.push(listener),
    beginDrain: () => void (state.draining ??= SHUTTING_DOWN),
    drain: (graceMs) => drain(made, graceMs),
    close,
  };
}

import { accessWing } from "./access/access_services.ts";
import { automationWing, recoveryWing } from "./automation/automation_services.ts";
import { cancelError, SHUTTING_DOWN } from "./base/cancel.ts";
import { ConfigError } from "./base/errors.ts";
import { lazily } from "./base/lazily.ts";
import { type OpenedList, openInSteps, startInOrder } from "./base/opened_list.ts";
import { extensionsWing } from "./extensions/open_extensions.ts";
import {
  clusterWing,
  createBase,
  foldersWing,
  type GatewayBase,
  kitWing,
  markerWing,
  rekey,
  storageWing,
} from "./gateway_base.ts";
import { createFacts, drain, drainWing, haltWing, reloadsWing, stateReasonOf, watchWing } from "./gateway_state.ts";
import { guardWing } from "./guard/guard_services.ts";
import { memoryWing } from "./memory/memory_services.ts";
import { modelsWing } from "./providers/provider_services.ts";
import { createStoredRuns } from "./runs/journal/stored_runs.ts";
import { conversationsWing, feedWing, runsWing, subAgentsWing, workWing } from "./runs/run_services.ts";
import type { GatewayServices, ServicesOptions } from "./services.ts";
import { systemWing } from "./system/system_services.ts";
import { createWrittenReader, secretsWing, toolServicesWing, toolsWing } from "./tools/create_tools.ts";

/**
 * Builds the services of one gateway and hands them to each other. Holds the data directory's lock until `close()`.
 *
 * A start that fails at any step leaves nothing open.
 * @throws {ConfigError} see `openStore`, and a provider that cannot be used; {CancelError} the signal aborted during a wait
 */
export async function createServices(options: ServicesOptions): Promise<GatewayServices> {
  try {
    return await openInSteps(async (opened) => {
      const started = new AbortController();
      const base = await createBase(options, { opened, started: started.signal });
      const made = await startWings(base, opened);
      started.abort();
      return toServices(made, opened.close);
    });
  } catch (error) {
    // A wait that was cut off ends as if the database were down
    throw options.signal?.aborted === true && !(error instanceof ConfigError) ? cancelError(options.signal) : error;
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
    haltWing,
    recoveryWing,
    conversationsWing,
    drainWing,
    watchWing,
    reloadsWing,
  ]);
}

type Started = Awaited<ReturnType<typeof startWings>>;

/** Returns the services of started wings. */
function toServices(made: Started, close: GatewayServices["close"]): GatewayServices {
  const { program, kit, telemetry, state, storage, cluster, guard, access, system } = made;
  const { automation, extensions, memory, models, runs, reloads, tools: { executor: tools } } = made;
  const startedAt = kit.clock.now();
  return {
    version: program.about.version,
    programName: program.about.programName ?? "postern",
    ...kit,
    recentLog: telemetry.recentLog,
    redactor: telemetry.redactor,
    config: made.config,
    reload: reloads.reload,
    store: storage.store,
    rekey: (by) => rekey(made, by),
    sharedWindows: cluster.sharedWindows,
    cluster,
    ...access,
    audit: guard.audit,
    approvals: guard.approvals,
    answerLinks: guard.answerLinks,
    halts: guard.halts,
    taintedFiles: guard.taintedFiles,
    tools,
    readWritten: createWrittenReader(made),
    calls: lazily(async () => {
      const { ClientCalls } = await import("./runs/client_calls.ts");
      return new ClientCalls({ tools, approvals: guard.approvals, cluster, config: made.config, ...kit });
    }),
    async turnOnTool(name, by) {
      const { turnOnTool } = await import("./tools/turn_on_tool.ts");
      const parts = { tools, writer: program.configWriter, reload: reloads.reload, audit: guard.audit.append };
      return await turnOnTool(name, by, parts);
    },
    offers: program.additions?.offers ?? { prompts: new Map(), resources: [] },
    cron: automation.cron,
    deliveries: automation.deliveries,
    webhooks: automation.webhooks,
    containment: system.containment,
    listensOn: system.ownAddress.listensOn,
    browserOf: (runId) => system.browsers.view(runId),
    conversations: made.conversations,
    ...{ memory: memory.memory, browserLogins: memory.browserLogins, uploads: memory.uploads },
    nodes: extensions.nodes,
    plugins: extensions.plugins.load,
    mcpServers: extensions.mcpOperator,
    learningTools: () => extensions.mcp.now?.learning(),
    mcpSignIn: extensions.mcpSignIn,
    skills: extensions.skills.load,
    instructions: extensions.instructions.load,
    storedRuns: createStoredRuns({ store: storage.store, history: () => cluster.ownership.history() }),
    agent: models.live && runs && {
      ...{ providers: models.live.providers, runs },
      files: { uploads: memory.uploads, workers: system.workers },
    },
    trustModelServer: (address, by) => models.trust(address, guard.recordServerTrust(by)),
    workspaceRoot: made.folders.workspaceRoot,
    startedAt,
    facts: createFacts(made, startedAt),
    isDraining: made.isDraining,
    stateReason: () => stateReasonOf(made),
    onDrain: (listener) => void state.drainListeners.push(listener),
    beginDrain: () => void (state.draining ??= SHUTTING_DOWN),
    drain: (graceMs) => drain(made, graceMs),
    close,
  };
}

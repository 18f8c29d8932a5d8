import type { Kit } from "../base/kit.ts";
import { closeMade, lazily } from "../base/lazily.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Redactor } from "../base/redact.ts";
import type { Config } from "../config/config.ts";
import { type ExtensionPlaces, pluginFolders, skillFolders } from "../config/folders.ts";
import type { AuditAppend } from "../guard/audit/audit_chain.ts";
import type { GuardServices } from "../guard/guard_services.ts";
import type { Documents } from "../storage/documents.ts";
import type { RecordCipher } from "../storage/record_cipher.ts";
import type { RecordKeyName } from "../storage/record_keys.ts";
import type { Store } from "../storage/store.ts";
import { isAnyFolder } from "../system/files/appearing_folder.ts";
import type { SystemServices } from "../system/system_services.ts";
import { joinTools, type LateTools, openLateTools } from "../tools/late_tools.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { McpReader } from "../tools/mcp/mcp_reader.ts";
import type { WasmModules } from "../tools/wasm/wasm_modules.ts";
import type { ToolSecrets } from "../tools/secrets/tool_secrets.ts";
import type { WorkspaceInstructions } from "./instructions/workspace_instructions.ts";
import { LateMcpServers } from "./late_mcp_servers.ts";
import type { McpOperator } from "./mcp/mcp_operator.ts";
import type { McpSignIn } from "./mcp/oauth/sign_in.ts";
import type { Nodes } from "./nodes/nodes.ts";
import type { SharedNodes, SharedNodesOptions } from "./nodes/shared_nodes.ts";
import type { PluginServices } from "./plugins/plugin_services.ts";
import type { SkillOffer, Skills } from "./skills/skills.ts";

/** Other people's tools, each kind loaded when there is one of it. */
export interface Extensions {
  /** Returns the tools of all kinds. The same array until they change. */
  tools(): readonly Tool[];
  /** Other machines that offer their tools. Undefined while `[gateway.node_control]` is off. */
  readonly nodes: Nodes | undefined;
  readonly plugins: LateTools<PluginServices>;
  /** MCP servers, which follow the configuration. */
  readonly mcp: LateMcpServers;
  /** MCP servers as the operator sees and changes them; loaded at the first call. */
  readonly mcpOperator: () => Promise<McpOperator>;
  /** Prompts and resources of MCP servers. */
  readonly mcpReader: McpReader;
  /** Sign-ins of people to MCP servers by `url`. Loaded at its first use. */
  readonly mcpSignIn: LateSignIn;
  /** WASM modules of `[runtime.wasm] tools_dir`. */
  readonly wasmModules: WasmModules;
  readonly skills: LateSkills;
  readonly instructions: LateInstructions;
}

/** Instructions of the workspace, which are loaded when they are asked for, or when a run begins that may be told of them. */
export interface LateInstructions {
  load(): Promise<WorkspaceInstructions>;
  /** Returns the part of the system prompt for a run that begins now; empty: none. */
  offer(): Promise<string>;
}

/** Sign-ins of people to MCP servers, which are loaded at their first use. */
export type LateSignIn = Pick<McpSignIn, "begin" | "complete" | "remove" | "provider" | "credential" | "state">;

/** Skills, which are loaded when they are asked for, or when a run begins and there is a folder of them. */
export interface LateSkills {
  load(): Promise<Skills>;
  /** Returns what a run that begins now is told of skills. */
  offer(): Promise<SkillOffer>;
}

/** Gateways that have the same nodes. */
export interface NodesCluster {
  /** Opens the way to the nodes that are connected to others. Undefined: there are no others */
  shareNodes(
    parts: Omit<SharedNodesOptions, "cluster"> & { readonly opened: OpenedList },
  ): SharedNodes | undefined | Promise<SharedNodes>;
}

/** Needs of `extensionsWing`. */
export interface ExtensionsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: {
    readonly store: Store;
    readonly documents: Documents;
    /** Opens the cipher of one kind of records. @throws {ConfigError} a key that cannot be used */
    readonly keys: { readonly cipherOf: (name: RecordKeyName) => Promise<RecordCipher> };
  };
  readonly telemetry: { readonly redactor: Pick<Redactor, "replace" | "part" | "redact"> };
  readonly folders: ExtensionPlaces;
  readonly guard: Pick<GuardServices, "taintedFiles" | "trustedDocuments"> & {
    readonly audit: { readonly append: AuditAppend };
  };
  readonly system: Pick<SystemServices, "files" | "processes" | "workers" | "git" | "urls" | "guardedFetch">;
  readonly secrets: ToolSecrets;
  readonly cluster: NodesCluster;
}

/** Tools of others: nodes, plugins, MCP servers, WASM modules, skills. */
export const extensionsWing = defineWing({ name: "extensions", start: openExtensions });

/** Opens the extensions that there are. The others are left for their first use. */
async function openExtensions(needs: ExtensionsNeeds, opened: OpenedList): Promise<Extensions> {
  const { config, telemetry } = needs;
  const nodes = config().gateway.node_control.enabled ? await openNodes(needs, opened) : undefined;
  const plugins = await openPlugins(needs, opened);
  const mcpSignIn = openSignIn(needs, { opened, onAccount: (server) => void mcp.now?.accountChanged(server) });
  const mcp: LateMcpServers = openMcp(needs, { opened, signIn: mcpSignIn });
  await mcp.open();
  const reader = lazily(async () => {
    const { ServerReader } = await import("./mcp/server_reader.ts");
    return new ServerReader(() => mcp.now, (text) => telemetry.redactor.redact(text));
  });
  return {
    nodes,
    plugins,
    mcp,
    mcpOperator: openMcpOperator(needs, { mcp, signIn: mcpSignIn }),
    mcpReader: {
      prompts: async (...given) => await (await reader()).prompts(...given),
      prompt: async (...given) => await (await reader()).prompt(...given),
      resources: async (...given) => await (await reader()).resources(...given),
      resource: async (...given) => await (await reader()).resource(...given),
    },
    mcpSignIn,
    wasmModules: openWasmModules(needs, opened),
    skills: openSkills(needs, opened),
    instructions: openInstructions(needs),
    tools: joinTools([{ now: nodes }, plugins, mcp]),
  };
}

async function openNodes(needs: ExtensionsNeeds, opened: OpenedList): Promise<Nodes> {
  const { kit: { clock, log, metrics, environment }, config, storage: { store }, guard, cluster } = needs;
  const { createConfiguredNodes } = await import("./nodes/nodes.ts");
  const parts = { clock, log, metrics, config, environment, audit: guard.audit.append, opened };
  return createConfiguredNodes({ ...parts, shared: await cluster.shareNodes({ store, clock, log, opened }) });
}

/** Leaves the sign-ins to MCP servers for their first use. @param onAccount told of the server whose account has changed */
function openSignIn(
  needs: ExtensionsNeeds,
  { opened, onAccount }: { readonly opened: OpenedList; readonly onAccount: (server: string) => void },
): LateSignIn {
  const { kit: { clock, random, log, environment }, config, storage: { store, keys }, telemetry, secrets } = needs;
  const load = lazily(async () => {
    const { McpSignIn } = await import("./mcp/oauth/sign_in.ts");
    // No backup has the file of this key: what a backup holds of sign-ins cannot be opened
    const cipher = () => keys.cipherOf("mcp_credentials.key");
    return new McpSignIn({
      ...{ clock, random, log, environment, config, store, secrets, cipher, onAccount },
      guardedFetch: needs.system.guardedFetch,
      audit: needs.guard.audit.append,
      onTokens: telemetry.redactor.replace,
    });
  });
  opened.own(load, closeMade);
  return {
    begin: async (...given) => await (await load()).begin(...given),
    complete: async (...given) => await (await load()).complete(...given),
    remove: async (...given) => await (await load()).remove(...given),
    provider: async (...given) => await (await load()).provider(...given),
    credential: async (...given) => await (await load()).credential(...given),
    state: async (...given) => await (await load()).state(...given),
  };
}

/** Makes the MCP servers, which are opened later. */
function openMcp(
  needs: ExtensionsNeeds,
  { opened, signIn }: { readonly opened: OpenedList; readonly signIn: LateSignIn },
): LateMcpServers {
  const { kit: { clock, log, metrics, environment }, config, storage: { store }, telemetry, secrets } = needs;
  const { dataDir, workspaceRoot, home } = needs.folders;
  return new LateMcpServers({
    ...{ clock, log, metrics, environment, config, store, secrets, signIn, opened, dataDir, workspaceRoot, home },
    processes: needs.system.processes,
    guardedFetch: needs.system.guardedFetch,
    audit: needs.guard.audit.append,
    redactor: telemetry.redactor,
  });
}

/** Leaves the operator's view of MCP servers for its first use. */
function openMcpOperator(
  { kit: { clock }, config, storage: { store }, guard }: ExtensionsNeeds,
  { mcp, signIn }: { readonly mcp: LateMcpServers; readonly signIn: LateSignIn },
): () => Promise<McpOperator> {
  const audit = guard.audit.append;
  return lazily(async () => {
    const [{ McpOperator }, { ServerSwitches }] = await Promise.all([
      import("./mcp/mcp_operator.ts"),
      import("./mcp/server_switches.ts"),
    ]);
    const switches = new ServerSwitches({ store, clock, audit });
    const options = { ...{ config, store, audit, signIn, switches }, servers: () => mcp.now };
    return new McpOperator(options, await switches.disabled());
  });
}

/** Collection of plugins that were installed, enabled or disabled. Its module is not loaded where there is none. */
const PLUGINS = "plugins";

/** Opens the plugins where there are some, and otherwise leaves them for their first use. */
async function openPlugins(needs: ExtensionsNeeds, opened: OpenedList): Promise<LateTools<PluginServices>> {
  const { kit: { clock, random, log }, config, storage: { store }, guard, system, secrets } = needs;
  const { dataDir, workspaceRoot, home } = needs.folders;
  const folders = pluginFolders(config().plugins.user_dir, needs.folders);
  return await openLateTools({
    ...{ clock, log, opened },
    load: async () => {
      const { createPluginServices } = await import("./plugins/plugin_services.ts");
      const { processes, workers, files, guardedFetch } = system;
      return await createPluginServices({
        ...{ clock, random, log, config, store, dataDir, workspaceRoot, home },
        ...{ processes, workers, files, guardedFetch, secrets },
        taintedFiles: guard.taintedFiles,
        audit: guard.audit.append,
        redact: needs.telemetry.redactor.part,
      });
    },
    isNeeded: async () => await store.count(PLUGINS) > 0,
    folders: Object.values(folders),
    awaited: folders.workspace,
  });
}

/** Leaves the instructions of the workspace for their first use. */
function openInstructions({ kit: { log }, config, folders, guard, system }: ExtensionsNeeds): LateInstructions {
  const load = lazily(async () => {
    const { WorkspaceInstructions } = await import("./instructions/workspace_instructions.ts");
    const { workspaceRoot } = folders;
    return new WorkspaceInstructions({
      ...{ config, log, workspaceRoot, files: system.files },
      trustedDocuments: guard.trustedDocuments,
    });
  });
  return {
    load,
    offer: async () => config().agent.workspace_instructions ? await (await load()).offer() : "",
  };
}

/** Age of a look for folders that is new enough, in ms. */
const SKILL_LOOK_MS = 1_000;
const NO_SKILLS: SkillOffer = { prompt: "", isAny: false };

/** Leaves the skills for their first use. */
function openSkills(needs: ExtensionsNeeds, opened: OpenedList): LateSkills {
  const { kit: { clock, random, log }, config, storage: { store, documents }, folders, guard, system } = needs;
  const load = lazily(async () => {
    const { Skills } = await import("./skills/skills.ts");
    const { dataDir, workspaceRoot, home } = folders;
    const { processes, git, urls } = system;
    return await Skills.open({
      ...{ clock, random, log, config, store, documents, dataDir, workspaceRoot, home, processes, git, urls },
      audit: guard.audit.append,
      trustedDocuments: guard.trustedDocuments,
    });
  });
  opened.own(load, closeMade);
  let lookedAt = -Infinity;
  return {
    load,
    async offer() {
      try {
        if (load.made() === undefined) {
          if (clock.monotonic() - lookedAt < SKILL_LOOK_MS) return NO_SKILLS;
          lookedAt = clock.monotonic();
          const places = skillFolders(config().skills.dirs, folders).map(({ path }) => path);
          if (!await isAnyFolder(places)) return NO_SKILLS;
        }
        return await (await load()).offer();
      } catch (error) {
        // A run without skills is better than none
        log.error("The skills cannot be read", { error });
        return NO_SKILLS;
      }
    },
  };
}

/** Leaves the WASM modules of `[runtime.wasm] tools_dir` for their first use. */
function openWasmModules(needs: ExtensionsNeeds, opened: OpenedList): WasmModules {
  const { kit: { clock, log }, telemetry, guard: { taintedFiles }, system } = needs;
  const load = lazily(async () => {
    const { ToolModules } = await import("./plugins/wasm/tool_modules.ts");
    const { files, guardedFetch, workers } = system;
    return new ToolModules({
      ...{ clock, log, files, guardedFetch, workers, taintedFiles },
      redact: telemetry.redactor.part,
    });
  });
  opened.own(load, closeMade);
  return {
    list: async (...given) => await (await load()).list(...given),
    inspect: async (...given) => await (await load()).inspect(...given),
    load: async (...given) => await (await load()).load(...given),
    call: async (...given) => await (await load()).call(...given),
  };
}

import type { Kit } from "../base/kit.ts";
import { lazily } from "../base/lazily.ts";
import { defineWing } from "../base/opened_list.ts";
import type { WrittenFile } from "../base/records/agent_event.ts";
import type { Redactor } from "../base/redact.ts";
import type { Config } from "../config/config.ts";
import type { GuardServices } from "../guard/guard_services.ts";
import type { MemoryServices } from "../memory/memory_services.ts";
import type { Documents } from "../storage/documents.ts";
import type { SystemServices } from "../system/system_services.ts";
import type { SubAgents } from "./agents/sub_agents.ts";
import { BUILTIN_TOOLS } from "./builtin.ts";
import type { ReadWrittenOptions } from "./files/read_written.ts";
import type { McpReader } from "./mcp/mcp_reader.ts";
import { createToolExecutor } from "./runtime/create_tool_executor.ts";
import { createDrainableExecutor, type DrainableExecutor } from "./runtime/drainable_executor.ts";
import type { SharedCalls } from "./runtime/shared_calls.ts";
import type { Tool, ToolServices } from "./runtime/tool.ts";
import type { ToolExecutor } from "./runtime/tool_executor.ts";
import type { ToolSecrets } from "./secrets/tool_secrets.ts";
import type { ReadableSkills } from "./skills/skills.ts";
import type { WasmModules } from "./wasm/wasm_modules.ts";

/** Needs of `toolsWing`. */
export interface ToolsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly program: {
    /** Tools of the program that mounts the gateway. Default: none */
    readonly additions?: { readonly tools?: readonly Tool[] | undefined } | undefined;
    /** Writer of the configuration file. Default: nobody writes it */
    readonly configWriter?: unknown;
    readonly about: { readonly programName?: string | undefined };
  };
  readonly folders: { readonly workspaceRoot: string; readonly home: string; readonly ownPaths: readonly string[] };
  readonly telemetry: { readonly redactor: Redactor };
  readonly guard: Pick<GuardServices, "approvals" | "audit" | "halts" | "taintedFiles" | "trustedDocuments">;
  /** Tools of others. */
  readonly extensions: { readonly tools: () => readonly Tool[] };
  readonly toolServices: Omit<ToolServices, "catalogue">;
  /** Undefined: the gateway is alone */
  readonly cluster: { readonly sharedCalls: SharedCalls | undefined };
}

/** The executor of the built-in tools and of those of others. */
export const toolsWing = defineWing({ name: "tools", start: createTools });

/** Creates the executor, which a shutdown can wait for. */
function createTools(needs: ToolsNeeds): DrainableExecutor {
  const { kit: { clock, log, metrics }, config, program, folders, telemetry, guard, extensions } = needs;
  const { workspaceRoot, home, ownPaths } = folders;
  const { tools: own } = program.additions ?? {};
  const executor = createToolExecutor({
    ...{ clock, log, metrics, config, workspaceRoot, home, ownPaths },
    tools: [...BUILTIN_TOOLS, ...own ?? []],
    foreign: withoutNames(extensions.tools, own),
    services: needs.toolServices,
    writesConfig: program.configWriter !== undefined,
    programName: program.about.programName,
    remembered: (...call) => guard.approvals.remembered(...call),
    taintedFiles: guard.taintedFiles,
    isTrustedFile: (file) => guard.trustedDocuments.isTrusted(file),
    redact: telemetry.redactor.redact,
    audit: guard.audit.append,
    shared: needs.cluster.sharedCalls,
    halts: guard.halts,
  });
  return createDrainableExecutor(executor, { clock, halts: guard.halts });
}

/** Needs of `createWrittenReader`. */
export interface WrittenReaderNeeds extends Pick<ToolsNeeds, "config" | "telemetry"> {
  readonly folders: Pick<ToolsNeeds["folders"], "workspaceRoot">;
  readonly system: Pick<SystemServices, "files">;
  readonly tools: { readonly executor: Pick<ToolExecutor, "explain"> };
  readonly cluster: {
    readonly id: string | undefined;
    readonly membership: () => { readonly id: string } | undefined;
  };
}

/** Returns what reads the files that runs wrote; loaded at the first call. */
export function createWrittenReader({ config, telemetry, folders, system, tools, cluster }: WrittenReaderNeeds) {
  return async (
    file: WrittenFile,
    of: Pick<ReadWrittenOptions, "workspace" | "signal">,
  ): Promise<Uint8Array<ArrayBuffer>> => {
    const { readWritten } = await import("./files/read_written.ts");
    const { workspaceRoot } = folders;
    const door = { tools: tools.executor, files: system.files, redactor: telemetry.redactor, config, workspaceRoot };
    const { id } = cluster;
    const gateway = id === undefined ? undefined : { id, workspace: cluster.membership()?.id };
    return await readWritten(file, { ...door, ...of, gateway });
  };
}

/** Needs of `toolServicesWing`. */
export interface ToolServicesNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly documents: Documents };
  readonly telemetry: { readonly redactor: Redactor };
  readonly system: Omit<SystemServices, "ownAddress" | "containment">;
  readonly memory: Omit<MemoryServices, "vectors">;
  readonly secrets: ToolSecrets;
  readonly subAgents: SubAgents;
  readonly automation: { readonly cron: ToolServices["schedules"]; readonly sops: ToolServices["sops"] };
  readonly extensions: {
    readonly wasmModules: WasmModules;
    readonly mcpReader: McpReader;
    readonly skills: { readonly load: () => Promise<ReadableSkills> };
  };
}

/** Services of which each tool gets those that it needs. */
export const toolServicesWing = defineWing({ name: "toolServices", start: servicesOf });

/** Collects the services. The access to boards is loaded at its first use. */
function servicesOf(needs: ToolServicesNeeds): Omit<ToolServices, "catalogue"> {
  const { kit: { clock, environment }, config, storage, telemetry, system, memory, automation, extensions } = needs;
  const boards = lazily(async () => {
    const { createBoards } = await import("../hardware/boards.ts");
    return createBoards({ config, clock });
  });
  return {
    files: system.files,
    commands: system.commands,
    processes: system.processes,
    workers: system.workers,
    git: system.git,
    desktop: system.desktop,
    urls: system.urls,
    browsers: system.browsers,
    guardedFetch: system.guardedFetch,
    proxyOf: system.proxyOf,
    environment,
    documents: storage.documents,
    redactor: telemetry.redactor,
    secrets: needs.secrets,
    memory: memory.memory,
    plans: memory.plans,
    mailbox: memory.mailbox,
    commandFolders: memory.commandFolders,
    cookieJars: memory.cookieJars,
    browserLogins: memory.browserLogins,
    schedules: automation.cron,
    sops: automation.sops,
    subAgents: needs.subAgents,
    boards: {
      attach: async (...given) => await (await boards()).attach(...given),
      host: async (...given) => await (await boards()).host(...given),
    },
    wasmModules: extensions.wasmModules,
    mcpReader: extensions.mcpReader,
    skills: { read: async (name, path) => await (await extensions.skills.load()).read(name, path) },
  };
}

/** Returns the foreign tools without those whose name the program's own tools have: the program is nearer than a plugin. */
function withoutNames(foreign: () => readonly Tool[], own: readonly Tool[] = []): () => readonly Tool[] {
  if (own.length === 0) return foreign;
  const names = new Set(own.map(({ name }) => name));
  let known: readonly Tool[] | undefined;
  let kept: readonly Tool[] = [];
  return () => {
    const newest = foreign();
    if (newest !== known) kept = newest.filter(({ name }) => !names.has(name));
    known = newest;
    return kept;
  };
}

/** Needs of `secretsWing`. */
export interface SecretsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  /** The gateway's environment, of which the command of a secret gets a part */
  readonly program: { readonly environment: Readonly<Record<string, string | undefined>> };
  readonly folders: { readonly home: string };
  readonly telemetry: { readonly redactor: Pick<Redactor, "add" | "replace"> };
  readonly system: Pick<SystemServices, "guardedFetch" | "commands">;
}

/** The store of secrets for tools and extensions. */
export const secretsWing = defineWing({ name: "secrets", start: createLazySecrets });

/** Creates the store of secrets, which is loaded at its first use. */
function createLazySecrets(needs: SecretsNeeds): ToolSecrets {
  const { kit: { clock, environment }, config, program, folders: { home }, telemetry: { redactor }, system } = needs;
  const { guardedFetch, commands } = system;
  const loaded = lazily(async () => {
    const { SecretStore } = await import("./secrets/tool_secrets.ts");
    const run = async (words: readonly string[], signal: AbortSignal) => {
      const { runOwnCommand } = await import("../system/process/own_command.ts");
      return await runOwnCommand({ words, home, environment: program.environment, commands, clock, signal });
    };
    return new SecretStore({
      config,
      clock,
      environment,
      guardedFetch,
      onSecret: redactor.add,
      onTokens: redactor.replace,
      run,
    });
  });
  return {
    value: async (...given) => await (await loaded()).value(...given),
    fill: async (...given) => await (await loaded()).fill(...given),
    guard: async (...given) => await (await loaded()).guard(...given),
    token: async (...given) => await (await loaded()).token(...given),
    dropToken: async (...given) => await (await loaded()).dropToken(...given),
  };
}

import type { ClientAbility, ToolInfo } from "../../base/records/tool_info.ts";
import type { Clock } from "../../base/clock.ts";
import type { BoundState } from "../../base/records/approval.ts";
import type { JsonSchema, ObjectJsonSchema } from "../../base/json.ts";
import type { KnownSecrets } from "../../base/redact.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { Access, Effects } from "../../guard/policy.ts";
import type { Boards } from "../../hardware/boards.ts";
import type { BrowserLogins } from "../../memory/browser_logins.ts";
import type { CommandFolders } from "../../memory/command_folders.ts";
import type { CookieJars } from "../../memory/cookie_jars.ts";
import type { Mailbox } from "../../memory/mailbox.ts";
import type { Memory } from "../../memory/memory.ts";
import type { Plans } from "../../memory/plans.ts";
import type { Documents } from "../../storage/documents.ts";
import type { Browsers } from "../../system/browser/browsers.ts";
import type { Desktop } from "../../system/desktop/desktop.ts";
import type { Files } from "../../system/files/files.ts";
import type { Git } from "../../system/git/git.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import type { ProxyChoice } from "../../system/net/proxy_choice.ts";
import type { UrlPolicy } from "../../system/net/url_policy.ts";
import type { CommandLookup } from "../../system/process/command_lookup.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { Workers } from "../../system/process/workers.ts";
import type { ToolSecrets } from "../secrets/tool_secrets.ts";
import type { SubAgents } from "../agents/sub_agents.ts";
import type { Schedules } from "../schedule/schedules.ts";
import type { ReadableSkills } from "../skills/skills.ts";
import type { Sops } from "../sops/sops.ts";
import type { McpReader } from "../mcp/mcp_reader.ts";
import type { WasmModules } from "../wasm/wasm_modules.ts";
import type { CallContext, CheckedCall, ToolResult } from "./tool_call.ts";

export type { Access, Effects };

/** Capability of the agent, built in or foreign (docs/design/architecture.md "The main types"). */
export interface Tool {
  readonly name: string;
  readonly description: string;
  /** Access that lists show. The access of one call is in its PreparedCall */
  readonly access: Access;
  /** Returns the access that a configuration gives to every call and to lists, when that is wider. Default: it gives none */
  readonly accessUnder?: ((config: Config) => Access) | undefined;
  /** Returns the description for the model under a configuration. Default: `description` */
  readonly descriptionUnder?: ((config: Config) => string) | undefined;
  /** Returns the sites that a configuration signs every call in to, which decisions and approvals name. Default: none */
  readonly loginsUnder?: ((config: Config) => readonly string[]) | undefined;
  readonly source: ToolInfo["source"];
  /** Tells whether the configuration enables the tool. Required, so that no tool is enabled by accident */
  readonly enabled: "always" | ((config: Config) => boolean);
  /** Setting that enables the tool, such as `[security.write_file] enabled = true`. undefined for `always` */
  readonly enabledBy: string | undefined;
  /** Returns the edit or command that turns the tool on now, where no single setting does. Default: to set `enabledBy` */
  readonly wayOn?: ((config: Config) => string) | undefined;
  /** Owner of the tool, such as `plugin words 1.0.0`. Default: Postern's own */
  readonly origin?: string | undefined;
  /** True when the output comes from outside though the access is not `network`. Default false */
  readonly outside?: boolean | undefined;
  /** True when an output that is no error is what was read, without a word of the input: its links are none of the model's. Default false */
  readonly verbatim?: boolean | undefined;
  /** Name that the tool is called by in a run whose client has a tool of its name. Default: the client's hides it */
  readonly otherName?: string | undefined;
  /** True when the model is told of the tool in each turn. Default false: `tool_search` finds it in a run with many tools */
  readonly alwaysOffered?: boolean | undefined;
  /** Kinds of questions that a client of MCP must answer to call the tool. Default: none */
  readonly clientNeeds?: readonly ClientAbility[] | undefined;
  /**
   * True when calls need this machine: its workspace, programs, browser, devices, extensions. In a cluster, a run that may make such calls
   * stays in its workspace. Required, so that no tool leaves its files behind by accident
   */
  readonly local: boolean;
  /** Names of the services that the tool receives */
  readonly needs: readonly ServiceName[];
  readonly inputSchema: ObjectJsonSchema | undefined;
  /** Schema as the model is told of it: in fewer bytes, or any JSON Schema of somebody else. Default: `inputSchema` */
  readonly modelSchema?: JsonSchema | undefined;
  /** Milliseconds that one call may take. Default: the executor's limit */
  readonly timeoutMs?: ((config: Config) => number) | undefined;
  /** Parses and validates; has no effect. @throws {ToolError} bad input, naming the field */
  prepare(input: string): PreparedCall;
  /** Returns the call that a call of this tool stands for. undefined: it is a call of its own. Default: it always is. @throws {ToolError} as `prepare` */
  readonly standsFor?: ((input: string) => RealCall | undefined) | undefined;
  /**
   * Returns the input with what its conversation knows, as the folder that commands go on in: the call is made with it. Default: the input
   * is whole
   */
  readonly fill?: ((input: string, context: FillContext) => Promise<string>) | undefined;
  /** Prepares and runs in one. @throws {ToolError} */
  execute(input: string, context: ToolContext): Promise<ToolResult>;
}

/** Context of a call whose input is filled in. */
export type FillContext = Pick<ToolContext, "conversationId" | "config" | "services">;

/** Call that another one stands for: it is decided, approved and recorded under its own name. */
export interface RealCall {
  /** Name of the tool that is called */
  readonly tool: string;
  readonly input: string;
  readonly source: ToolInfo["source"];
  /** Owner without its version, such as `plugin words` */
  readonly owner: string;
}

/** Call with a checked input that can be made. The executor, the policy, the approval and the audit all use this one object. */
export interface PreparedCall extends CheckedCall {
  /**
   * Refuses a call that the newest configuration forbids, such as a command that is not allowed, before an approval is opened. Default:
   * refuses nothing. @throws {ToolError}
   */
  admit?(config: Config): void;
  /**
   * Looks on the disk, before an approval is opened, for reasons that refuse the call anyway. Default: looks at nothing.
   * @throws {ToolError}
   */
  screen?(context: ScreenContext): Promise<void>;
  /**
   * Returns the state that an approval is bound to beside the changed files, as the files that git would commit. Has no effect.
   * Default: none. @throws {ToolError} for a call that cannot run
   */
  bind?(context: ScreenContext & Pick<ToolContext, "signal">): Promise<BoundParts>;
  /** Returns the effects under a configuration, in place of `effects`. Default: those are the same under each. @throws {ToolError} bad input */
  effectsUnder?(config: Config): Effects;
  run(context: ToolContext): Promise<ToolResult>;
}

/** State that an approval is bound to beside the input and the changed files. */
export interface BoundParts {
  /** States that the person who answers is shown */
  readonly shown: readonly BoundState[];
  /** Further state, as JSON, which is bound but too long to be shown, as paths where no file is. Default: none */
  readonly more?: unknown;
  /** True: the call changes the paths of its effects through `files`, so that they are bound too. Default false */
  readonly throughFiles?: boolean;
  /** Folder that holds everything the call changes: relative to the workspace, links resolved. Default: the folder of the changed files */
  readonly folder?: string;
}

/** The part of a call's context that `screen` gets. */
export type ScreenContext = Pick<
  ToolContext,
  "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config" | "services"
>;

/** Context of a running call: the caller's part, the workspace, and the services of the gateway. */
export interface ToolContext extends CallContext {
  /** Absolute path of the folder the agent works in */
  readonly workspaceRoot: string;
  readonly allowSensitiveFileReads: boolean;
  readonly allowSensitiveFileWrites: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  /** The newest configuration */
  readonly config: Config;
  /** Services that the tool's `needs` names; defineTool narrows the type */
  readonly services: ToolServices;
}

/** Finds tools that can be called now. */
export interface EnabledTools {
  /** Returns the enabled tools that match the patterns of `[agent] tools` */
  enabled(patterns: readonly string[]): readonly Tool[];
}

/** Services that tools name in `needs`. A new service is added here and joined in lib/gateway.ts. */
export interface ToolServices {
  readonly files: Files;
  readonly memory: Pick<Memory, keyof Memory>;
  readonly plans: Plans;
  readonly mailbox: Pick<Mailbox, keyof Mailbox>;
  readonly commandFolders: CommandFolders;
  readonly cookieJars: CookieJars;
  readonly browserLogins: Pick<BrowserLogins, "open" | "list">;
  readonly commands: CommandLookup;
  readonly processes: Processes;
  readonly workers: Workers;
  readonly git: Git;
  readonly desktop: Desktop;
  readonly urls: UrlPolicy;
  readonly browsers: Pick<Browsers, "use" | "note" | "closeRun">;
  /** Returns the guarded fetch, the only way of tools to other machines; loads it at the first call */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  readonly documents: Documents;
  /** Returns the way that the guarded fetch takes to an address */
  readonly proxyOf: (url: URL) => ProxyChoice;
  /** Returns an environment variable that a configuration key such as `api_key_env` names. undefined when it is not set */
  readonly environment: (name: string) => string | undefined;
  readonly secrets: ToolSecrets;
  readonly redactor: KnownSecrets;
  readonly schedules: Schedules;
  readonly sops: Sops;
  readonly subAgents: SubAgents;
  readonly boards: Boards;
  readonly catalogue: EnabledTools;
  readonly wasmModules: WasmModules;
  readonly mcpReader: McpReader;
  readonly skills: ReadableSkills;
}
/** Name of a service in `needs`. */
export type ServiceName = keyof ToolServices;

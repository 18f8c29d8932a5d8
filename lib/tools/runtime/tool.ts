import type { Clock } from "../../base/clock.ts";
import type { BoundState } from "../../base/records/approval.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { ObjectJsonSchema } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { Access, Effects } from "../../guard/policy.ts";
import type { Boards } from "../../hardware/boards.ts";
import type { Mailbox } from "../../memory/mailbox.ts";
import type { Memory } from "../../memory/memory.ts";
import type { Plans } from "../../memory/plans.ts";
import type { Files } from "../../system/files/files.ts";
import type { Git } from "../../system/git/git.ts";
import type { UrlPolicy } from "../../system/net/url_policy.ts";
import type { CommandLookup } from "../../system/process/command_lookup.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { Workers } from "../../system/process/workers.ts";
import type { SubAgents } from "../agents/sub_agents.ts";
import type { Schedules } from "../schedule/schedules.ts";
import type { Sops } from "../sops/sops.ts";
import type { Approver } from "./tool_executor.ts";

export type { Access, Effects };

/** Origin of a tool. */
export type ToolSource = "builtin" | "wasm" | "process" | "ffi" | "mcp" | "node";

/** Capability of the agent, built in or foreign (docs/design/architecture.md "The main types"). */
export interface Tool {
  readonly name: string;
  readonly description: string;
  /** Access that lists show. The access of one call is in its PreparedCall */
  readonly access: Access;
  readonly source: ToolSource;
  /** Tells whether the configuration enables the tool. Required, so that no tool is enabled by accident */
  readonly enabled: "always" | ((config: Config) => boolean);
  /** Setting that enables the tool, as `[security.write_file] enabled = true`. undefined for `always` */
  readonly enabledBy: string | undefined;
  /** Names of the services that the tool receives */
  readonly needs: readonly ServiceName[];
  readonly inputSchema: ObjectJsonSchema | undefined;
  /** Milliseconds that one call may take. Default: the executor's limit */
  readonly timeoutMs?: ((config: Config) => number) | undefined;
  /** Parses and validates; has no effect. @throws {ToolError} bad input, naming the field */
  prepare(input: string): PreparedCall;
  /** Prepares and runs in one. @throws {ToolError} */
  execute(input: string, context: ToolContext): Promise<ToolResult>;
}

/** Call with a checked input. The executor, the policy, the approval and the audit all use this one object. */
export interface PreparedCall {
  readonly input: unknown;
  /** SHA-256 of the input's canonical JSON (RFC 8785), hexadecimal */
  readonly digest: string;
  /** May depend on the input */
  readonly access: Access;
  readonly effects: Effects;
  /** Set when making the call twice does no more than making it once: it may be made again after a crash. Default false */
  readonly repeatable?: boolean | undefined;
  /**
   * Refuses a call that the newest configuration forbids, as a command that is not allowed, before an approval is opened. Default:
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
  run(context: ToolContext): Promise<ToolResult>;
}

/** State that an approval is bound to beside the input and the changed files. */
export interface BoundParts {
  /** States that the person who answers is shown */
  readonly shown: readonly BoundState[];
  /** Further state, as JSON, which is bound but too long to be shown, as paths where no file is. Default: none */
  readonly more?: unknown;
  /** Folder that holds everything the call changes: relative to the workspace, links resolved. Default: the folder of the changed files */
  readonly folder?: string;
}

/** The part of a call's context that `screen` gets. */
export type ScreenContext = Pick<
  ToolContext,
  "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config" | "services"
>;

/** Context of a running call. */
export interface ToolContext {
  /** Absolute path of the folder the agent works in */
  readonly workspaceRoot: string;
  readonly allowSensitiveFileReads: boolean;
  readonly allowSensitiveFileWrites: boolean;
  readonly runId: string;
  readonly callId: string;
  /** Id of the HTTP request that the work came by. undefined when it came by none */
  readonly requestId?: string | undefined;
  /** null outside a conversation */
  readonly conversationId: string | null;
  readonly caller: Caller;
  /** Patterns of the tools that exist for the caller. undefined: all enabled tools */
  readonly allowed?: readonly string[] | undefined;
  /** Depth of the caller's run: 0 for a run that a person started, 1 for its sub-agents, and so on */
  readonly depth: number;
  /** undefined for a call outside a run */
  readonly inherited?: Inherited | undefined;
  /** Set when the caller makes the call itself, not a model for the caller. With the scope `approve` it counts as a person's approval */
  readonly direct: boolean;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly log: Logger;
  /** The newest configuration */
  readonly config: Config;
  /** Services that the tool's `needs` names; defineTool narrows the type */
  readonly services: ToolServices;
  /** Reports progress to the readers of the run */
  progress(message: string): void;
}

/** Rights and limits that a run started by a tool inherits from the run that called the tool. */
export interface Inherited {
  /** Limits of the caller's run; the started run has the same or lower ones. 0 tokens: no limit */
  readonly limits: { readonly maxIterations: number; readonly maxToolCalls: number; readonly tokensPerRun: number };
  /** Patterns of the tools that a started run may have, when the caller's run is only this one call. undefined: the caller's tools */
  readonly tools: readonly string[] | undefined;
  /** Set when the caller's run goes on after a restart */
  readonly durable: boolean;
  /** Answers approvals for the caller's run, and shows them to its reader */
  readonly approver: Approver;
}

/** Result of a call: `output` is text for the model, `data` is for programs. */
export interface ToolResult {
  readonly output: string;
  readonly isError: boolean;
  readonly data?: unknown;
}

/** Services that tools name in `needs`. A new service is added here and joined in lib/gateway.ts. */
export interface ToolServices {
  readonly files: Files;
  readonly memory: Memory;
  readonly plans: Plans;
  readonly mailbox: Mailbox;
  readonly commands: CommandLookup;
  readonly processes: Processes;
  readonly workers: Workers;
  readonly git: Git;
  readonly urls: UrlPolicy;
  readonly schedules: Schedules;
  readonly sops: Sops;
  readonly subAgents: SubAgents;
  readonly boards: Boards;
}
/** Name of a service in `needs`. */
export type ServiceName = keyof ToolServices;

/**
 * Returns the patterns of the tools that a started or scheduled run may have at most: those of the calling run. A run that is only
 * this one call may pass on more tools than it has itself. undefined: all enabled tools.
 */
export function toolsPassedOn(
  { allowed, inherited }: Pick<ToolContext, "allowed" | "inherited">,
): readonly string[] | undefined {
  return inherited?.tools ?? allowed;
}

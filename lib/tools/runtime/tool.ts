import type { Clock } from "../../base/clock.ts";
import type { BoundState } from "../../base/records/approval.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { ObjectJsonSchema } from "../../base/records/json_schema.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { Access, Effects } from "../../guard/decision.ts";
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

/** Where a tool comes from. */
export type ToolSource = "builtin" | "wasm" | "process" | "ffi" | "mcp" | "node";

/** A capability of the agent (docs/design/architecture.md "The main types"). Built-in and foreign tools are all this. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  /** The access shown in lists; a call's own is in its PreparedCall */
  readonly access: Access;
  readonly source: ToolSource;
  /** Required: forgetting it does not compile */
  readonly enabled: "always" | ((config: Config) => boolean);
  /** What to set to enable it, as `[security.write_file] enabled = true`; undefined for `always` */
  readonly enabledBy: string | undefined;
  /** It receives these services and nothing else */
  readonly needs: readonly ServiceName[];
  readonly inputSchema: ObjectJsonSchema | undefined;
  /** Milliseconds one call may take; default: the executor's */
  readonly timeoutMs?: ((config: Config) => number) | undefined;
  /** Parses and validates; has no effect. @throws {ToolError} bad input, naming the field */
  prepare(input: string): PreparedCall;
  /** Prepares and runs in one. @throws {ToolError} */
  execute(input: string, context: ToolContext): Promise<ToolResult>;
}

/** One checked call: the executor, the policy, the approval and the audit all use this one object. */
export interface PreparedCall {
  readonly input: unknown;
  /** SHA-256 of the input's canonical JSON (RFC 8785), hexadecimal */
  readonly digest: string;
  /** May depend on the input */
  readonly access: Access;
  readonly effects: Effects;
  /** Making the call twice does no more than making it once: it may be made again after a crash. Default: it does more */
  readonly repeatable?: boolean | undefined;
  /**
   * Whether the newest configuration takes this very call, as a command that is not allowed: asked before anybody is asked to
   * approve it. Default: it does. @throws {ToolError}
   */
  admit?(config: Config): void;
  /**
   * Looks on the disk for what would refuse the call anyway, before anybody is asked to approve it. Default: nothing is looked
   * at. @throws {ToolError}
   */
  screen?(context: ScreenContext): Promise<void>;
  /**
   * Looks at what the call would use beside the files it changes, as what git would commit: an approval is bound to it. Has no
   * effect. Default: nothing. @throws {ToolError} for a call that cannot run
   */
  bind?(context: ScreenContext & Pick<ToolContext, "signal">): Promise<BoundParts>;
  run(context: ToolContext): Promise<ToolResult>;
}

/** Parts that an approval is bound to beside input and changed files. */
export interface BoundParts {
  /** Shown to the person who answers */
  readonly shown: readonly BoundState[];
  /** Bound too, and too much to be shown, as names where nothing lies. JSON. Default: nothing */
  readonly more?: unknown;
  /** Folder that holds all the call changes, links resolved, relative to the workspace. Default: that of the changed files */
  readonly folder?: string;
}

/** The part of its context that a call is screened with. */
export type ScreenContext = Pick<
  ToolContext,
  "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config" | "services"
>;

export interface ToolContext {
  /** Absolute path of the folder the agent works in */
  readonly workspaceRoot: string;
  readonly allowSensitiveFileReads: boolean;
  readonly allowSensitiveFileWrites: boolean;
  readonly runId: string;
  readonly callId: string;
  /** Of the HTTP request that the work came by; undefined: by none */
  readonly requestId?: string | undefined;
  /** null outside a conversation */
  readonly conversationId: string | null;
  readonly caller: Caller;
  /** Patterns of the tools that exist for the caller; undefined: all enabled ones */
  readonly allowed?: readonly string[] | undefined;
  /** 0 for the run a person started, 1 for its sub-agents, and so on */
  readonly depth: number;
  /** undefined for a call outside a run */
  readonly inherited?: Inherited | undefined;
  /** The caller makes the call itself, not a model on its behalf: with the scope `approve` it is a person's word */
  readonly direct: boolean;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly log: Logger;
  /** The newest configuration */
  readonly config: Config;
  /** Those of `needs`; defineTool narrows the type */
  readonly services: ToolServices;
  /** Reports progress to whoever follows the run */
  progress(message: string): void;
}

/** What a run that a tool starts takes over from the run whose call started it. */
export interface Inherited {
  /** The bounds of the caller's run: the child's are no wider. 0 tokens: no limit */
  readonly limits: { readonly maxIterations: number; readonly maxToolCalls: number; readonly tokensPerRun: number };
  /** Patterns of the tools a child may have, where the caller's run is that one call alone; undefined: those of the caller */
  readonly tools: readonly string[] | undefined;
  /** Whether the caller's run goes on after a restart */
  readonly durable: boolean;
  /** Who answers the policy's asks for the caller's run, and shows them to its reader */
  readonly approver: Approver;
}

/** `output` is text for the model, `data` is for programs. */
export interface ToolResult {
  readonly output: string;
  readonly isError: boolean;
  readonly data?: unknown;
}

/** What tools may ask for by name in `needs`. A new service is added here and joined in lib/gateway.ts. */
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
export type ServiceName = keyof ToolServices;

/**
 * Patterns of the tools that what a call starts or schedules may have at most: those of its run, which passes on more than it has
 * itself where it is this one call alone. undefined: all enabled ones.
 */
export function toolsPassedOn(
  { allowed, inherited }: Pick<ToolContext, "allowed" | "inherited">,
): readonly string[] | undefined {
  return inherited?.tools ?? allowed;
}

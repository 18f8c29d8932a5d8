import { join } from "node:path";
import { cancelError } from "../../../base/cancel.ts";
import type { Clock, Timer } from "../../../base/clock.ts";
import { untilEffectMayBegin } from "../../../base/effect_right.ts";
import { ToolError } from "../../../base/errors.ts";
import { KeyedSemaphore } from "../../../base/keyed_queues.ts";
import type { RedactPart } from "../../../base/redact.ts";
import type { Config } from "../../../config/config.ts";
import type { InstalledProgram, PreparedProgram, RunningProgram } from "../../../system/process/prepare_program.ts";
import type { Processes } from "../../../system/process/processes.ts";
import { aftermathLines, relayLines } from "../../../tools/process/command_rules.ts";
import type { ToolSecrets } from "../../../tools/secrets/tool_secrets.ts";
import type { PluginCapabilities } from "../manifest.ts";
import type { PluginAnswer, PluginCall, PluginHost } from "../plugin_host.ts";
import type { OpenPlugin } from "../plugin_openers.ts";
import { filledSettings, maskAnswer } from "../plugin_settings.ts";
import { readAnswer, writeCall } from "../plugin_wire.ts";
import { LineChannel } from "./line_channel.ts";

/** Services that plugins in processes of their own need. */
export interface ProgramServices {
  readonly processes: Pick<Processes, "prepareProgram">;
  readonly clock: Clock;
  /** Fills secrets into the settings of plugins */
  readonly secrets: Pick<ToolSecrets, "fill">;
  /** Masks secrets in answers and in what errors quote. Default: nothing is masked */
  readonly redact?: RedactPart | undefined;
}

/** A plugin that is a program, or runs in one. */
export interface ProgramPlugin {
  readonly id: string;
  readonly program: InstalledProgram;
  /** `one_shot`: a process for each call. `pooled`: processes that answer one call after the other */
  readonly mode: "one_shot" | "pooled";
  readonly capabilities: PluginCapabilities;
  readonly config: Config;
}

/** Calls of one plugin at a time; the others wait. */
const MAX_AT_ONCE = 4;
/** Milliseconds that a process waits for its next call before it is ended. */
const IDLE_MS = 60_000;

/** Process without a call. */
interface IdleProcess {
  readonly key: string;
  readonly lane: Lane;
  readonly timer: Timer;
}

/** A process with its lines. */
interface Lane {
  readonly program: RunningProgram;
  readonly channel: LineChannel;
}

/**
 * Creates the opener of process plugins: programs that read a call from their input, as one line of JSON, and write the answer to their
 * output, as one line of JSON. What they write to their error output is shown in the error of a call that fails.
 */
export function createProcessOpener(services: ProgramServices): OpenPlugin<"process"> {
  return ({ manifest: { id, process, capabilities }, folder, config }) => {
    const { command, args, mode } = process;
    // A file of the package begins with "./"
    const file = command.startsWith("./") ? join(folder, command) : command;
    // Python would write compiled files into the package, and so change its digest
    const program = { file, args, folder, env: { PYTHONDONTWRITEBYTECODE: "1" } };
    return Promise.resolve(new ProgramHost({ id, program, mode, capabilities, config }, services));
  };
}

/**
 * A plugin that answers in lines of JSON. Nothing is started before the first call.
 *
 * Each call is prepared again: the workspace is looked through, so that a process which was started before a file of credentials appeared
 * gets no call after it.
 */
export class ProgramHost implements PluginHost {
  readonly #plugin: ProgramPlugin;
  readonly #services: ProgramServices;
  readonly #title: string;
  readonly #slots = new KeyedSemaphore(MAX_AT_ONCE);
  readonly #idle = new Set<IdleProcess>();
  readonly #lanes = new Set<Lane>();
  #isClosed = false;
  #calls = 0;

  constructor(plugin: ProgramPlugin, services: ProgramServices) {
    this.#plugin = plugin;
    this.#services = services;
    this.#title = `plugin ${JSON.stringify(plugin.id)}`;
  }

  call(call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    return this.#slots.pass("", signal, () => this.#call(call, signal));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { timer } of this.#idle) timer.clear();
    this.#idle.clear();
    await Promise.all([...this.#lanes].map((lane) => this.#end(lane)));
  }

  async #call(call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const { clock, redact, secrets } = this.#services;
    const { id: plugin, config } = this.#plugin;
    const start = clock.monotonic();
    // Before anything is started: without its secrets the plugin cannot be called
    const filled = { ...call, ...await filledSettings(plugin, { config, secrets, signal }) };
    const prepared = await this.#prepare(call, signal);
    const lane = await this.#laneFor(prepared, signal).catch(async (error: unknown) => {
      await prepared.drop();
      throw error;
    });
    const isPooled = this.#plugin.mode === "pooled";
    const seen = lane.program.problems().length;
    try {
      // The line of another call must never count as the answer to this one
      const id = isPooled ? ++this.#calls : undefined;
      const line = await this.#ask(lane, { line: writeCall(filled, id), signal });
      if (!isPooled) await lane.channel.settle();
      const { output, ...answer } = maskAnswer(readAnswer(line, { title: this.#title, id }), redact);
      if (isPooled && lane.channel.isUsable && !this.#isClosed) this.#keep(lane, prepared.key);
      else await this.#end(lane);
      const notes = [...relayLines(lane.program.problems().slice(seen)), ...aftermathLines(await prepared.after())];
      return { ...answer, output: [output, ...notes].join("\n"), used: { ms: clock.monotonic() - start } };
    } catch (error) {
      await this.#end(lane);
      throw withNotes(error, [
        ...relayLines(lane.program.problems().slice(seen)),
        ...aftermathLines(await prepared.after()),
      ]);
    }
  }

  #prepare(call: PluginCall, signal: AbortSignal): Promise<PreparedProgram> {
    const { id, program, capabilities, config } = this.#plugin;
    const { workspace_root: workspaceRoot, allow_sensitive_file_reads: reads, allow_sensitive_file_writes: writes } =
      call.context;
    return this.#services.processes.prepareProgram({
      title: this.#title,
      program,
      rights: {
        workspace: capabilities.workspace,
        hosts: { entries: capabilities.hosts, key: `the capabilities of plugin "${id}", which its manifest names,` },
      },
      // A plugin is a program of others: what it writes counts as what it says
      taint: [`plugin ${id}`],
      sandbox: config.plugins.sandbox,
      section: "[plugins]",
      scope: {
        workspaceRoot,
        workspaceOnly: config.autonomy.workspace_only,
        forbiddenPaths: config.autonomy.forbidden_paths,
        allowSensitive: reads && writes,
      },
      signal,
    });
  }

  /** Returns a process that may be given the call: one that waits, when it sees what a new one would see, or a new one. */
  async #laneFor(prepared: PreparedProgram, signal: AbortSignal): Promise<Lane> {
    for (const waiting of this.#idle) {
      this.#idle.delete(waiting);
      waiting.timer.clear();
      if (waiting.key === prepared.key && waiting.lane.channel.isUsable) return waiting.lane;
      await this.#end(waiting.lane);
    }
    if (signal.aborted) throw cancelError(signal);
    const { clock, redact } = this.#services;
    const program = await prepared.start();
    const { max_output_bytes: maxBytes } = this.#plugin.config.plugins;
    const lane = { program, channel: new LineChannel(program, { title: this.#title, clock, maxBytes, redact }) };
    this.#lanes.add(lane);
    return lane;
  }

  /** Asks for one answer. A call that takes too long, or is cancelled, ends the process. */
  async #ask(
    { channel, program }: Lane,
    { line, signal }: { readonly line: string; readonly signal: AbortSignal },
  ): Promise<Uint8Array> {
    const { promise: stopped, reject } = Promise.withResolvers<never>();
    stopped.catch(() => {});
    const onAbort = () => reject(cancelError(signal));
    const seconds = this.#plugin.config.plugins.timeout_secs;
    const timer = this.#services.clock.after(seconds * 1000, () => reject(callTooSlow(this.#title, seconds)));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      const asking = untilEffectMayBegin(signal)
        .then(() => channel.ask(line, { isLast: this.#plugin.mode === "one_shot" }));
      return await Promise.race([asking, stopped]);
    } catch (error) {
      await program.end();
      throw error;
    } finally {
      timer.clear();
      signal.removeEventListener("abort", onAbort);
    }
  }

  #keep(lane: Lane, key: string): void {
    const end = () => {
      this.#idle.delete(idle);
      void this.#end(lane);
    };
    const idle: IdleProcess = { key, lane, timer: this.#services.clock.after(IDLE_MS, end) };
    this.#idle.add(idle);
  }

  async #end(lane: Lane): Promise<void> {
    await lane.program.end();
    this.#lanes.delete(lane);
  }
}

/** Returns the error of a call that took too long. */
export function callTooSlow(title: string, seconds: number): ToolError {
  return new ToolError(
    "plugin_timeout",
    `Cannot call ${title}: it gave no answer within ${seconds} s, as [plugins] timeout_secs has it, and was ended`,
  );
}

/** Returns an error that says too what else happened during the call. */
function withNotes(error: unknown, notes: readonly string[]): unknown {
  if (notes.length === 0 || !(error instanceof ToolError)) return error;
  return new ToolError(error.code, [error.message, ...notes].join("\n"), { cause: error });
}

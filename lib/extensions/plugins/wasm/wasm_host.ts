import { cancelError } from "../../../base/cancel.ts";
import type { Clock, Timer } from "../../../base/clock.ts";
import { keepingEffectRight, untilEffectMayBegin } from "../../../base/effect_right.ts";
import { ToolError } from "../../../base/errors.ts";
import { KeyedSemaphore } from "../../../base/keyed_queues.ts";
import type { Random } from "../../../base/random.ts";
import type { Config } from "../../../config/config.ts";
import type { ToolSecrets } from "../../../tools/secrets/tool_secrets.ts";
import type { PluginCapabilities } from "../manifest.ts";
import type { PluginAnswer, PluginCall, PluginHost, PluginUse } from "../plugin_host.ts";
import type { OpenPlugin } from "../plugin_openers.ts";
import { settingsOf } from "../plugin_settings.ts";
import { answerTooLarge, readAnswer, writeCall } from "../plugin_wire.ts";
import { createGuestAnswers, type GuestServices } from "./guest_requests.ts";
import { failureOf } from "./module_failure.ts";
import type { CompiledModule, ModuleBounds } from "./module_instance.ts";
import { SecretHandles } from "./secret_handles.ts";
import type { JobEnd, ThreadJob } from "./wasm_messages.ts";
import { WasmThread } from "./wasm_thread.ts";

/** Services that WASM modules need. */
export interface WasmServices extends GuestServices {
  readonly clock: Clock;
}

/** Services that WASM plugins need. */
export interface WasmPluginServices extends WasmServices {
  /** Fills secrets into the requests of plugins */
  readonly secrets: Pick<ToolSecrets, "fill">;
  readonly random: Random;
}

/** Module that is to be opened. */
export interface ModuleToOpen {
  /** Names it in errors, such as `plugin "weather"` */
  readonly title: string;
  /** Origin of what it writes, such as `plugin weather` */
  readonly origin: string;
  readonly bytes: Uint8Array;
  /** Exported function that answers calls. Default: none, for a module that is called by `callExport` alone */
  readonly entrypoint?: string | undefined;
  /** Units of fuel that one call asks for. Default: `[runtime.wasm] fuel_limit` */
  readonly fuel?: number | undefined;
  /** Rights that the manifest asks for and the configuration grants */
  readonly capabilities: PluginCapabilities;
  readonly config: Config;
  /** Settings with handles in the places of secrets. Default: none */
  readonly handles?: SecretHandles | undefined;
}

/** Functions that a module imports, such as `extism:host/env alloc`, and exports. */
export type ModuleFacts = Pick<CompiledModule, "imports" | "exports">;

/** Call of one exported function of a module. */
export interface ExportCall {
  readonly name: string;
  readonly input: string;
}

/** Output of an exported function, and what it used. */
export interface ExportAnswer {
  readonly output: Uint8Array;
  readonly used: PluginUse;
}

/** Milliseconds that a thread waits for its next call before it is ended. */
const IDLE_MS = 60_000;

/** Creates the opener of WASM plugins: modules by the Extism ABI, each in a thread of its own. */
export function createWasmOpener(services: WasmPluginServices): OpenPlugin<"wasm"> {
  return ({ manifest: { id, wasm, capabilities }, main, config }) => {
    const title = `plugin ${JSON.stringify(id)}`;
    return openWasmModule({
      title,
      origin: `plugin ${id}`,
      bytes: main ?? new Uint8Array(),
      entrypoint: wasm.entrypoint,
      fuel: wasm.fuel,
      capabilities,
      config,
      handles: new SecretHandles({ ...services, id, title, settings: settingsOf(id, config) }),
    }, services);
  };
}

/**
 * Opens a module: checks, meters and compiles it. None of its code runs.
 * @throws {ToolError} `module_invalid`, `module_feature`, `module_import`, `module_too_large`, `plugin_timeout`
 */
export async function openWasmModule(module: ModuleToOpen, services: WasmServices): Promise<WasmHost> {
  const host = new WasmHost(module, services);
  try {
    await host.load();
  } catch (error) {
    await host.close();
    throw error;
  }
  return host;
}

const CLOSED = { code: "failed", reason: "it was closed", said: new Uint8Array() };

/** Module that is ready to answer calls. */
export class WasmHost implements PluginHost {
  readonly #module: ModuleToOpen;
  readonly #services: WasmServices;
  readonly #slot = new KeyedSemaphore(1);
  readonly #closing = new AbortController();
  #loaded: Uint8Array | CompiledModule;
  #thread: WasmThread | undefined;
  #idle: Timer | undefined;

  constructor(module: ModuleToOpen, services: WasmServices) {
    this.#module = module;
    this.#services = services;
    // Shared, since a thread would get a copy, which is slow on Deno
    const shared = new Uint8Array(new SharedArrayBuffer(module.bytes.length));
    shared.set(module.bytes);
    this.#loaded = shared;
  }

  /** Imports and exports of the module */
  get facts(): ModuleFacts {
    const loaded = this.#loaded;
    return loaded instanceof Uint8Array ? { imports: [], exports: [] } : loaded;
  }

  async load(): Promise<void> {
    const end = await this.#slot.pass(
      "",
      this.#closing.signal,
      () => this.#run({ kind: "load" }, this.#closing.signal),
    );
    // The next thread gets what this one has made of the bytes
    if (end.module !== undefined) this.#loaded = end.module;
  }

  async call(call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const { title, entrypoint: name = "execute" } = this.#module;
    const { output, used } = await this.#callExport({ name, input: writeCall(call) }, signal, call);
    return { ...readAnswer(output, { title }), used };
  }

  /**
   * Calls an exported function with an input as it is, and gives its output as it is: for modules that know nothing of Postern.
   * @throws as `call`
   */
  callExport(call: ExportCall, signal: AbortSignal): Promise<ExportAnswer> {
    return this.#callExport(call, signal, undefined);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#idle?.clear();
    await this.#thread?.end();
  }

  async #callExport(
    { name, input }: ExportCall,
    signal: AbortSignal,
    call: PluginCall | undefined,
  ): Promise<ExportAnswer> {
    const { clock } = this.#services;
    const { title, config } = this.#module;
    const start = clock.monotonic();
    const job = { kind: "call", entrypoint: name, input } as const;
    const { output, use } = await this.#slot.pass("", signal, async () => {
      await untilEffectMayBegin(signal);
      return await this.#run(job, signal, call);
    });
    this.#prepare();
    const { max_output_bytes: maxBytes } = config.plugins;
    if (output.length > maxBytes) throw answerTooLarge(title, maxBytes);
    // Copied, since not every decoder takes shared bytes
    const bytes = output.slice();
    return { output: bytes, used: { fuel: use.fuel, memory_bytes: use.memoryBytes, ms: clock.monotonic() - start } };
  }

  /** Makes the instance of the next call while there is none. What goes wrong is told by the call that needs it. */
  #prepare(): void {
    const { signal } = this.#closing;
    this.#slot.pass("", signal, () => this.#run({ kind: "prepare" }, signal)).catch(() => {});
  }

  async #run(job: ThreadJob, signal: AbortSignal, call?: PluginCall): Promise<Extract<JobEnd, { kind: "done" }>> {
    const { config: { runtime: { wasm } } } = this.#module;
    if (this.#closing.signal.aborted) throw this.#errorOf(CLOSED, { signal, kind: job.kind });
    const thread = this.#open();
    this.#idle?.clear();
    try {
      const end = await thread.run(job, {
        answer: keepingEffectRight(
          createGuestAnswers({ module: this.#module, handles: this.#module.handles, call }, this.#services),
        ),
        timeoutMs: wasm.timeout_secs * 1000,
        signal,
      });
      if (end.kind === "done") return end;
      throw this.#errorOf(end, { signal, kind: job.kind });
    } catch (error) {
      if (error instanceof ToolError) throw error;
      throw this.#errorOf({ ...failureOf(error), said: new Uint8Array() }, { signal, kind: job.kind });
    } finally {
      this.#keep(thread);
    }
  }

  #open(): WasmThread {
    if (this.#thread !== undefined && !this.#thread.hasEnded) return this.#thread;
    const { capabilities, entrypoint, handles } = this.#module;
    const { memory_limit_mb: memoryMb, max_module_size_mb: moduleMb } = this.#module.config.runtime.wasm;
    const bounds: ModuleBounds = { fuel: fuelOf(this.#module).units, memoryMb, moduleMb, capabilities, entrypoint };
    return this.#thread = new WasmThread(this.#loaded, {
      bounds,
      settings: handles?.settings ?? {},
      clock: this.#services.clock,
    });
  }

  #keep(thread: WasmThread): void {
    if (this.#closing.signal.aborted) return;
    this.#idle = this.#services.clock.after(IDLE_MS, () => void thread.end());
  }

  /** Returns the error of a call. Secrets are masked in what the module says. */
  #errorOf(
    { code, reason, said }: { readonly code: string; readonly reason: string; readonly said: Uint8Array },
    { signal, kind }: { readonly signal: AbortSignal; readonly kind: ThreadJob["kind"] },
  ): Error {
    if (signal.aborted) return cancelError(signal);
    const { title, config } = this.#module;
    const about = `Cannot ${kind === "load" ? "load" : "call"} ${title}: `;
    switch (code) {
      case "timeout": {
        const { timeout_secs: seconds } = config.runtime.wasm;
        const why = `it gave no answer within ${seconds} s, as [runtime.wasm] timeout_secs has it, and was stopped`;
        return new ToolError("plugin_timeout", about + why);
      }
      case "out_of_fuel":
        return new ToolError("plugin_out_of_fuel", `${about}${reason}; ${fuelOf(this.#module).way}`);
      default: {
        const known = code === "failed" || code === "exited" || code === "cancelled" ? "plugin_failed" : code;
        const why = new TextEncoder().encode(reason);
        const shown = this.#masked(why, { from: 0, to: Math.min(why.length, MAX_SHOWN) });
        return new ToolError(known, about + shown + this.#quoted(said));
      }
    }
  }

  #quoted(said: Uint8Array): string {
    const text = this.#masked(said, { from: Math.max(0, said.length - MAX_SHOWN), to: said.length }).trim();
    return text === "" ? "" : `\nIt wrote:\n${text}`;
  }

  #masked(bytes: Uint8Array, part: { readonly from: number; readonly to: number }): string {
    return new TextDecoder().decode(this.#services.redact?.redact(bytes, part) ?? bytes.subarray(part.from, part.to));
  }
}

/** Bytes of what a module said that an error shows. */
const MAX_SHOWN = 4096;

/** Returns the units of fuel of one call, 0 for no limit, and the way to more of them. */
function fuelOf(
  { fuel, config: { runtime: { wasm } } }: Pick<ModuleToOpen, "fuel" | "config">,
): { readonly units: number; readonly way: string } {
  const { fuel_limit: limit, max_fuel: max } = wasm;
  const way = "[runtime.wasm] fuel_limit";
  if (limit === 0 || fuel === undefined) return { units: limit, way: `${way} is ${limit}, and 0 takes the limit away` };
  if (max !== 0 && fuel > max) {
    return { units: max, way: `its manifest asks for ${fuel}, and [runtime.wasm] max_fuel is ${max}` };
  }
  return { units: fuel, way: `its manifest asks for no more ("wasm.fuel"); ${way} = 0 takes the limit away` };
}

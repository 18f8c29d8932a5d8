import type { Plugin } from "@extism/extism";
import { lazily } from "../../../base/lazily.ts";
import type { PluginCapabilities } from "../manifest.ts";
import { type FuelLeft, FuelMeter } from "./fuel_meter.ts";
import { type HostReply, type HostRequest, Kernel, Variables } from "./kernel.ts";
import { LEFT, METER, meterModule, TICK } from "./meter_module.ts";
import { ModuleFailure } from "./module_failure.ts";
import { grantsImport, HOST, KERNEL, WASI } from "./module_imports.ts";
import { createWasi } from "./wasi.ts";

/** Bounds of a module. */
export interface ModuleBounds {
  /** Units of fuel for one call; 0: no limit */
  readonly fuel: number;
  /** Megabytes of memory */
  readonly memoryMb: number;
  /** Megabytes of the module itself */
  readonly moduleMb: number;
  /** Rights that the configuration grants too */
  readonly capabilities: PluginCapabilities;
  /** Function that it must export. Default: none */
  readonly entrypoint?: string | undefined;
}

/** Parts of a thread that a module uses. */
export interface ModuleMachine {
  /** Throws when the call is over */
  readonly check: () => void;
  readonly ask: (request: HostRequest) => HostReply;
  readonly say: (bytes: Uint8Array) => void;
  readonly sleep: (ms: number) => void;
}

/** Answer of a module, and what it used. */
export interface ModuleAnswer {
  readonly output: Uint8Array;
  readonly fuel: number;
  readonly memoryBytes: number;
}

/** Fuel of the initialisation, in calls. */
const INITIAL_CALLS = 100;

/** The part of WebAssembly that is used: the types of Node do not have it. */
interface Engine {
  compile(bytes: Uint8Array): Promise<object>;
}

/** Instance of a module, as the engine has it. */
interface Instance {
  readonly exports: Readonly<Record<string, unknown>>;
}

const extism = lazily(() => import("@extism/extism"));

/** Module that was checked, metered and compiled. Threads may hand it to each other. */
export interface CompiledModule {
  /** Module as the engine has it */
  readonly compiled: object;
  /** Functions that it imports itself, such as `extism:host/env alloc` */
  readonly imports: readonly string[];
  /** Functions that it exports */
  readonly exports: readonly string[];
}

/** Checks, meters and compiles a module. @throws {WasmRefusal}; a CompileError of the engine */
export async function compileModule(bytes: Uint8Array, bounds: ModuleBounds): Promise<CompiledModule> {
  const metered = meterModule(bytes, { ...bounds, isGranted: grantsImport(bounds.capabilities) });
  // As in inspect_module.ts
  const { WebAssembly } = globalThis as unknown as { readonly WebAssembly: Engine };
  const compiled = await WebAssembly.compile(metered.bytes);
  return { compiled, imports: metered.imports, exports: metered.exports };
}

/** Module in a thread, with the variables that its calls leave. */
export class LoadedModule {
  readonly module: CompiledModule;
  readonly #bounds: ModuleBounds;
  readonly #settings: ReadonlyMap<string, string>;
  readonly #variables = new Variables();

  /** @param options.settings settings that the module may ask for */
  constructor(
    module: CompiledModule,
    { bounds, settings }: { readonly bounds: ModuleBounds; readonly settings: Readonly<Record<string, string>> },
  ) {
    this.module = module;
    this.#bounds = bounds;
    this.#settings = new Map(Object.entries(settings));
  }

  /** Makes an instance with memory of its own, and initialises it. @throws what the module does wrong */
  async instantiate({ check, ask, say, sleep }: ModuleMachine): Promise<ModuleInstance> {
    const { fuel: limit, memoryMb } = this.#bounds;
    const fuel = new FuelMeter(check);
    fuel.start(limit * INITIAL_CALLS, `its initialisation, which has ${INITIAL_CALLS} times the fuel of a call,`);
    const kernel = new Kernel({
      ...{ fuel, say, ask },
      maxBytes: memoryMb * 1_048_576,
      variables: this.#variables,
      settings: this.#settings,
    });
    const made: { exports: Instance["exports"] | undefined } = { exports: undefined };
    const memory = () => memoryOf(made.exports);
    const { createPlugin } = await extism();
    // Compiled by the engine, as Extism wants it; its types mean those of the DOM
    const plugin = await createPlugin(this.module.compiled as Parameters<typeof createPlugin>[0], {
      functions: {
        [KERNEL]: this.#imported(KERNEL, kernel.functions()),
        [HOST]: this.#imported(HOST, kernel.workspaceFunctions()),
        [WASI]: this.#imported(WASI, withoutState(createWasi({ fuel, say, sleep, memory }))),
        [METER]: { [TICK]: (_: unknown, left: number) => fuel.tick(left) },
      },
      // A name such as "constructor" must find nothing
      config: Object.create(null) as Record<string, string>,
    });
    // The members that are used here. Kept, since a call shows Extism other exports
    const instance = await plugin.getInstance("0") as unknown as Instance;
    const { exports } = instance;
    made.exports = exports;
    // Metering exports exactly this
    fuel.attach(exports[LEFT] as FuelLeft);
    const initialize = exports["_initialize"];
    if (typeof initialize === "function") initialize();
    return new ModuleInstance({ plugin, instance, exports, kernel, fuel, limit });
  }

  /** Returns the functions that the module imports. Their parameters are those that the module gives: metering checks the names alone. */
  #imported(module: string, functions: HostFunctions): Record<string, (...args: unknown[]) => unknown> {
    const wanted = Object.entries(functions).filter(([name]) => this.module.imports.includes(`${module} ${name}`));
    // See above
    return Object.fromEntries(wanted) as Record<string, (...args: unknown[]) => unknown>;
  }
}

/** Parts of a ModuleInstance. */
interface InstanceParts {
  readonly plugin: Plugin;
  readonly instance: Instance;
  /** Exports of the module itself */
  readonly exports: Instance["exports"];
  readonly kernel: Kernel;
  readonly fuel: FuelMeter;
  readonly limit: number;
}

/** Instance of a module, for one call. */
export class ModuleInstance {
  readonly #parts: InstanceParts;

  constructor(parts: InstanceParts) {
    this.#parts = parts;
  }

  /** Units of fuel that the call has used. */
  get fuel(): number {
    return this.#parts.fuel.used;
  }

  /** Bytes of memory that the module has. */
  get memoryBytes(): number {
    const { exports, kernel } = this.#parts;
    return (isMemory(exports["memory"]) ? memoryOf(exports).byteLength : 0) + kernel.bytes;
  }

  /** Calls an exported function with an input. @throws {ModuleFailure}; traps of the engine */
  async call(entrypoint: string, input: string): Promise<Omit<ModuleAnswer, "fuel" | "memoryBytes">> {
    const { plugin, instance, exports: own, kernel, fuel, limit } = this.#parts;
    const call = own[entrypoint];
    if (typeof call !== "function") {
      throw new ModuleFailure("failed", `it exports no function ${JSON.stringify(entrypoint)}`);
    }
    const ended: { code: unknown } = { code: 0 };
    // Extism drops what the function returns
    const exports = { [entrypoint]: () => void (ended.code = call()) };
    Object.defineProperty(instance, "exports", { value: exports, configurable: true });
    fuel.start(limit);
    try {
      // Extism takes the whole buffer of the bytes that it is given, so they are alone in theirs
      await plugin.call(["0", entrypoint], new Uint8Array(new TextEncoder().encode(input)));
    } catch (error) {
      if (!isEnd(error, kernel)) throw error;
    } finally {
      Reflect.deleteProperty(instance, "exports");
    }
    if (kernel.error !== undefined) throw new ModuleFailure("failed", `it says: ${kernel.error}`);
    if (ended.code !== 0 && ended.code !== undefined) {
      throw new ModuleFailure("failed", `${entrypoint}() returned ${String(ended.code)} and set no error`);
    }
    return { output: kernel.output ?? new Uint8Array() };
  }
}

/** Tells whether a module ended itself as done, or by a trap once it has said why, as some compilers do. */
function isEnd(error: unknown, { error: said }: Kernel): boolean {
  return error instanceof ModuleFailure ? error.code === "exited" : said !== undefined;
}

/** Functions that a module may import, by name, with Extism's state of the call first. */
type HostFunctions = Readonly<Record<string, (...args: never[]) => unknown>>;

/** Functions of WASI know nothing of Extism's state of a call, which is their first parameter here. */
function withoutState(functions: HostFunctions): HostFunctions {
  return Object.fromEntries(
    Object.entries(functions).map(([name, run]) => [name, (_: unknown, ...args: never[]) => run(...args)]),
  );
}

function isMemory(value: unknown): value is { readonly buffer: ArrayBuffer } {
  return typeof value === "object" && value !== null && "buffer" in value;
}

function memoryOf(exports: Instance["exports"] | undefined): ArrayBuffer {
  const memory = exports?.["memory"];
  if (isMemory(memory)) return memory.buffer;
  throw new ModuleFailure("failed", 'it calls WASI and exports no memory, or does so in its "start" function');
}

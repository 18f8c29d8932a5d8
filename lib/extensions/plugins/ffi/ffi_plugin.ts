import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { cancelError } from "../../../base/cancel.ts";
import { untilEffectMayBegin } from "../../../base/effect_right.ts";
import { messageOf, ToolError } from "../../../base/errors.ts";
import { KeyedSemaphore } from "../../../base/keyed_queues.ts";
import { runtimeProgram } from "../../../system/process/prepare_program.ts";
import { workerModule } from "../../../system/process/workers.ts";
import type { PluginHost } from "../plugin_host.ts";
import type { OpenPlugin, PluginToOpen } from "../plugin_openers.ts";
import { filledSettings, maskAnswer } from "../plugin_settings.ts";
import { answerTooLarge, readAnswer, writeCall } from "../plugin_wire.ts";
import { callTooSlow, ProgramHost, type ProgramServices } from "../process/program_plugin.ts";
import { type FfiLibrary, type FfiPlace, openFfiLibrary } from "./ffi_library.ts";

/**
 * Creates the opener of FFI plugins: libraries of machine code. Each runs in a process of its own, so that its crash is an error of one
 * call, or in the gateway with `[plugins] ffi = "in_process"`.
 */
export function createFfiOpener(services: ProgramServices): OpenPlugin<"ffi"> {
  return async (plugin) => {
    const { manifest: { id, ffi }, folder, config } = plugin;
    const koffi = findKoffi(id);
    const place = { library: join(folder, ffi.library), symbol: ffi.symbol, koffi: koffi?.module ?? "" };
    return config.plugins.ffi === "in_process"
      ? await openInProcess(plugin, { place, services })
      : openProgram(plugin, { place, shown: koffi?.folders ?? [], services });
  };
}

/** Opens a library in a process of its own, which ends when the library crashes. */
function openProgram(
  { manifest: { id, capabilities }, folder, config }: PluginToOpen<"ffi">,
  { place, shown, services }: {
    readonly place: FfiPlace;
    readonly shown: readonly string[];
    readonly services: ProgramServices;
  },
): PluginHost {
  const module = workerModule(import.meta.url, "ffi_library");
  const code = `const { serveFfiLibrary } = await import(${JSON.stringify(module.href)}); await serveFfiLibrary();`;
  const { file, evaluate, env } = runtimeProgram();
  const program = {
    file: "sh",
    // The shell leads what the library prints to the error output, away from the answers
    args: ["-c", 'exec "$@" 3>&1 1>&2', "sh", file, ...evaluate, code, place.library, place.symbol, place.koffi],
    folder,
    shown: [file, fileURLToPath(module), ...shown],
    env,
  };
  // Nobody could tell what a process that stays does to the workspace between two calls
  const mode = capabilities.workspace === "write" ? "one_shot" : "pooled";
  return new ProgramHost({ id, program, mode, capabilities, config }, services);
}

/** Opens a library in the gateway. One call runs at a time, aside of the gateway's own work; nothing can end it before it returns. */
async function openInProcess(
  { manifest: { id }, config }: PluginToOpen<"ffi">,
  { place, services: { clock, redact, secrets } }: { readonly place: FfiPlace; readonly services: ProgramServices },
): Promise<PluginHost> {
  const title = `plugin ${JSON.stringify(id)}`;
  const { timeout_secs: seconds, max_output_bytes: maxBytes } = config.plugins;
  const library = await load(place, title);
  const slot = new KeyedSemaphore(1);
  return {
    async call(call, signal) {
      const start = clock.monotonic();
      const filled = { ...call, ...await filledSettings(id, { config, secrets, signal }) };
      const { promise: stopped, reject } = Promise.withResolvers<never>();
      stopped.catch(() => {});
      const onAbort = () => reject(cancelError(signal));
      signal.addEventListener("abort", onAbort, { once: true });
      const timer = clock.after(seconds * 1000, () => reject(callTooSlow(title, seconds)));
      // The slot is free again when the library has returned, not when nobody waits for that any more
      const work = slot.pass("", signal, async () => {
        await untilEffectMayBegin(signal);
        return await library.callAside(writeCall(filled));
      });
      work.catch(() => {});
      try {
        const answer = await Promise.race([work, stopped]);
        if (answer === undefined) {
          throw new ToolError("plugin_failed", `Cannot call ${title}: its function ${place.symbol} returned NULL`);
        }
        if (Buffer.byteLength(answer) > maxBytes) throw answerTooLarge(title, maxBytes);
        return { ...maskAnswer(readAnswer(answer, { title }), redact), used: { ms: clock.monotonic() - start } };
      } finally {
        timer.clear();
        signal.removeEventListener("abort", onAbort);
      }
    },
    // A library that is loaded stays so until the gateway ends
    close: () => Promise.resolve(),
  };
}

async function load(place: FfiPlace, title: string): Promise<FfiLibrary> {
  try {
    return await openFfiLibrary(place);
  } catch (cause) {
    const reason = messageOf(cause);
    throw new ToolError("plugin_failed", `Cannot load the library of ${title}: ${reason}`, { cause });
  }
}

/** Package that loads libraries on Node. */
interface Koffi {
  /** URL of the module */
  readonly module: string;
  /** Absolute paths of the folders that it consists of */
  readonly folders: readonly string[];
}

/** Finds koffi, which loads libraries on Node. Undefined on Deno, which does that itself. @throws {ToolError} `plugin_failed` */
function findKoffi(id: string): Koffi | undefined {
  if ("Deno" in globalThis) return undefined;
  let module: string;
  try {
    module = import.meta.resolve("koffi");
  } catch (cause) {
    const wayOut = "install it beside postern: npm install koffi";
    throw new ToolError("plugin_failed", `Cannot load plugin "${id}": it needs the package koffi; ${wayOut}`, {
      cause,
    });
  }
  const folder = dirname(fileURLToPath(module));
  return { module, folders: [folder, ...nativePartOf(folder)] };
}

/** Returns the folder of koffi's machine code for this machine, as the runtime would look for it. */
function nativePartOf(folder: string): readonly string[] {
  const name = join("@koromix", `koffi-${process.platform}-${process.arch}`);
  for (let at = folder; at !== dirname(at); at = dirname(at)) {
    const found = join(at, "node_modules", name);
    if (existsSync(found)) return [found];
  }
  return [];
}

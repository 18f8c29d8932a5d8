import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { CancelError } from "../../lib/base/cancel.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { exactLine, exactText } from "../../lib/base/text.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { PluginPackage } from "../../lib/extensions/plugins/plugin_package.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { reachGateway } from "../reach_gateway.ts";
import { TAR_TYPE } from "./plugin.ts";
import { readInput } from "./tools.ts";

const MANIFEST = {
  type: "string",
  valueHint: "file",
  description: "Manifest of the plugin (default: plugin.json)",
} as const;
const WASM = {
  type: "string",
  valueHint: "file",
  description: "Module to use in place of the one in the manifest's folder",
} as const;

/** Command `postern plugin new`: writes a plugin to begin with. */
export const pluginNewCommand = defineCliCommand({
  args: {
    id: { type: "string", valueHint: "id", description: "Id of the plugin, also the name of its folder (required)" },
    scaffold: {
      type: "string",
      valueHint: "kind",
      description: "wasm-rust, wasm-go, wasm-assemblyscript, process-node, process-python or ffi-c (required)",
    },
  },
  example: "postern plugin new --id words --scaffold process-node",
  async run(context, { id, scaffold }) {
    const { SCAFFOLD_KINDS, writeScaffold } = await import("../../lib/extensions/plugins/write_scaffold.ts");
    const kind = SCAFFOLD_KINDS.find((known) => known === scaffold);
    if (id === undefined || kind === undefined) {
      throw new UsageError(`Cannot write a plugin: give --id and --scaffold, one of ${SCAFFOLD_KINDS.join(", ")}`);
    }
    const folder = resolve(context.io.cwd, id);
    await told(() => writeScaffold({ id, kind, folder }));
    context.print({ id, kind, folder }, `Wrote ${id}: its README.md says how to build it`);
    return EXIT.ok;
  },
});

/** Command `postern plugin test`: checks a plugin as an installation would, and with --execute calls one of its tools. */
export const pluginTestCommand = defineCliCommand({
  args: {
    input: { type: "positional", required: false, description: "Input for --execute: JSON, @file or - (default: {})" },
    manifest: MANIFEST,
    wasm: WASM,
    execute: { type: "boolean", description: "Call a tool too, in a gateway of its own without records" },
    tool: { type: "string", valueHint: "name", description: "Tool to call (default: the first one)" },
  },
  example: "postern plugin test --manifest plugin.json",
  async run(context, { input, manifest: file, wasm, execute, tool }) {
    const plugin = await readPlugin(context, { manifest: file, wasm, fillDigest: "missing" });
    const { id, version, kind, tools, capabilities } = plugin.manifest;
    const names = tools.map(({ name }) => name);
    const module = await checkModule(context, plugin);
    if (execute !== true) {
      const facts = { id, version, kind, tools: names, capabilities, digest: plugin.digest, ...module };
      const text = `${id} ${version} (${kind}) is well formed, with the tools ${names.join(", ")}`;
      context.print(facts, [text, ...module === undefined ? [] : [linesOf(module)]].join("\n"));
      return EXIT.ok;
    }
    const called = tools.find(({ name }) => name === (tool ?? names[0]));
    if (called === undefined) throw new UsageError(`Cannot call "${tool}": the tools are ${names.join(", ")}`);
    const { createForeignInput } = await import("../../lib/tools/runtime/foreign_input.ts");
    const given = toObject(await readInput(input ?? "{}", context.io));
    await told(() => Promise.resolve(createForeignInput(called.name, called.input_schema).read(JSON.stringify(given))));
    return await callTool(context, plugin, { tool: called.name, input: given });
  },
});

/** Command `postern plugin package`: writes the package of a plugin, with the digest of the file that it runs. */
export const pluginPackageCommand = defineCliCommand({
  args: {
    manifest: MANIFEST,
    wasm: WASM,
    output: { type: "string", valueHint: "file", description: "File to write (default: <id>-<version>.tar)" },
  },
  example: "postern plugin package --manifest plugin.json",
  async run(context, { manifest: file, wasm, output }) {
    const { writePackage, sha256Of } = await import("../../lib/extensions/plugins/plugin_package.ts");
    const plugin = await readPlugin(context, { manifest: file, wasm });
    const { id, version, kind, capabilities } = plugin.manifest;
    const bytes = await told(() => Promise.resolve(writePackage(plugin)));
    const path = resolve(context.io.cwd, output ?? `${id}-${version}.tar`);
    await writeFile(path, bytes).catch((cause: Error) => {
      throw new CommandError(`Cannot write "${path}": ${cause.message}`, { cause });
    });
    // These are the fields of the package in the index of a registry
    const entry = { version, kind, url: basename(path), size: bytes.length, sha256: sha256Of(bytes), capabilities };
    const text =
      `Wrote ${path}: ${plugin.files.length} files, ${bytes.length} bytes\nSHA-256: ${entry.sha256}\nDigest: ${plugin.digest}`;
    context.print({ id, file: path, digest: plugin.digest, ...entry }, text);
    return EXIT.ok;
  },
});

/** How often the folder of `plugin dev` is looked at. */
const LOOK_MS = 300;

/** Command `postern plugin dev <folder>`: serves each new version of a plugin at once, until it is interrupted. */
export const pluginDevCommand = defineCliCommand({
  args: { folder: { type: "positional", required: true, description: "Folder of the plugin" } },
  example: "postern plugin dev plugins/words",
  async run(context, { folder: given }) {
    const { stampOfFolder } = await import("../../lib/extensions/plugins/plugin_files.ts");
    const folder = resolve(context.io.cwd, given);
    const gateway = await reachGateway(context, { agent: false });
    const stop = new AbortController();
    const ignore = context.io.onInterrupt(() => stop.abort(new CancelError("cancelled")));
    let served: string | undefined;
    try {
      if (gateway.running === undefined) {
        throw new CommandError(
          "Cannot serve a plugin: no gateway runs; start it with postern gateway, or postern daemon start",
        );
      }
      for (let last: string | undefined; !stop.signal.aborted;) {
        const stamp = await stampOfFolder(folder);
        if (stamp !== last) {
          last = stamp;
          const next = await serve(context, gateway, folder);
          if (served !== undefined && next !== undefined && next !== served) await endServing(gateway, served);
          served = next ?? served;
        }
        await systemClock.sleep(LOOK_MS, stop.signal).catch(() => {});
      }
    } finally {
      ignore();
      if (served !== undefined) await endServing(gateway, served).catch(() => {});
      await gateway.close();
    }
    return EXIT.ok;
  },
});

type Gateway = Awaited<ReturnType<typeof reachGateway>>;

/** Serves the plugin as it is now. Returns its id; undefined for one that is broken, which leaves the one before in place. */
async function serve(context: CommandContext, gateway: Gateway, folder: string): Promise<string | undefined> {
  try {
    const { writePackage } = await import("../../lib/extensions/plugins/plugin_package.ts");
    const bytes = writePackage(await readPlugin(context, { manifest: join(folder, "plugin.json"), wasm: undefined }));
    const raw = { type: TAR_TYPE, bytes };
    const { id, version, on, reason } = await gateway.call("POST /v1/plugins", { query: { serve: true }, raw });
    context.print(
      { event: "served", id, version, on, reason },
      `Serving ${id} ${version}${on ? "" : `, but ${exactLine(reason ?? "")}`}`,
    );
    return id;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    context.say(`${error.message}; the version before stays`);
    return undefined;
  }
}

async function endServing(gateway: Gateway, id: string): Promise<void> {
  await gateway.request({ method: "DELETE", path: `/v1/plugins/${encodeURIComponent(id)}?serve=true` });
}

/** Reads the folder of a manifest as a package, with the digest of the file that it runs. @throws {CommandError} */
async function readPlugin(
  { io }: CommandContext,
  { manifest = "plugin.json", wasm, fillDigest = "always" }: {
    readonly manifest: string | undefined;
    readonly wasm: string | undefined;
    readonly fillDigest?: "always" | "missing";
  },
): Promise<PluginPackage> {
  const { readPluginFolder } = await import("../../lib/extensions/plugins/plugin_files.ts");
  const path = resolve(io.cwd, manifest);
  if (basename(path) !== "plugin.json") {
    throw new UsageError(`Cannot use "${manifest}": a manifest is called plugin.json`);
  }
  const module = wasm === undefined ? undefined : await readFile(resolve(io.cwd, wasm)).catch((cause: Error) => {
    throw new CommandError(`Cannot read the module "${wasm}": ${cause.message}`, { cause });
  });
  const plugin = await told(() => readPluginFolder(dirname(path), { module, fillDigest }));
  if (wasm !== undefined && plugin.manifest.kind !== "wasm") {
    throw new UsageError(`Cannot use --wasm: "${plugin.manifest.id}" is a ${plugin.manifest.kind} plugin`);
  }
  return plugin;
}

/** Facts about the module of a WASM plugin that its author is shown. */
interface CheckedModule {
  readonly module_bytes: number;
  readonly imports: readonly string[];
  readonly exports: readonly string[];
}

/** Checks a plugin as a gateway does that installs it. @throws {CommandError} why it is refused */
async function checkModule(context: CommandContext, plugin: PluginPackage): Promise<CheckedModule | undefined> {
  const [{ checkPlugin }, { inspectJob }, { PLUGIN_KINDS }, { mainFile }] = await Promise.all([
    import("../../lib/extensions/plugins/check_plugin.ts"),
    import("../../lib/extensions/plugins/wasm/inspect_module.ts"),
    import("../../lib/base/records/extension_views.ts"),
    import("../../lib/extensions/plugins/manifest.ts"),
  ]);
  const { config } = await context.loadConfig();
  const inspect = (job: Parameters<typeof inspectJob>[0]) => Promise.resolve(inspectJob(job));
  const report = await told(() => checkPlugin(plugin, { config, kinds: PLUGIN_KINDS, inspect }));
  if (report === undefined) return undefined;
  const bytes = plugin.files.find(({ path }) => path === mainFile(plugin.manifest)?.path)?.bytes ?? new Uint8Array();
  const imports = report.imports.map(({ module, name }) => `${module} ${name}`);
  const exports = report.exports.filter(({ kind }) => kind === "function").map(({ name }) => name);
  return { module_bytes: bytes.length, imports, exports };
}

function linesOf({ module_bytes: bytes, imports, exports }: CheckedModule): string {
  const names = new Map<string, string[]>();
  for (const line of imports) {
    const [module = "", name = ""] = line.split(" ");
    names.set(module, [...names.get(module) ?? [], name]);
  }
  const lines = [...names].map(([module, list]) => `Imports of ${module}: ${[...new Set(list)].sort().join(", ")}`);
  return [`Module: ${bytes} bytes`, `Exports: ${exports.join(", ")}`, ...lines].join("\n");
}

/** Calls a tool in services of their own, whose data directory is removed afterwards. @returns exit code 0, or 1 for an answer that is an error */
async function callTool(
  context: CommandContext,
  plugin: PluginPackage,
  { tool, input }: { readonly tool: string; readonly input: JsonObject },
): Promise<number> {
  const [{ randomControlToken, startServices }, { writePackage }] = await Promise.all([
    import("../serve/start_services.ts"),
    import("../../lib/extensions/plugins/plugin_package.ts"),
  ]);
  const loaded = await context.loadConfig();
  const dataDir = await mkdtemp(join(tmpdir(), "postern-plugin-"));
  try {
    const own = { ...loaded, dataDir };
    const services = await startServices(context, {
      loaded: own,
      agent: false,
      controlToken: randomControlToken(),
      quiet: true,
    });
    try {
      const { plugins } = await services.plugins();
      const { id } = await told(() => plugins.serve(writePackage(plugin), { by: { via: "cli", tokenId: null } }));
      const { allow_sensitive_file_reads, allow_sensitive_file_writes } = loaded.config.autonomy;
      const answer = await told(() =>
        plugins.call(id, {
          tool,
          input,
          context: { workspace_root: loaded.workspace, allow_sensitive_file_reads, allow_sensitive_file_writes },
        }, new AbortController().signal)
      );
      const { fuel, memory_bytes: memory, ms } = answer.used ?? {};
      const used = [
        ...(fuel === undefined ? [] : [`${fuel} units of fuel`]),
        ...(memory === undefined ? [] : [`${memory} bytes of memory`]),
        ...(ms === undefined ? [] : [`${Math.round(ms * 1000) / 1000} ms`]),
      ];
      context.print(answer, exactText(answer.output));
      if (used.length > 0) context.say(`Used ${used.join(", ")}`);
      return answer.is_error ? EXIT.failed : EXIT.ok;
    } finally {
      await services.close();
    }
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
}

function toObject(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text);
    // A JSON object that is no list
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as JsonObject;
  } catch {
    // The text is no JSON at all
  }
  throw new UsageError("Cannot use the input: it must be a JSON object");
}

/** Turns the refusal of a plugin into that of a command. */
async function told<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    const isRefusal = cause instanceof Error && (cause.name === "ExtensionError" || cause.name === "ToolError");
    throw isRefusal ? new CommandError(cause.message, { cause }) : cause;
  }
}

import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import type { Config } from "../../lib/config/config.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import type { PluginAnswer, PluginCall } from "../../lib/extensions/plugins/plugin_host.ts";
import type { PluginOpeners, PluginToOpen } from "../../lib/extensions/plugins/plugin_openers.ts";
import { inspectJob } from "../../lib/extensions/plugins/wasm/inspect_module.ts";
import { Plugins } from "../../lib/extensions/plugins/plugins.ts";
import type { CommandContainment } from "../../lib/system/process/containment.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { ToolContext } from "../../lib/tools/runtime/tool.ts";
import type { ToolResult } from "../../lib/tools/runtime/tool_call.ts";
import type { ToolSecrets } from "../../lib/tools/secrets/tool_secrets.ts";
import { createFakeAudit, type FakeAudit } from "./fake_audit.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { SAMPLE_MODULE, type SampleManifest, sampleManifest } from "./plugin_package.ts";
import { removeFolder } from "./remove_folder.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { createFakeServices } from "./fake_services.ts";

/** Plugins over folders and records of a test, whose hosts answer as the test says. */
export interface PluginBench {
  readonly plugins: Plugins;
  readonly store: Store;
  readonly audit: FakeAudit;
  readonly clock: FakeClock;
  readonly logged: readonly LogRecord[];
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /** Hosts that were opened and are not closed */
  readonly open: Set<PluginToOpen>;
  /** Answer of every host, by the plugin's version unless a test exchanges it */
  answer: (plugin: PluginToOpen, call: PluginCall, signal: AbortSignal) => Promise<PluginAnswer>;
  config: Config;
  /** How programs are contained on the machine of the test */
  containment: CommandContainment["kind"];
  /** Calls a tool, as the executor does after its checks */
  call(tool: string, input?: object, signal?: AbortSignal): Promise<ToolResult>;
  /** Writes a plugin folder below the workspace, such as `plugins/words` */
  write(path: string, fields?: SampleManifest, module?: Uint8Array): string;
  /** Ends the plugins and starts others on the same records and folders */
  restart(): Promise<Plugins>;
}

/** Secrets for plugins whose settings name none. */
export const NO_SECRETS: Pick<ToolSecrets, "fill"> = {
  fill: () => Promise.reject(new Error("No setting of the test names a secret")),
};

/** Actor that changes plugins in tests. */
export const BY = { via: "cli", tokenId: null } as const;

/** Runs `use` with plugins in a fresh folder, and ends them. @param kinds kinds that have an opener. Default: all */
export async function withPlugins(
  use: (bench: PluginBench) => Promise<void>,
  { kinds = ["wasm", "process", "ffi"], store = createMemoryStore() }: {
    readonly kinds?: readonly string[];
    readonly store?: Store;
  } = {},
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "postern-plugins-"));
  const [dataDir, workspaceRoot] = [join(folder, "data"), join(folder, "workspace")];
  mkdirSync(dataDir);
  mkdirSync(workspaceRoot);
  const audit = createFakeAudit(store);
  const clock = createFakeClock();
  const { log, logged } = createFakeServices();
  const open = new Set<PluginToOpen>();
  const opener = (plugin: PluginToOpen) => {
    open.add(plugin);
    return Promise.resolve({
      call: (call: PluginCall, signal: AbortSignal) => bench.answer(plugin, call, signal),
      close: () => Promise.resolve(void open.delete(plugin)),
    });
  };
  const openers = Object.fromEntries(kinds.map((kind) => [kind, opener])) as PluginOpeners;
  const start = () =>
    Plugins.open({
      ...{ store, clock, log, audit: audit.append, openers, dataDir, workspaceRoot, home: folder },
      random: createSeededRandom(clock.now()),
      config: () => state.config,
      inspect: (job) => Promise.resolve(inspectJob(job)),
      containment: () => Promise.resolve({ kind: bench.containment, text: "" }),
    });
  const state: { plugins: Plugins | undefined; config: Config } = { plugins: undefined, config: defaultConfig() };
  const plugins = () => {
    if (state.plugins === undefined) throw new TypeError("The plugins are started below");
    return state.plugins;
  };
  const bench: PluginBench = {
    get plugins() {
      return plugins();
    },
    get config() {
      return state.config;
    },
    set config(next) {
      state.config = next;
    },
    ...{ store, audit, clock, logged, dataDir, workspaceRoot, open },
    containment: "contained",
    answer: ({ manifest }) => Promise.resolve({ output: manifest.version, is_error: false }),
    async call(tool, input = { text: "a b" }, signal = new AbortController().signal) {
      const found = plugins().tools().find(({ name }) => name === tool);
      if (found === undefined) throw new TypeError(`No tool "${tool}"`);
      // A tool of a plugin reads these of its context alone
      const context = { workspaceRoot, allowSensitiveFileReads: false, allowSensitiveFileWrites: false, signal };
      return await found.execute(JSON.stringify(input), context as ToolContext);
    },
    write(path, fields = {}, module = SAMPLE_MODULE) {
      const place = join(workspaceRoot, path);
      mkdirSync(place, { recursive: true });
      writeFileSync(join(place, "plugin.json"), JSON.stringify(sampleManifest(fields)));
      writeFileSync(join(place, "words.wasm"), module);
      return place;
    },
    async restart() {
      await plugins().close();
      return state.plugins = await start();
    },
  };
  try {
    state.plugins = await start();
    await use(bench);
  } finally {
    await state.plugins?.close();
    await removeFolder(folder);
  }
}

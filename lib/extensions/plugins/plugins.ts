import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { CancelError } from "../../base/cancel.ts";
import { messageOf } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Actor } from "../../base/records/caller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { Store } from "../../storage/store.ts";
import type { CommandContainment, SandboxMode } from "../../system/process/containment.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import { checkPlugin } from "./check_plugin.ts";
import { type KnownPlugin, KnownPlugins } from "./known_plugins.ts";
import { OfferedPlugins, onChangedModule } from "./offered_plugins.ts";
import { extensionChanged, ExtensionError, extensionNotFound } from "../extension_error.ts";
import { createPluginFiles, type PluginFiles, readPluginFolder } from "./plugin_files.ts";
import { FOLDER_LAYERS, type FolderLayer, PluginFolders } from "./plugin_folders.ts";
import type { PluginAnswer, PluginCall } from "./plugin_host.ts";
import type { PluginInfo } from "../../base/records/extension_views.ts";
import { toPluginInfo } from "./plugin_info.ts";
import type { PluginOpeners } from "./plugin_openers.ts";
import { type PluginPackage, readPackage, sha256Of } from "./plugin_package.ts";
import type { PluginRecord } from "./plugin_record.ts";
import { PluginRecords } from "./plugin_records.ts";
import type { InspectJob, ModuleReport } from "./wasm/inspect_module.ts";

/** Options of `Plugins`. */
export interface PluginsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: AuditAppend;
  /** The newest configuration. */
  readonly config: () => Config;
  readonly openers: PluginOpeners;
  /** Looks at the module of a plugin. @throws {CancelError} when the signal aborts */
  readonly inspect: (job: InspectJob, signal: AbortSignal) => Promise<ModuleReport>;
  /** Tells how programs of plugins are contained. */
  readonly containment: Processes["containment"];
  /** Absolute path of the data directory. */
  readonly dataDir: string;
  /** Absolute path of the folder that the agent works in. */
  readonly workspaceRoot: string;
  /** The user's home folder, absolute. */
  readonly home: string;
}

/** The plugins of one gateway (docs/design/plugins.md "Plugins"). */
export class Plugins {
  readonly #options: PluginsOptions;
  readonly #files: PluginFiles;
  readonly #records: PluginRecords;
  readonly #folders: PluginFolders;
  readonly #known = new KnownPlugins();
  readonly #offered: OfferedPlugins;
  readonly #mutex = createKeyedMutex();
  #endWatch: () => void = () => {};
  /** How programs of plugins were contained at the last look, by `[plugins] sandbox` */
  #contained: { readonly sandbox: SandboxMode; readonly kind: CommandContainment["kind"] } | undefined;
  readonly #closing = new AbortController();

  constructor(options: PluginsOptions) {
    this.#options = options;
    this.#records = new PluginRecords(options);
    this.#folders = new PluginFolders({ ...options, records: this.#records });
    this.#files = createPluginFiles({ root: join(options.dataDir, "plugins"), random: options.random });
    this.#offered = new OfferedPlugins({
      ...options,
      files: this.#files,
      onIdle: () => void (this.#closing.signal.aborted || this.#alone(() => this.#tidy())),
    });
  }

  /** Reads the plugins of the records and of the folders, and watches `plugins` of the workspace. */
  static async open(options: PluginsOptions): Promise<Plugins> {
    const plugins = new Plugins(options);
    await plugins.#start();
    return plugins;
  }

  async #start(): Promise<void> {
    await this.#alone(async () => {
      const installed = (await this.#records.read()).filter(({ folder }) => folder === null);
      this.#known.putLayer("package", await Promise.all(installed.map((record) => this.#openInstalled(record))));
      await this.#lookIn(FOLDER_LAYERS);
    });
    const look = () =>
      this.#alone(() => this.#lookIn(["workspace"])).catch((error: unknown) =>
        this.#options.log.error("The plugins of the workspace cannot be read", { error })
      );
    this.#endWatch = await this.#folders.watch(look);
  }

  /** Returns all plugins by id; of several with one id the one that counts. */
  list(): readonly PluginInfo[] {
    return this.#known.effective().map((plugin) => this.#infoOf(plugin));
  }

  /** Looks at the folders that are not watched, if they changed since the last look, and at the sandbox: for a person who asks. */
  async look(): Promise<void> {
    const { config, containment } = this.#options;
    const { sandbox } = config().plugins;
    if (this.#known.effective().some(({ content }) => content !== undefined && content.manifest.kind !== "wasm")) {
      this.#contained = { sandbox, kind: (await containment({ sandbox })).kind };
    }
    await this.#alone(() => this.#reopenInstalled());
    for (const layer of ["user_dir", "project"] as const) {
      if (!await this.#folders.hasChanged(layer)) continue;
      await this.#alone(() => this.#lookIn([layer])).catch((error: unknown) =>
        this.#options.log.error("The plugins of a folder cannot be read", { layer, error })
      );
    }
  }

  /** undefined: there is none */
  get(id: string): PluginInfo | undefined {
    const plugin = this.#known.find(id);
    return plugin === undefined ? undefined : this.#infoOf(plugin);
  }

  /** @throws {ExtensionError} `plugin_not_found` */
  require(id: string): PluginInfo {
    return this.#infoOf(this.#find(id));
  }

  /** Returns the record of an installed package, also of one that another place overrides; undefined: there is none */
  installed(id: string): PluginRecord | undefined {
    return this.#known.at("package", id)?.record;
  }

  /**
   * Installs a package, off. In place of another version it stays enabled, unless it asks for more.
   * @param options.registry address of the registry that it came from. Default: none
   * @throws {ExtensionError} a package that is refused
   */
  async install(
    bytes: Uint8Array,
    { by, registry }: { readonly by: Actor; readonly registry?: string | undefined },
  ): Promise<PluginInfo> {
    const plugin = readPackage(bytes);
    await this.#check(plugin);
    return await this.#alone(async () => {
      const { id } = plugin.manifest;
      const known = this.#known.at("package", id);
      const before = known?.record;
      if (known !== undefined && before?.digest === plugin.digest) return await this.#mend(known, plugin);
      const record = this.#records.toInstalled(plugin, { before, packageSha256: sha256Of(bytes), registry });
      if (record.state === "enabled") this.#known.checkNames(plugin.manifest);
      await this.#files.write(plugin);
      const isTurnedOff = before?.state === "enabled" && record.state !== "enabled";
      await this.#records.keep(record, [
        { action: before === undefined ? "installed" : "updated", by },
        ...(isTurnedOff ? [{ action: "turned_off" as const, by: null }] : []),
      ]);
      this.#known.put({ id, layer: "package", folder: null, content: plugin, fault: undefined, record });
      await this.#settle();
      return this.require(id);
    });
  }

  /**
   * Enables a plugin for exactly this content.
   * @throws {ExtensionError} `plugin_not_found`, `plugin_changed` for another digest, `plugin_conflict`
   */
  enable(id: string, { by, digest }: { readonly by: Actor; readonly digest: string }): Promise<PluginInfo> {
    return this.#alone(async () => {
      const known = this.#find(id);
      const plugin = await this.#contentToEnable(known);
      if (plugin.digest !== digest) throw extensionChanged("plugin", id, { asked: digest, found: plugin.digest });
      await this.#check(plugin);
      this.#known.checkNames(plugin.manifest);
      if (known.record?.state === "enabled" && known.record.grant?.digest === digest) return this.require(id);
      if (known.folder !== null) await this.#files.write(plugin);
      const record = this.#records.toEnabled(known, plugin);
      await this.#records.keep(record, [{ action: "enabled", by }]);
      this.#known.put({ ...known, content: plugin, fault: undefined, record });
      await this.#settle();
      return this.require(id);
    });
  }

  /** @throws {ExtensionError} `plugin_not_found` */
  disable(id: string, { by }: { readonly by: Actor }): Promise<PluginInfo> {
    return this.#alone(async () => {
      const known = this.#find(id);
      if (known.layer === "dev") {
        throw new ExtensionError(
          "plugin_conflict",
          `Cannot disable "${id}": postern plugin dev serves it; end that command`,
        );
      }
      const record = this.#records.toDisabled(known);
      if (record === undefined) throw new ExtensionError("plugin_conflict", `Cannot disable "${id}": ${known.fault}`);
      if (known.record?.state === "disabled") return this.require(id);
      await this.#records.keep(record, [{ action: "disabled", by }]);
      this.#known.put({ ...known, record });
      await this.#settle();
      return this.require(id);
    });
  }

  /** Removes an installed package. @throws {ExtensionError} `plugin_not_found`, `plugin_conflict` for one that lies in a folder */
  remove(id: string, { by }: { readonly by: Actor }): Promise<void> {
    return this.#alone(async () => {
      const installed = this.#known.at("package", id);
      if (installed?.record === undefined) {
        const { folder } = this.#find(id);
        throw new ExtensionError(
          "plugin_conflict",
          `Cannot remove "${id}": it lies in "${folder ?? "a folder"}"; delete that folder, or disable it`,
        );
      }
      await this.#records.drop(installed.record, by);
      this.#known.delete(installed);
      await this.#settle();
    });
  }

  /** Serves a package at once, in place of every other plugin of its id, until `endServing` or the end of the gateway. */
  async serve(bytes: Uint8Array, { by }: { readonly by: Actor }): Promise<PluginInfo> {
    const plugin = readPackage(bytes);
    await this.#check(plugin);
    return await this.#alone(async () => {
      const { id } = plugin.manifest;
      this.#known.checkNames(plugin.manifest);
      await this.#files.write(plugin);
      await this.#records.noteServed(plugin, { action: "served", by });
      this.#known.put({ id, layer: "dev", folder: null, content: plugin, fault: undefined, record: undefined });
      await this.#settle();
      return this.require(id);
    });
  }

  /** Ends `serve`. @throws {ExtensionError} `plugin_not_found` */
  endServing(id: string, { by }: { readonly by: Actor }): Promise<void> {
    return this.#alone(async () => {
      const served = this.#known.at("dev", id);
      if (served?.content === undefined) throw extensionNotFound("plugin", id);
      await this.#records.noteServed(served.content, { action: "serving_ended", by });
      this.#known.delete(served);
      await this.#settle();
    });
  }

  /**
   * Calls a tool of a plugin that is on, without policy and audit: for a person who tests the plugin.
   * @throws {ExtensionError} `plugin_not_found`, `plugin_conflict` for one that is off
   */
  async call(id: string, call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const { on, reason } = this.require(id);
    if (!on) throw new ExtensionError("plugin_conflict", `Cannot call "${id}": ${reason}`);
    return await this.#offered.call(id, call, signal);
  }

  /** Returns the tools of all plugins that count, for the registry: the same array until something changes. */
  readonly tools = (): readonly Tool[] => this.#offered.tools;

  /** Ends the watch and every host. */
  async close(): Promise<void> {
    this.#closing.abort(new CancelError("shutdown"));
    this.#endWatch();
    await this.#alone(() => Promise.resolve());
    await this.#offered.close();
  }

  /** Does one change after the other. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#mutex("plugins", work);
  }

  async #lookIn(layers: readonly FolderLayer[]): Promise<void> {
    for (const layer of layers) this.#known.putLayer(layer, await this.#folders.look(layer));
    await this.#settle();
  }

  /** Reads the installed plugins again that could not be used: files may be back, or `module_hash_policy` another. */
  async #reopenInstalled(): Promise<void> {
    const broken = (await this.#records.read()).filter(({ id, folder }) =>
      folder === null && this.#known.at("package", id)?.content === undefined
    );
    for (const record of broken) this.#known.put(await this.#openInstalled(record));
    if (broken.length > 0) await this.#settle();
  }

  async #openInstalled(record: PluginRecord): Promise<KnownPlugin> {
    const { id, digest } = record;
    try {
      const { manifest } = await this.#files.read(digest, { onChangedModule: onChangedModule(id, this.#options) });
      return { id, layer: "package", folder: null, content: { manifest, digest }, fault: undefined, record };
    } catch (error) {
      const fault = messageOf(error);
      this.#options.log.warn("An installed plugin cannot be used", { plugin: id, reason: fault });
      return { id, layer: "package", folder: null, content: undefined, fault, record };
    }
  }

  /** Writes the files of an installed plugin again when they are gone or damaged. Its state stays. */
  async #mend(known: KnownPlugin, plugin: PluginPackage): Promise<PluginInfo> {
    await this.#files.write(plugin);
    if (known.content === undefined) this.#known.put({ ...known, content: plugin, fault: undefined });
    await this.#settle();
    return this.require(known.id);
  }

  /** Returns the content that enabling would run: a folder is read again, a package is compared with its digest. */
  async #contentToEnable(known: KnownPlugin): Promise<PluginPackage> {
    if (known.layer === "dev") {
      throw new ExtensionError(
        "plugin_conflict",
        `Cannot enable "${known.id}": postern plugin dev serves it; end that command`,
      );
    }
    if (known.folder !== null) return await readPluginFolder(known.folder, { isFound: true });
    if (known.record === undefined) throw extensionNotFound("plugin", known.id);
    return await this.#files.read(known.record.digest, { onChangedModule: onChangedModule(known.id, this.#options) });
  }

  /** @throws {ExtensionError} for a plugin that could not be loaded */
  async #check(plugin: PluginPackage): Promise<void> {
    const { config, openers, inspect } = this.#options;
    const { signal } = this.#closing;
    const circumstances = { config: config(), kinds: Object.keys(openers) };
    await checkPlugin(plugin, { ...circumstances, inspect: (job) => inspect(job, signal) });
  }

  #find(id: string): KnownPlugin {
    const known = this.#known.find(id);
    if (known === undefined) throw extensionNotFound("plugin", id);
    return known;
  }

  #infoOf(plugin: KnownPlugin): PluginInfo {
    const { config, openers } = this.#options;
    const overridden = this.#known.othersOf(plugin);
    const lastError = this.#offered.lastError(plugin.content?.digest);
    const containment = this.#contained?.sandbox === config().plugins.sandbox ? this.#contained.kind : undefined;
    return toPluginInfo(plugin, {
      ...{ config: config(), overridden, lastError, containment },
      kinds: Object.keys(openers),
    });
  }

  /** Makes tools and hosts fit what is known now, and removes files that nothing uses. */
  async #settle(): Promise<void> {
    this.#offered.settle(this.#known.effective());
    await this.#tidy();
  }

  async #tidy(): Promise<void> {
    await this.#files.keepOnly(new Set([...this.#known.digests(), ...this.#offered.inUse()]));
  }
}

import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import { resolvePath } from "../../config/folders.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { PluginEvent } from "../../guard/audit/audit_event.ts";
import { readable, scanAll } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import {
  findPlugins,
  isEnabled,
  type KnownPlugin,
  PLUGIN_LAYERS,
  type PluginLayer,
  watchPlugins,
} from "./found_plugins.ts";
import { NO_CAPABILITIES, type PluginManifest, widened } from "./manifest.ts";
import { OfferedPlugins } from "./offered_plugins.ts";
import { PluginError } from "./plugin_error.ts";
import { createPluginFiles, type PluginFiles, readPluginFolder } from "./plugin_files.ts";
import { misfitOf } from "./plugin_gate.ts";
import type { PluginAnswer, PluginCall } from "./plugin_host.ts";
import { type PluginInfo, toPluginInfo } from "./plugin_info.ts";
import type { PluginOpeners } from "./plugin_openers.ts";
import { type PluginPackage, readPackage, sha256Of } from "./plugin_package.ts";
import {
  beyondGrant,
  grantOf,
  nextState,
  parsePluginRecord,
  type PluginGrant,
  type PluginRecord,
  PLUGINS,
  recordKey,
} from "./plugin_record.ts";

/** Person or program that changes a plugin. */
export type PluginActor = Pick<Caller, "via" | "tokenId">;

/** The plugins of one gateway (docs/design/plugins.md "Plugins"). */
export interface Plugins {
  /** Returns all plugins by id; of several with one id the one that counts. */
  list(): readonly PluginInfo[];
  /** undefined: there is none */
  get(id: string): PluginInfo | undefined;
  /** @throws {PluginError} `plugin_not_found` */
  require(id: string): PluginInfo;
  /** Returns the record of an installed package, also of one that another place overrides; undefined: there is none */
  installed(id: string): PluginRecord | undefined;
  /**
   * Installs a package, off. In place of another version it stays enabled, unless it asks for more.
   * @param options.registry address of the registry that it came from. Default: none
   * @throws {PluginError} a package that is refused
   */
  install(
    bytes: Uint8Array,
    options: { readonly by: PluginActor; readonly registry?: string | undefined },
  ): Promise<PluginInfo>;
  /**
   * Enables a plugin for exactly this content.
   * @throws {PluginError} `plugin_not_found`, `plugin_changed` for another digest, `plugin_conflict`
   */
  enable(id: string, options: { readonly by: PluginActor; readonly digest: string }): Promise<PluginInfo>;
  /** @throws {PluginError} `plugin_not_found` */
  disable(id: string, options: { readonly by: PluginActor }): Promise<PluginInfo>;
  /** Removes an installed package. @throws {PluginError} `plugin_not_found`, `plugin_conflict` for one that lies in a folder */
  remove(id: string, options: { readonly by: PluginActor }): Promise<void>;
  /** Serves a package at once, in place of every other plugin of its id, until `endServing` or the end of the gateway. */
  serve(bytes: Uint8Array, options: { readonly by: PluginActor }): Promise<PluginInfo>;
  /** Ends `serve`. @throws {PluginError} `plugin_not_found` */
  endServing(id: string): Promise<void>;
  /**
   * Calls a tool of a plugin that is on, without policy and audit: for a person who tests the plugin.
   * @throws {PluginError} `plugin_not_found`, `plugin_conflict` for one that is off
   */
  call(id: string, call: PluginCall, signal: AbortSignal): Promise<PluginAnswer>;
  /** Returns the tools of all plugins that count, for the registry: the same array until something changes. */
  tools(): readonly Tool[];
  /** Ends the watch and every host. */
  close(): Promise<void>;
}

/** Options of `createPlugins`. */
export interface PluginsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: AuditAppend;
  /** The newest configuration. */
  readonly config: () => Config;
  readonly openers: PluginOpeners;
  /** Absolute path of the data directory. */
  readonly dataDir: string;
  /** Absolute path of the folder that the agent works in. */
  readonly workspaceRoot: string;
  /** The user's home folder, absolute. */
  readonly home: string;
}

/** Reads the plugins of the records and of the folders, and watches `plugins` of the workspace. */
export async function createPlugins(options: PluginsOptions): Promise<Plugins> {
  const plugins = new StoredPlugins(options);
  await plugins.start();
  return plugins;
}

type EventFields = Pick<PluginEvent, "action"> & { readonly by: PluginActor | null };

class StoredPlugins implements Plugins {
  readonly #options: PluginsOptions;
  readonly #files: PluginFiles;
  readonly #offered: OfferedPlugins;
  readonly #mutex = createKeyedMutex();
  /** Every plugin at each of its places */
  #known: readonly KnownPlugin[] = [];
  #endWatch: () => void = () => {};
  #isClosed = false;

  constructor(options: PluginsOptions) {
    this.#options = options;
    this.#files = createPluginFiles({ root: join(options.dataDir, "plugins"), random: options.random });
    this.#offered = new OfferedPlugins({
      ...options,
      files: this.#files,
      onIdle: () => void (this.#isClosed || this.#alone(() => this.#tidy())),
    });
  }

  async start(): Promise<void> {
    const { clock, log, workspaceRoot } = this.#options;
    await this.#alone(async () => {
      const records = await this.#readRecords();
      const installed = await Promise.all(
        records.filter(({ folder }) => folder === null).map((record) => this.#openInstalled(record)),
      );
      this.#known = installed;
      for (const layer of FOLDER_LAYERS) await this.#lookIn(layer, records);
      await this.#settle();
    });
    const look = () =>
      this.#alone(async () => {
        await this.#lookIn("workspace", await this.#readRecords());
        await this.#settle();
      }).catch((error: unknown) => log.error("The plugins of the workspace cannot be read", { error }));
    this.#endWatch = await watchPlugins(join(workspaceRoot, "plugins"), { clock, onChange: look });
  }

  list(): readonly PluginInfo[] {
    return this.#effective().map((plugin) => this.#infoOf(plugin));
  }

  get(id: string): PluginInfo | undefined {
    const plugin = this.#effective().find((one) => one.id === id);
    return plugin === undefined ? undefined : this.#infoOf(plugin);
  }

  require(id: string): PluginInfo {
    const info = this.get(id);
    if (info === undefined) throw notFound(id);
    return info;
  }

  installed(id: string): PluginRecord | undefined {
    return this.#known.find((known) => known.id === id && known.layer === "package")?.record;
  }

  async install(
    bytes: Uint8Array,
    { by, registry }: { readonly by: PluginActor; readonly registry?: string | undefined },
  ): Promise<PluginInfo> {
    const plugin = this.#readFitting(bytes);
    return await this.#alone(async () => {
      const { id } = plugin.manifest;
      const before = this.#known.find((known) => known.id === id && known.layer === "package")?.record;
      if (before?.digest === plugin.digest) return this.require(id);
      await this.#files.write(plugin);
      const record = this.#installedRecord(plugin, { before, packageSha256: sha256Of(bytes), registry });
      const isTurnedOff = before?.state === "enabled" && record.state !== "enabled";
      await this.#keep(record, [
        { action: before === undefined ? "installed" : "updated", by },
        ...(isTurnedOff ? [{ action: "turned_off" as const, by: null }] : []),
      ]);
      this.#place({ id, layer: "package", folder: null, content: plugin, fault: undefined, record });
      await this.#settle();
      return this.require(id);
    });
  }

  enable(id: string, { by, digest }: { readonly by: PluginActor; readonly digest: string }): Promise<PluginInfo> {
    return this.#alone(async () => {
      const known = this.#known.length === 0 ? undefined : this.#find(id);
      if (known === undefined) throw notFound(id);
      const plugin = await this.#contentToEnable(known);
      if (plugin.digest !== digest) throw this.#changed(id, { asked: digest, found: plugin.digest });
      const misfit = misfitOf(plugin.manifest, Object.keys(this.#options.openers));
      if (misfit !== undefined) throw conflict(`Cannot enable "${id}": ${misfit}`);
      this.#checkNames(plugin.manifest);
      const { record: before } = known;
      const grant = grantOf(plugin);
      if (before?.state === "enabled" && before.grant?.digest === digest) return this.require(id);
      if (known.folder !== null) await this.#files.write(plugin);
      const record: PluginRecord = {
        ...this.#recordOf(known, plugin),
        state: nextStateOf(before, "enable"),
        version: plugin.manifest.version,
        digest,
        grant,
        off_because: null,
      };
      await this.#keep(record, [{ action: "enabled", by }]);
      this.#place({ ...known, content: plugin, fault: undefined, record });
      await this.#settle();
      return this.require(id);
    });
  }

  disable(id: string, { by }: { readonly by: PluginActor }): Promise<PluginInfo> {
    return this.#alone(async () => {
      const known = this.#find(id);
      if (known === undefined) throw notFound(id);
      if (known.layer === "dev") {
        throw conflict(`Cannot disable "${id}": postern plugin dev serves it; end that command`);
      }
      if (known.content === undefined) throw conflict(`Cannot disable "${id}": ${known.fault}`);
      if (known.record?.state === "disabled") return this.require(id);
      const record: PluginRecord = {
        ...this.#recordOf(known, known.content),
        state: nextStateOf(known.record, "disable"),
        off_because: null,
      };
      await this.#keep(record, [{ action: "disabled", by }]);
      this.#place({ ...known, record });
      await this.#settle();
      return this.require(id);
    });
  }

  remove(id: string, { by }: { readonly by: PluginActor }): Promise<void> {
    return this.#alone(async () => {
      const installed = this.#known.find((known) => known.id === id && known.layer === "package");
      if (installed?.record === undefined) {
        const known = this.#find(id);
        if (known === undefined) throw notFound(id);
        throw conflict(
          `Cannot remove "${id}": it lies in "${known.folder ?? "a folder"}"; delete that folder, or disable it`,
        );
      }
      await this.#drop(installed.record, { action: "removed", by });
      this.#known = this.#known.filter((known) => known !== installed);
      await this.#settle();
    });
  }

  async serve(bytes: Uint8Array, { by }: { readonly by: PluginActor }): Promise<PluginInfo> {
    const plugin = this.#readFitting(bytes);
    return await this.#alone(async () => {
      const { id, version } = plugin.manifest;
      this.#checkNames(plugin.manifest);
      await this.#files.write(plugin);
      const granted = describeGrant(grantOf(plugin));
      await this.#audit({ action: "served", by }, { id, version, digest: plugin.digest, folder: null, granted });
      this.#place({ id, layer: "dev", folder: null, content: plugin, fault: undefined, record: undefined });
      await this.#settle();
      return this.require(id);
    });
  }

  endServing(id: string): Promise<void> {
    return this.#alone(async () => {
      const served = this.#known.find((known) => known.id === id && known.layer === "dev");
      if (served === undefined) throw notFound(id);
      this.#known = this.#known.filter((known) => known !== served);
      await this.#settle();
    });
  }

  async call(id: string, call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const { on, reason } = this.require(id);
    if (!on) throw conflict(`Cannot call "${id}": ${reason}`);
    return await this.#offered.call(id, call, signal);
  }

  readonly tools = (): readonly Tool[] => this.#offered.tools;

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endWatch();
    await this.#alone(() => Promise.resolve());
    await this.#offered.close();
  }

  /** Does one change after the other. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#mutex("plugins", work);
  }

  async #readRecords(): Promise<readonly PluginRecord[]> {
    const { store } = this.#options;
    const records: PluginRecord[] = [];
    for await (const stored of scanAll(store, PLUGINS)) {
      records.push(...readable(store, PLUGINS, [stored], parsePluginRecord).map(({ value }) => value));
    }
    return records;
  }

  async #openInstalled(record: PluginRecord): Promise<KnownPlugin> {
    const { id, digest } = record;
    try {
      const { manifest } = await this.#files.read(digest);
      return { id, layer: "package", folder: null, content: { manifest, digest }, fault: undefined, record };
    } catch (error) {
      const fault = error instanceof Error ? error.message : String(error);
      this.#options.log.warn("An installed plugin cannot be used", { plugin: id, reason: fault });
      return { id, layer: "package", folder: null, content: undefined, fault, record };
    }
  }

  /** Looks in the folder of a layer anew. What was enabled with another content is turned off. */
  async #lookIn(layer: PluginLayer, records: readonly PluginRecord[]): Promise<void> {
    const found = await findPlugins({ layer, path: this.#folderOf(layer) });
    const known: KnownPlugin[] = [];
    for (const plugin of found) {
      const record = records.find(({ id, folder }) =>
        folder === plugin.folder && (id === plugin.id || plugin.content === undefined)
      );
      known.push(
        await this.#withChange({
          ...plugin,
          id: plugin.content === undefined ? record?.id ?? plugin.id : plugin.id,
          record,
        }),
      );
    }
    this.#known = [...this.#known.filter((plugin) => plugin.layer !== layer), ...known];
  }

  #folderOf(layer: PluginLayer): string {
    const { config, dataDir, home, workspaceRoot } = this.#options;
    const { user_dir: userDir } = config().plugins;
    if (layer === "workspace") return join(workspaceRoot, "plugins");
    if (layer === "project") return join(workspaceRoot, ".plugins");
    return userDir === "" ? join(dataDir, "plugins") : resolvePath(userDir, dataDir, home);
  }

  async #withChange(known: KnownPlugin): Promise<KnownPlugin> {
    const { record, content } = known;
    if (record === undefined || record.state !== "enabled" || record.grant?.digest === content?.digest) return known;
    const off: PluginRecord = { ...record, state: "disabled", off_because: "changed" };
    await this.#keep(off, [{ action: "turned_off", by: null }]);
    this.#options.log.warn("A plugin has changed and is off until it is enabled again", {
      plugin: known.id,
      folder: known.folder,
      digest: content?.digest,
    });
    return { ...known, record: off };
  }

  /** Returns the content that enabling would run: a folder is read anew, a package is compared with its digest. */
  async #contentToEnable(known: KnownPlugin): Promise<PluginPackage> {
    if (known.layer === "dev") {
      throw conflict(`Cannot enable "${known.id}": postern plugin dev serves it; end that command`);
    }
    if (known.folder !== null) return await readPluginFolder(known.folder);
    if (known.record === undefined) throw notFound(known.id);
    return await this.#files.read(known.record.digest);
  }

  #readFitting(bytes: Uint8Array): PluginPackage {
    const plugin = readPackage(bytes);
    const misfit = misfitOf(plugin.manifest, Object.keys(this.#options.openers));
    if (misfit !== undefined) throw conflict(`Cannot use the plugin "${plugin.manifest.id}": ${misfit}`);
    return plugin;
  }

  /** Refuses tools whose names another enabled plugin has. */
  #checkNames({ id, tools }: PluginManifest): void {
    for (const other of this.#effective()) {
      if (other.id === id || !isEnabled(other)) continue;
      const name = tools.find((tool) => other.content?.manifest.tools.some((taken) => taken.name === tool.name))?.name;
      if (name === undefined) continue;
      throw conflict(
        `Cannot enable "${id}": the enabled plugin "${other.id}" has a tool "${name}" too; disable it first`,
      );
    }
  }

  #installedRecord(
    { manifest, digest }: PluginPackage,
    { before, packageSha256, registry }: {
      readonly before: PluginRecord | undefined;
      readonly packageSha256: string;
      readonly registry: string | undefined;
    },
  ): PluginRecord {
    const now = this.#now();
    const next = grantOf({ manifest, digest });
    const stays = before?.state === "enabled" && before.grant !== null && beyondGrant(before.grant, next).length === 0;
    const isWidened = before?.state === "enabled" && !stays;
    return {
      v: 1,
      id: manifest.id,
      state: before === undefined || isWidened ? "installed" : before.state,
      folder: null,
      version: manifest.version,
      digest,
      package_sha256: packageSha256,
      registry: registry ?? null,
      grant: stays ? next : before?.grant ?? null,
      off_because: isWidened ? "widened" : null,
      created_at: before?.created_at ?? now,
      changed_at: now,
    };
  }

  #recordOf(
    { id, folder, record }: KnownPlugin,
    { manifest, digest }: Pick<PluginPackage, "manifest" | "digest">,
  ): PluginRecord {
    const now = this.#now();
    if (record !== undefined) return { ...record, changed_at: now };
    return {
      v: 1,
      ...{ id, folder, digest },
      state: "installed",
      version: manifest.version,
      package_sha256: null,
      registry: null,
      grant: null,
      off_because: null,
      created_at: now,
      changed_at: now,
    };
  }

  async #keep(record: PluginRecord, events: readonly EventFields[]): Promise<void> {
    const write: Write = { op: "put", collection: PLUGINS, key: recordKey(record), body: record };
    const granted = record.state === "enabled" && record.grant !== null ? describeGrant(record.grant) : [];
    const [first, ...more] = events.map((event) => toEvent(event, { ...record, granted }));
    if (first === undefined) throw new TypeError("A change of a plugin is recorded");
    await this.#options.audit(first, [write], more);
  }

  async #drop(record: PluginRecord, event: EventFields): Promise<void> {
    const write: Write = { op: "delete", collection: PLUGINS, key: recordKey(record) };
    await this.#options.audit(toEvent(event, { ...record, granted: [] }), [write]);
  }

  async #audit(event: EventFields, plugin: EventSubject): Promise<void> {
    await this.#options.audit(toEvent(event, plugin));
  }

  /** Puts a plugin in the place of the one with its id, layer and folder. */
  #place(plugin: KnownPlugin): void {
    const isSame = (other: KnownPlugin) =>
      other.id === plugin.id && other.layer === plugin.layer && other.folder === plugin.folder;
    this.#known = [...this.#known.filter((other) => !isSame(other)), plugin];
  }

  /** Returns the plugins that count: of one id, the one of the latest layer. */
  #effective(): readonly KnownPlugin[] {
    const byId = new Map<string, KnownPlugin>();
    for (const layer of PLUGIN_LAYERS) {
      for (const plugin of this.#known) if (plugin.layer === layer) byId.set(plugin.id, plugin);
    }
    return [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  #find(id: string): KnownPlugin | undefined {
    return this.#effective().find((plugin) => plugin.id === id);
  }

  #infoOf(plugin: KnownPlugin): PluginInfo {
    const { config, openers } = this.#options;
    const overridden = this.#known.filter((other) => other.id === plugin.id && other !== plugin);
    return toPluginInfo(plugin, { config: config(), overridden, kinds: Object.keys(openers) });
  }

  /** Makes tools and hosts fit what is known now, and removes files that nothing uses. */
  async #settle(): Promise<void> {
    this.#offered.settle(this.#effective());
    await this.#tidy();
  }

  async #tidy(): Promise<void> {
    const kept = this.#known.flatMap(({ layer, record, content }) => {
      if (layer === "dev") return content === undefined ? [] : [content.digest];
      return record === undefined || (record.folder !== null && record.state !== "enabled") ? [] : [record.digest];
    });
    await this.#files.keepOnly(new Set([...kept, ...this.#offered.inUse()]));
  }

  #changed(id: string, { asked, found }: { readonly asked: string; readonly found: string }): PluginError {
    return new PluginError(
      "plugin_changed",
      `Cannot enable "${id}" with the digest ${asked}: its content has the digest ${found}; look at it again`,
    );
  }

  #now(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}

const FOLDER_LAYERS: readonly PluginLayer[] = ["user_dir", "project", "workspace"];

function nextStateOf(record: PluginRecord | undefined, trigger: "enable" | "disable") {
  const state = nextState(record?.state ?? "installed", trigger);
  if (state === "removed") throw new TypeError("Only a removal removes a plugin");
  return state;
}

/** Plugin that an event is about. */
interface EventSubject extends Pick<PluginRecord, "id" | "version" | "digest" | "folder"> {
  readonly granted: readonly string[];
}

function toEvent({ action, by }: EventFields, { id, version, digest, folder, granted }: EventSubject): PluginEvent {
  const actor = by === null ? null : { via: by.via, token_id: by.tokenId };
  return { type: "plugin", action, plugin_id: id, version, digest, folder, granted, by: actor };
}

function describeGrant({ capabilities }: PluginGrant): readonly string[] {
  return widened(NO_CAPABILITIES, capabilities);
}

function notFound(id: string): PluginError {
  return new PluginError(
    "plugin_not_found",
    `Cannot find the plugin ${JSON.stringify(id.slice(0, 64))}: see postern plugin list`,
  );
}

function conflict(message: string): PluginError {
  return new PluginError("plugin_conflict", message);
}

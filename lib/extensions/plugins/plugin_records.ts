import type { Clock } from "../../base/clock.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import { unknownFieldsOf } from "../../base/records/stored_object.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { PluginEvent } from "../../guard/audit/audit_event.ts";
import type { Store } from "../../storage/store.ts";
import type { KnownPlugin } from "./known_plugins.ts";
import { NO_CAPABILITIES, widened } from "./manifest.ts";
import type { PluginPackage } from "./plugin_package.ts";
import {
  beyondGrant,
  grantOf,
  nextState,
  type PluginGrant,
  type PluginRecord,
  PLUGINS,
  recordKey,
} from "./plugin_record.ts";

/** Change of a plugin, with who made it; null: Postern itself. */
export type PluginAction = Pick<PluginEvent, "action"> & { readonly by: Actor | null };

/** Content that a record is made for. */
type Content = Pick<PluginPackage, "manifest" | "digest">;

/** Options of PluginRecords. */
export interface PluginRecordsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
}

/** The stored plugins. Every change of a record is in the audit, in one transaction with the record. */
export class PluginRecords {
  readonly #options: PluginRecordsOptions;

  constructor(options: PluginRecordsOptions) {
    this.#options = options;
  }

  /** Reads all records. Damaged ones are set aside. */
  async read(): Promise<readonly PluginRecord[]> {
    const { store } = this.#options;
    const records: PluginRecord[] = [];
    for await (const { value } of PLUGINS.all(store)) records.push(value);
    return records;
  }

  /** Writes a record with its events, of which there is at least one. Fields of a newer version stay that another gateway has written. */
  async keep(record: PluginRecord, actions: readonly PluginAction[]): Promise<void> {
    const key = recordKey(record);
    const { value: before } = await PLUGINS.readForChange(this.#options.store, key);
    const write = PLUGINS.put(key, { ...record, ...unknownFieldsOf(before) });
    const granted = record.state === "enabled" && record.grant !== null ? describeGrant(record.grant) : [];
    const [first, ...more] = actions.map((action) => toEvent(action, { ...record, granted }));
    if (first === undefined) throw new TypeError("A change of a plugin is recorded");
    await this.#options.audit(first, [write], more);
  }

  /** Deletes a record. */
  async drop(record: PluginRecord, by: Actor): Promise<void> {
    const event = toEvent({ action: "removed", by }, { ...record, granted: [] });
    await this.#options.audit(event, [PLUGINS.remove(recordKey(record))]);
  }

  /** Records that a package is served, or no longer, which leaves no record of the plugin. */
  async noteServed({ manifest, digest }: Content, action: PluginAction): Promise<void> {
    const { id, version } = manifest;
    const granted = action.action === "served" ? describeGrant(grantOf({ manifest, digest })) : [];
    await this.#options.audit(toEvent(action, { id, version, digest, folder: null, granted }));
  }

  /** Returns the record of a package that takes the place of `before`: it stays enabled unless it asks for more. */
  toInstalled(
    { manifest, digest }: Content,
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

  /** Returns the record of a plugin that a person enables for this content. */
  toEnabled(known: KnownPlugin, content: Content): PluginRecord {
    return {
      ...this.#recordOf(known, content),
      state: stateAfter(known.record, "enable"),
      version: content.manifest.version,
      digest: content.digest,
      grant: grantOf(content),
      off_because: null,
    };
  }

  /** Returns the record of a plugin that a person disables. Undefined for a folder that nobody enabled and that cannot be used. */
  toDisabled(known: KnownPlugin): PluginRecord | undefined {
    const { record, content } = known;
    const before = record ?? (content === undefined ? undefined : this.#recordOf(known, content));
    if (before === undefined) return undefined;
    return { ...before, state: stateAfter(record, "disable"), off_because: null, changed_at: this.#now() };
  }

  #recordOf({ id, folder, record }: KnownPlugin, { manifest, digest }: Content): PluginRecord {
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

  #now(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}

function stateAfter(record: PluginRecord | undefined, trigger: "enable" | "disable"): PluginRecord["state"] {
  const state = nextState(record?.state ?? "installed", trigger);
  if (state === "removed") throw new TypeError("Only a removal removes a plugin");
  return state;
}

/** Plugin that an event is about. */
interface EventSubject extends Pick<PluginRecord, "id" | "version" | "digest" | "folder"> {
  readonly granted: readonly string[];
}

function toEvent({ action, by }: PluginAction, { id, version, digest, folder, granted }: EventSubject): PluginEvent {
  const actor = by === null ? null : storedActor(by);
  return { type: "plugin", action, plugin_id: id, version, digest, folder, granted, by: actor };
}

function describeGrant({ capabilities }: PluginGrant): readonly string[] {
  return widened(NO_CAPABILITIES, capabilities);
}

import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import { storedObject, unknownFieldsOf } from "../../base/records/stored_object.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { SkillEvent } from "../../guard/audit/audit_event.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { SOURCE_KINDS } from "../../base/records/extension_views.ts";

const text = v.pipe(v.string(), v.maxLength(4_096));

const recordSchema = storedObject({
  v: v.literal(1),
  name: text,
  /** Digest of the content that was installed */
  digest: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  source: storedObject({
    kind: v.picklist(SOURCE_KINDS),
    /** Path or URL, as whoever installed the skill named it */
    from: text,
    /** Commit of a git repository; null for others */
    commit: v.nullable(text),
  }),
  installed_at: text,
  by: storedObject({ via: text, token_id: v.nullable(text) }),
});
/** Record of an installed skill. Times are in ISO 8601. */
export type SkillRecord = v.InferOutput<typeof recordSchema>;

/** Place that a skill was installed from. */
export type SkillSource = SkillRecord["source"];

/** Collection of the installed skills. The key is the name. */
export const SKILLS = new Collection("skills", recordSchema);

/** The records of installed skills. Every change is in the audit, in one transaction with the record. */
export class SkillRecords {
  readonly #options: { readonly store: Store; readonly clock: Clock; readonly audit: AuditAppend };

  constructor(options: { readonly store: Store; readonly clock: Clock; readonly audit: AuditAppend }) {
    this.#options = options;
  }

  /** Reads all records by name. Damaged ones are set aside. */
  async read(): Promise<ReadonlyMap<string, SkillRecord>> {
    const records = new Map<string, SkillRecord>();
    for await (const { value } of SKILLS.all(this.#options.store)) records.set(value.name, value);
    return records;
  }

  /** Records that a content is installed. Fields of a newer version stay. */
  async keep(
    { name, digest, source }: Pick<SkillRecord, "name" | "digest" | "source">,
    { by, isUpdate }: { readonly by: Actor; readonly isUpdate: boolean },
  ): Promise<void> {
    const { value: before } = await SKILLS.readForChange(this.#options.store, name);
    const body: SkillRecord = {
      ...unknownFieldsOf(before),
      v: 1,
      ...{ name, digest, source },
      installed_at: new Date(this.#options.clock.now()).toISOString(),
      by: storedActor(by),
    };
    const event = toEvent(body, { action: isUpdate ? "updated" : "installed", by });
    await this.#options.audit(event, [SKILLS.put(name, body)]);
  }

  /** Records that a skill is removed. @param record undefined: nobody installed it through Postern */
  async drop(
    name: string,
    { record, digest, by }: {
      readonly record: SkillRecord | undefined;
      readonly digest: string;
      readonly by: Actor;
    },
  ): Promise<void> {
    const source = record?.source ?? { kind: "folder", from: "", commit: null };
    await this.#options.audit(toEvent({ name, digest, source }, { action: "removed", by }), [SKILLS.remove(name)]);
  }
}

function toEvent(
  { name, digest, source }: Pick<SkillRecord, "name" | "digest" | "source">,
  { action, by }: { readonly action: SkillEvent["action"]; readonly by: Actor },
): SkillEvent {
  const { kind, from, commit } = source;
  const actor = storedActor(by);
  return { type: "skill", action, name, digest, source: kind, from, commit, by: actor };
}

import * as v from "valibot";
import { createKeyedMutex } from "../base/keyed_queues.ts";
import { storedObject } from "../base/records/stored_object.ts";
import { readRecord } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";

/** Collection of the folders that conversations run their commands in, by conversation. */
export const COMMAND_FOLDERS = "command_folders";

const bodySchema = storedObject({ v: v.literal(1), folder: v.string() });

/** Parses a stored body. @throws {v.ValiError} for a body that no version wrote */
export function parseCommandFolder(body: unknown): v.InferOutput<typeof bodySchema> {
  return v.parse(bodySchema, body);
}

/** Folders that the next commands of conversations begin in: relative to the workspace, with `/`. Empty: the workspace itself. */
export interface CommandFolders {
  get(conversationId: string): Promise<string>;
  /** Changes the folder of a conversation, one change after the other. @returns what `next` makes of the folder that there is */
  change(conversationId: string, next: (before: string) => Promise<string>): Promise<string>;
}

/** Creates the folders over a store. A record goes with its conversation. */
export function createCommandFolders({ store }: { readonly store: Store }): CommandFolders {
  const mutex = createKeyedMutex();
  const get = async (conversationId: string) =>
    (await readRecord(store, COMMAND_FOLDERS, conversationId, parseCommandFolder))?.value.folder ?? "";
  return {
    get,
    change: (conversationId, next) =>
      mutex(conversationId, async () => {
        const before = await get(conversationId);
        const folder = await next(before);
        const at = { collection: COMMAND_FOLDERS, key: conversationId };
        if (folder === before) return folder;
        await store.batch([folder === "" ? { op: "delete", ...at } : { op: "put", ...at, body: { v: 1, folder } }]);
        return folder;
      }),
  };
}

import * as v from "valibot";
import { createKeyedMutex } from "../base/keyed_queues.ts";
import { storedObject } from "../base/records/stored_object.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";

const bodySchema = storedObject({ v: v.literal(1), folder: v.string() });

/** Collection of the folders that conversations run their commands in, by conversation. */
export const COMMAND_FOLDERS = new Collection("command_folders", bodySchema);

/** Folders that the next commands of conversations begin in: relative to the workspace, with `/`. Empty: the workspace itself. */
export interface CommandFolders {
  get(conversationId: string): Promise<string>;
  /** Changes the folder of a conversation, one change after the other. @returns what `next` makes of the folder that there is */
  change(conversationId: string, next: (before: string) => Promise<string>): Promise<string>;
}

/** Creates the folders over a store. A record goes with its conversation. */
export function createCommandFolders({ store }: { readonly store: Store }): CommandFolders {
  const mutex = createKeyedMutex();
  const get = async (conversationId: string) => (await COMMAND_FOLDERS.read(store, conversationId))?.value.folder ?? "";
  return {
    get,
    change: (conversationId, next) =>
      mutex(conversationId, async () => {
        const before = await get(conversationId);
        const folder = await next(before);
        if (folder === before) return folder;
        await store.batch([
          folder === ""
            ? COMMAND_FOLDERS.remove(conversationId)
            : COMMAND_FOLDERS.put(conversationId, { v: 1, folder }),
        ]);
        return folder;
      }),
  };
}

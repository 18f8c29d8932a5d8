import * as v from "valibot";
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
  set(conversationId: string, folder: string): Promise<void>;
}

/** Creates the folders over a store. A record goes with its conversation. */
export function createCommandFolders({ store }: { readonly store: Store }): CommandFolders {
  return {
    async get(conversationId) {
      return (await readRecord(store, COMMAND_FOLDERS, conversationId, parseCommandFolder))?.value.folder ?? "";
    },
    async set(conversationId, folder) {
      const at = { collection: COMMAND_FOLDERS, key: conversationId };
      await store.batch([folder === "" ? { op: "delete", ...at } : { op: "put", ...at, body: { v: 1, folder } }]);
    },
  };
}

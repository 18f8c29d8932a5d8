import type { Clock } from "../base/clock.ts";
import { closeMade, lazily } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { awaitFolder, isAnyFolder } from "../system/files/appearing_folder.ts";
import type { Tool } from "./runtime/tool.ts";

/** Owner of tools that come and go, loaded when it has some. */
interface ToolOwner {
  /** Returns its tools: the same array until they change */
  tools(): readonly Tool[];
  close(): Promise<void>;
}

/** Tools whose owner is loaded when there is work for it, or when somebody asks for it. */
export interface LateTools<T> {
  /** Loads the owner at the first call. A load that fails is tried again at the next call. */
  load(): Promise<T>;
  /** Owner that is there now. Undefined before it is loaded */
  readonly now: T | undefined;
}

/** Options of `openLateTools`. */
export interface LateToolsOptions<T extends ToolOwner> {
  readonly load: () => Promise<T>;
  /** Tells at the start whether the owner has tools */
  readonly isNeeded: () => Promise<boolean>;
  /** Absolute paths of folders: the owner has tools when one of them is there at the start */
  readonly folders: readonly string[];
  /** Absolute path of the folder whose appearance loads the owner later */
  readonly awaited: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly opened: OpenedList;
}

/** Loads the owner of tools now when it has some, and later when it gets some. A load that fails is logged, and nothing else waits for it. */
export async function openLateTools<T extends ToolOwner>(options: LateToolsOptions<T>): Promise<LateTools<T>> {
  const { isNeeded, folders, awaited, clock, log, opened } = options;
  const load = lazily(async () => late.now = await options.load());
  const late: { readonly load: () => Promise<T>; now: T | undefined } = { load, now: undefined };
  const tryLoad = async () => {
    await load().catch((error: unknown) => log.error("The plugins cannot be loaded", { error }));
  };
  opened.own(load, closeMade);
  if (await isNeeded() || await isAnyFolder(folders)) await tryLoad();
  else opened.own(awaitFolder([awaited], { clock, onAppear: () => void tryLoad() }), (end) => end());
  return late;
}

/** Joins the lists of the owners that are there into one, which is the same array until one of the lists is another. */
export function joinTools(
  owners: readonly { readonly now: Pick<ToolOwner, "tools"> | undefined }[],
): () => readonly Tool[] {
  let known: readonly (readonly Tool[])[] = [];
  let joined: readonly Tool[] = [];
  return () => {
    const newest = owners.flatMap(({ now }) => now === undefined ? [] : [now.tools()]);
    if (known.length !== newest.length || newest.some((list, index) => list !== known[index])) {
      known = newest;
      joined = newest.flat();
    }
    return joined;
  };
}

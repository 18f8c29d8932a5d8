import { constants, type Stats } from "node:fs";
import { ToolError } from "../../base/errors.ts";
import { fileError, linkedFile, notAFile, notAFolder, notThere, outsideRoot } from "./file_error.ts";
import type { OpenFile } from "./files.ts";
import { isWithin } from "./forbidden_paths.ts";
import { findLikeName } from "./like_name.ts";
import { type Folder, listFolder, type Reach, type Reached } from "./reach.ts";
import { openFile } from "./open_file.ts";
import { shown } from "./parse_path.ts";
import type { PathRules } from "./path_rules.ts";
import type { Handle, SystemCalls } from "./system_calls.ts";

const { O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** Names a file without opening it: no device, FIFO or socket hears of it. open(2); Node has no constant for it */
const O_PATH = 0x200000;
/** As many as Linux follows in one path */
const MAX_LINKS = 40;

interface Step {
  readonly name: string;
  readonly handle: Handle;
}

/**
 * Creates the way to files for Linux: goes from folder handle to folder handle through `/proc/self/fd/<folder>/<name>`, which the kernel
 * resolves against the open folder itself, and follows symbolic links here, not in the kernel. Whatever is swapped meanwhile, no step
 * can leave the root: `..` of a link goes back to a handle held since, and an absolute link starts again at the root.
 */
export function createReachByHandles(calls: SystemCalls): Reach {
  return (names, rules) => reach(names, rules, calls);
}

async function reach(names: readonly string[], rules: PathRules, calls: SystemCalls): Promise<Reached> {
  const path = names.join("/") || ".";
  const steps: Step[] = [{ name: "", handle: await openRoot(rules, calls) }];
  const pending = [...names].reverse();
  let links = 0;
  try {
    for (;;) {
      const parent = steps.at(-1) as Step; // The root is never popped
      const name = pending.pop();
      if (name === undefined) {
        const reached = namesOf(steps);
        check(rules, reached);
        steps.pop();
        return { kind: "folder", folder: createFolder(parent.handle, reached, { rules, calls }) };
      }
      if (name === "" || name === ".") continue;
      if (name === "..") {
        if (steps.length === 1) throw outsideRoot(path);
        await steps.pop()?.handle.close();
        continue;
      }
      const found = await openNamed(name, { folder: parent.handle, names: namesOf(steps), path, rules, calls });
      const { handle, stat } = found;
      const place = within(parent.handle, found.name);
      if (stat.isDirectory()) {
        steps.push({ name: found.name, handle });
        continue;
      }
      if (!stat.isSymbolicLink()) {
        return {
          kind: "file",
          file: await openChecked({ handle, stat, path, rules, calls, last: pending.length === 0 }),
        };
      }
      await handle.close();
      if (++links > MAX_LINKS) {
        throw new ToolError("path_invalid", `Cannot open ${shown(path)}: it goes through too many symbolic links`);
      }
      const target = await targetOf(place, { path, calls });
      if (target.startsWith("/")) {
        const base = [rules.root, rules.namedRoot].find((root) => isWithin(target, root));
        if (base === undefined) throw outsideRoot(path);
        await closeAll(steps.splice(1));
        pending.push(...target.slice(base.length).split("/").reverse());
      } else {
        pending.push(...target.split("/").reverse());
      }
    }
  } finally {
    await closeAll(steps);
  }
}

async function openRoot(rules: PathRules, calls: SystemCalls): Promise<Handle> {
  let handle: Handle | undefined;
  try {
    handle = await calls.open(rules.root, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    // A link in the place of a folder above it leads elsewhere
    if (await calls.readlink(ofHandle(handle)) === rules.root) return handle;
    throw outsideRoot(".");
  } catch (error) {
    await handle?.close();
    throw fileError("open the allowed root", rules.root, error);
  }
}

interface Place {
  /** For messages */
  readonly path: string;
  readonly calls: SystemCalls;
}

/** Opens an entry of a folder, or the only one that has the text of its name in other code points. */
async function openNamed(
  name: string,
  { folder, names, rules, ...place }: Place & {
    readonly folder: Handle;
    readonly names: readonly string[];
    readonly rules: PathRules;
  },
): Promise<Step & { readonly stat: Stats }> {
  const openChild = async (child: string) => {
    check(rules, [...names, child]);
    return { name: child, ...await openPath(within(folder, child), place) };
  };
  return await openChild(name).catch(async (error: unknown) => {
    if (!(error instanceof ToolError) || error.code !== "not_found") throw error;
    const like = await findLikeName(name, () => place.calls.entries(within(folder, "."))).catch(() => undefined);
    // An error names no file that the rules refuse
    if (like === undefined || rules.refusal([...names, like.name]) !== undefined) throw error;
    if (!like.isSame) throw notThere("open", place.path, like.name);
    return await openChild(like.name);
  });
}

async function openPath(place: string, { path, calls }: Place): Promise<{ handle: Handle; stat: Stats }> {
  try {
    const handle = await calls.open(place, O_PATH | O_NOFOLLOW);
    try {
      return { handle, stat: await handle.stat() };
    } catch (error) {
      await handle.close();
      throw error;
    }
  } catch (error) {
    throw fileError("open", path, error);
  }
}

async function targetOf(place: string, { path, calls }: Place): Promise<string> {
  try {
    return await calls.readlink(place);
  } catch (error) {
    throw fileError("open", path, error);
  }
}

interface Candidate {
  readonly handle: Handle;
  readonly stat: Stats;
  readonly path: string;
  readonly rules: PathRules;
  readonly calls: SystemCalls;
  /** No part of the path comes after it */
  readonly last: boolean;
}

/** Opens the very file a path handle names, for reading, once it is known to be a plain one. Closes the path handle. */
async function openChecked({ handle, stat, path, rules, calls, last }: Candidate): Promise<OpenFile> {
  try {
    if (!last) throw new ToolError("not_found", `Cannot open ${shown(path)}: a part of the path is not a folder`);
    if (!stat.isFile()) throw notAFile(path);
    if (stat.nlink !== 1) throw linkedFile(path);
    check(rules, await namesNow(handle, { path, rules, calls }));
    return openFile(await calls.open(ofHandle(handle), O_RDONLY | O_NONBLOCK), {
      stat,
      path,
      keyRefusal: rules.keyRefusal,
    });
  } catch (error) {
    throw fileError("open", path, error);
  } finally {
    await handle.close();
  }
}

/** The names of an open file or folder below the root, by where it lies now. @throws {ToolError} outside */
async function namesNow(
  handle: Handle,
  { path, rules, calls }: Place & { readonly rules: PathRules },
): Promise<readonly string[]> {
  const real = await calls.readlink(ofHandle(handle));
  if (!isWithin(real, rules.root)) throw outsideRoot(path);
  return real.slice(rules.root.length).split("/").filter((part) => part !== "");
}

/**
 * Opens for reading what a folder's list called a file, with half the calls: whatever took its place since answers at once, and
 * nothing of it is read before it is checked.
 * @param options.findFolder where the folder is after the opening; throws when it is not inside the root
 */
async function openListed(
  place: string,
  { path, rules, calls, findFolder }: Place & {
    readonly rules: PathRules;
    readonly findFolder: () => Promise<void>;
  },
): Promise<OpenFile> {
  let handle: Handle | undefined;
  try {
    handle = await calls.open(place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    const stat = await handle.stat();
    if (!stat.isFile()) throw notAFile(path);
    if (stat.nlink !== 1) throw linkedFile(path);
    await findFolder();
    return openFile(handle, { stat, path, keyRefusal: rules.keyRefusal });
  } catch (error) {
    await handle?.close();
    throw fileError("open", path, error);
  }
}

function createFolder(
  handle: Handle,
  names: readonly string[],
  { rules, calls }: { readonly rules: PathRules; readonly calls: SystemCalls },
): Folder {
  let closed = false;
  // A closed handle's number may already name another folder
  const place = (name: string) => {
    if (closed) throw new TypeError("The folder is closed");
    return within(handle, name);
  };
  const inside = (name: string) => [...names, name].join("/");
  let asked: Promise<readonly string[]> | undefined;
  /** Looks once for all files that are being opened at the same time. The look comes after the opening of each. */
  const namesNowOnce = () =>
    asked ??= Promise.resolve().then(() => {
      asked = undefined;
      return namesNow(handle, { path: names.join("/") || ".", rules, calls });
    });
  return {
    names,
    list: async (limit) => {
      try {
        return await listFolder(await calls.entries(place(".")), limit);
      } catch (error) {
        throw fileError("list", names.join("/") || ".", error);
      }
    },
    async folder(name) {
      check(rules, [...names, name]);
      const opened = await openPath(place(name), { path: inside(name), calls });
      if (opened.stat.isDirectory()) return createFolder(opened.handle, [...names, name], { rules, calls });
      await opened.handle.close();
      throw notAFolder(inside(name));
    },
    async file(name) {
      check(rules, [...names, name]);
      const findFolder = async () => {
        const now = await namesNowOnce();
        if (now.join("/") !== names.join("/")) check(rules, [...now, name]);
      };
      return await openListed(place(name), { path: inside(name), rules, calls, findFolder });
    },
    place,
    prove: (work) => work(),
    async close() {
      if (closed) return;
      closed = true;
      await handle.close();
    },
  };
}

function check(rules: PathRules, names: readonly string[]): void {
  const refusal = rules.refusal(names);
  if (refusal !== undefined) throw refusal;
}

const namesOf = (steps: readonly Step[]) => steps.slice(1).map((step) => step.name);
const ofHandle = (handle: Handle) => `/proc/self/fd/${handle.fd}`;
const within = (folder: Handle, name: string) => `${ofHandle(folder)}/${name}`;

async function closeAll(steps: readonly Step[]): Promise<void> {
  await Promise.all(steps.map((step) => step.handle.close()));
}

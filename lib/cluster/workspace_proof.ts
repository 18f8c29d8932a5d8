import { constants } from "node:fs";
import { link, lstat, mkdir, open, readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { systemCodeOf } from "../base/errors.ts";
import { systemClock } from "../base/clock.ts";
import { createTemporaryNames, isTemporary, syncFolder } from "../base/durable_files.ts";
import { canonicalDigest } from "../base/json.ts";
import { createSystemRandom, type Random } from "../base/random.ts";

/** Folder of the proofs in a workspace. No tool may read or write it. */
export const PROOF_FOLDER = ".postern-cluster";

/** Files by which gateways show each other that they have the same workspace: one for each gateway, which nobody else can guess. */
export interface ProofFiles {
  /** Writes the file of a gateway again. @returns the digest of its content */
  write(gateway: string, content: string): Promise<string>;
  /** Returns the digest of the file of a gateway as this machine sees it. Undefined: there is none, or no plain file */
  read(gateway: string): Promise<string | undefined>;
  /** Removes the file of a gateway. Never throws. */
  remove(gateway: string): Promise<void>;
  /** Removes the files of other gateways than these that are much older than that of `own`. Never throws. */
  tidy(own: string, others: ReadonlySet<string>): Promise<void>;
  /** Returns the id that the folder keeps. Undefined: it has none, or one whose writing was cut off */
  folderId(): Promise<string | undefined>;
  /** Gives the folder an id unless it has one. Of gateways that try at the same moment one does. @returns the id that it has then */
  nameFolder(id: string): Promise<string>;
  /** Writes the id again that the folder had, when somebody has removed it, and never into another folder at its place. Never throws. */
  keepFolderId(id: string): Promise<void>;
}

const GATEWAY = /^gw_[0-9a-z]{1,64}$/;
/** Name of the file with the id of the folder. */
const FOLDER_ID_FILE = "folder_id";
/** Whole content of that file: a part of it is no id. */
const FOLDER_ID = /^folder_[0-9a-z]{48}\n$/;
/** Errors of file systems that have no hard links. */
const NO_LINKS = ["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"];
const MAX_BYTES = 256;
/** Age beyond one's own at which a file was left by a gateway that is gone: one that joins has no record yet. Milliseconds */
const LEFT_MS = 60 * 60 * 1000;

/** Returns a content that nobody can guess. */
export function proofContent(random: Random): string {
  return `${random.id("proof_")}${random.id("")}\n`;
}

/** Returns an id for a folder that no other folder has. */
export function newFolderId(random: Random): string {
  return `${random.id("folder_")}${random.id("")}`;
}

/** Creates the files of the gateways of one workspace. */
export function createProofFiles(workspaceRoot: string, options: {
  /** Makes a file have a second name. Default: that of the system */
  readonly link?: typeof link;
} = {}): ProofFiles {
  const folder = join(workspaceRoot, PROOF_FOLDER);
  const idPath = join(folder, FOLDER_ID_FILE);
  /** Folder at the place of the workspace in which the id was found. */
  let identified: string | undefined = undefined;
  const folderId = async () => {
    const text = await readText(idPath);
    if (text === undefined || !FOLDER_ID.test(text)) return undefined;
    identified = await folderAt(workspaceRoot);
    return text.trimEnd();
  };
  const nameFolder = async (id: string) => {
    const found = await folderId();
    if (found !== undefined) return found;
    await makeFolder(folder);
    // A file that a crash has cut off is in the way. Another gateway may have written a whole id since the look above
    const text = await readText(idPath);
    if (text !== undefined && !FOLDER_ID.test(text)) await rm(idPath, { force: true });
    await writeOnce(idPath, `${id}\n`, options.link ?? link);
    const named = await folderId();
    if (named === undefined) throw new Error(`The file "${FOLDER_ID_FILE}" cannot be read after it was written`);
    return named;
  };
  const pathOf = (gateway: string) => {
    if (!GATEWAY.test(gateway)) throw new TypeError("No id of a gateway");
    return join(folder, gateway);
  };
  return {
    async write(gateway, content) {
      await makeFolder(folder);
      const file = await open(pathOf(gateway), NEW_FILE, 0o600);
      try {
        await file.writeFile(content);
        // Another machine must see it as soon as the record says that it is there
        await file.sync();
      } finally {
        await file.close();
      }
      return canonicalDigest(content);
    },
    async read(gateway) {
      const text = GATEWAY.test(gateway) ? await readText(pathOf(gateway)) : undefined;
      return text === undefined ? undefined : canonicalDigest(text);
    },
    async remove(gateway) {
      await rm(pathOf(gateway), { force: true }).catch(() => {});
    },
    async tidy(own, others) {
      const ownAt = await stat(pathOf(own)).then(({ mtimeMs }) => mtimeMs, () => 0);
      for (const name of await readdir(folder).catch(() => [])) {
        if ((!GATEWAY.test(name) || name === own || others.has(name)) && !isTemporary(name)) continue;
        const writtenAt = await stat(join(folder, name)).then(({ mtimeMs }) => mtimeMs, () => Infinity);
        if (writtenAt < ownAt - LEFT_MS) await rm(join(folder, name), { force: true }).catch(() => {});
      }
    },
    folderId,
    nameFolder,
    async keepFolderId(id) {
      if (await readText(idPath) !== undefined) return;
      if (identified === undefined || await folderAt(workspaceRoot) !== identified) return;
      await nameFolder(id).catch(() => {});
    },
  };
}

async function makeFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  // A command may have made it before the gateway joined a cluster
  if (!(await lstat(folder)).isDirectory()) throw new Error(`"${folder}" is a link; remove it`);
  // The folder is no part of the user's work: git leaves it out
  const file = await open(join(folder, ".gitignore"), NEW_FILE, 0o600);
  try {
    await file.writeFile("*\n");
  } finally {
    await file.close();
  }
}

/** Writes a file unless there is one: whole or not at all, where the file system has hard links. */
async function writeOnce(path: string, content: string, makeLink: typeof link): Promise<void> {
  const folder = dirname(path);
  const names = createTemporaryNames({ clock: systemClock, random: createSystemRandom() });
  const temporary = join(folder, names.next());
  try {
    await writeNew(temporary, content);
    await makeLink(temporary, path).catch(async (error: NodeJS.ErrnoException) => {
      if (!NO_LINKS.includes(error.code ?? "")) throw error;
      await writeNew(path, content);
    });
  } catch (error) {
    if (systemCodeOf(error) !== "EEXIST") throw error;
  } finally {
    await rm(temporary, { force: true }).catch(() => {});
  }
  // The record of the database names the id from now on: the file must outlive a loss of power
  await syncFolder(folder);
  await syncFolder(dirname(folder));
}

async function writeNew(path: string, content: string): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Returns which folder is at a path now: another one, as under a file system that is not mounted, has another number. */
async function folderAt(path: string): Promise<string | undefined> {
  return await stat(path).then(({ dev, ino, birthtimeMs }) => `${dev} ${ino} ${birthtimeMs}`, () => undefined);
}

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW |
  constants.O_NONBLOCK;

/** Opens a file, which makes a network file system ask its server, and returns what is in it. Undefined: no plain file, or a long one */
async function readText(path: string): Promise<string | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() =>
    undefined
  );
  if (file === undefined) return undefined;
  try {
    const info = await file.stat();
    if (!info.isFile() || info.size > MAX_BYTES) return undefined;
    const { bytesRead, buffer } = await file.read(new Uint8Array(MAX_BYTES), 0, MAX_BYTES, 0);
    return new TextDecoder().decode(buffer.subarray(0, bytesRead));
  } catch {
    return undefined;
  } finally {
    await file.close().catch(() => {});
  }
}

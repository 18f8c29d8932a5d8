import { constants } from "node:fs";
import { mkdir, open, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { canonicalDigest } from "../base/json.ts";
import type { Random } from "../base/random.ts";

/** Folder of the proofs in a workspace. No tool may read or write it. */
export const PROOF_FOLDER = ".postern-cluster";

/** Files by which gateways show each other that they have the same workspace: one for each gateway, which nobody else can guess. */
export interface ProofFiles {
  /** Writes the file of a gateway anew. @returns the digest of its content */
  write(gateway: string, content: string): Promise<string>;
  /** Returns the digest of the file of a gateway as this machine sees it. Undefined: there is none, or no plain file */
  read(gateway: string): Promise<string | undefined>;
  /** Removes the file of a gateway. Never throws. */
  remove(gateway: string): Promise<void>;
  /** Removes the files of other gateways than these that are much older than that of `own`. Never throws. */
  tidy(own: string, others: ReadonlySet<string>): Promise<void>;
}

const GATEWAY = /^gw_[0-9a-z]{1,64}$/;
const MAX_BYTES = 256;
/** Age beyond one's own at which a file was left by a gateway that is gone: one that joins has no record yet. Milliseconds */
const LEFT_MS = 60 * 60 * 1000;

/** Returns a content that nobody can guess. */
export function proofContent(random: Random): string {
  return `${random.id("proof_")}${random.id("")}\n`;
}

/** Creates the files of the gateways of one workspace. */
export function createProofFiles(workspaceRoot: string): ProofFiles {
  const folder = join(workspaceRoot, PROOF_FOLDER);
  const pathOf = (gateway: string) => {
    if (!GATEWAY.test(gateway)) throw new TypeError("No id of a gateway");
    return join(folder, gateway);
  };
  return {
    async write(gateway, content) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      // The folder is no part of the user's work: git leaves it out
      await writeFile(join(folder, ".gitignore"), "*\n");
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
    read: (gateway) => GATEWAY.test(gateway) ? readDigest(pathOf(gateway)) : Promise.resolve(undefined),
    async remove(gateway) {
      await rm(pathOf(gateway), { force: true }).catch(() => {});
    },
    async tidy(own, others) {
      const ownAt = await stat(pathOf(own)).then(({ mtimeMs }) => mtimeMs, () => 0);
      for (const name of await readdir(folder).catch(() => [])) {
        if (!GATEWAY.test(name) || name === own || others.has(name)) continue;
        const writtenAt = await stat(join(folder, name)).then(({ mtimeMs }) => mtimeMs, () => Infinity);
        if (writtenAt < ownAt - LEFT_MS) await rm(join(folder, name), { force: true }).catch(() => {});
      }
    },
  };
}

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;

/** Opens a file, which makes a network file system ask its server, and returns the digest of what is in it. */
async function readDigest(path: string): Promise<string | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() =>
    undefined
  );
  if (file === undefined) return undefined;
  try {
    const info = await file.stat();
    if (!info.isFile() || info.size > MAX_BYTES) return undefined;
    const { bytesRead, buffer } = await file.read(new Uint8Array(MAX_BYTES), 0, MAX_BYTES, 0);
    return canonicalDigest(new TextDecoder().decode(buffer.subarray(0, bytesRead)));
  } catch {
    return undefined;
  } finally {
    await file.close().catch(() => {});
  }
}

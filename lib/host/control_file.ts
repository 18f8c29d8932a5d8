import type { Stats } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { systemCodeOf } from "../base/errors.ts";
import * as v from "valibot";
import { writeAtomically } from "../base/durable_files.ts";
import { processIdentity } from "./process_identity.ts";

/** Text of a file that this user alone wrote and can read; undefined for any other. */
export async function readPrivateFile(path: string): Promise<string | undefined> {
  try {
    const file = await open(path, "r");
    try {
      return isPrivate(await file.stat()) ? await file.readFile("utf8") : undefined;
    } finally {
      await file.close();
    }
  } catch {
    return undefined;
  }
}

/** Another user's record would lead root's command line to that user's own server, or to a process that user chose. */
function isPrivate({ mode, uid }: Stats): boolean {
  if (process.platform === "win32") return true;
  return (mode & 0o077) === 0 && uid === process.getuid?.();
}

const LOOPBACK = /^http:\/\/(127(\.\d{1,3}){3}|localhost|\[::1\]):\d{1,5}\/$/;

const entries = v.object({
  /** With a slash at the end, such as `http://127.0.0.1:42617/`; loopback where the gateway listens there */
  address: v.pipe(v.string(), v.regex(/^http:\/\/(\[[\da-f:.]+\]|[\w.-]+):\d{1,5}\/$/)),
  pid: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** As processIdentity gives it: another process may have the number later */
  identity: v.optional(v.string()),
  /** Host that the gateway listens on. This machine reaches it at `address` */
  host: v.optional(v.string()),
  /** Admin token of this start, good from the loopback interface alone; "" where the address is no loopback one */
  token: v.string(),
  /** ISO 8601 */
  started_at: v.string(),
  version: v.string(),
  /** The folder the agent works in */
  workspace: v.string(),
});
// Another machine must never be sent the token
const recordSchema = v.pipe(entries, v.check(({ address, token }) => LOOPBACK.test(address) === (token !== "")));

/**
 * How the command line reaches the gateway that runs on a data directory.
 * Source: docs/design/access.md "One gateway for each data directory"
 */
export type ControlRecord = Readonly<v.InferOutput<typeof recordSchema>>;

/** Writes `{data_dir}/control.json`, 0600, in one step. */
export async function writeControlFile(dataDir: string, record: ControlRecord): Promise<void> {
  await writeAtomically(controlPath(dataDir), `${JSON.stringify(record)}\n`, { isPrivate: true });
}

/** The running gateway's record; undefined when there is none, it is damaged, of another user, others can read it, or its process is gone. */
export async function readControlFile(dataDir: string): Promise<ControlRecord | undefined> {
  const text = await readPrivateFile(controlPath(dataDir));
  const record = text === undefined ? undefined : parse(text);
  return record !== undefined && await isAlive(record) ? record : undefined;
}

/** Removes the record of a process, which may have been killed; one of any other stays. */
export async function removeControlFile(dataDir: string, pid: number): Promise<void> {
  const text = await readPrivateFile(controlPath(dataDir));
  if (text !== undefined && parse(text)?.pid === pid) await rm(controlPath(dataDir), { force: true });
}

function controlPath(dataDir: string): string {
  return join(dataDir, "control.json");
}

function parse(text: string): ControlRecord | undefined {
  try {
    const result = v.safeParse(recordSchema, JSON.parse(text));
    return result.success ? result.output : undefined;
  } catch {
    return undefined;
  }
}

async function isAlive({ pid, identity }: ControlRecord): Promise<boolean> {
  if (identity !== undefined) return await processIdentity(pid) === identity;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // The process of another user exists all the same
    return systemCodeOf(error) === "EPERM";
  }
}

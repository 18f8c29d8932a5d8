import type { Stats } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { writeAtomically } from "../base/write_atomically.ts";

const recordSchema = v.object({
  /** Loopback address with a slash at the end, as `http://127.0.0.1:42617/` */
  address: v.pipe(v.string(), v.regex(/^http:\/\/(127(\.\d{1,3}){3}|localhost|\[::1\]):\d{1,5}\/$/)),
  pid: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** Admin token of this start, good from the loopback interface alone */
  token: v.pipe(v.string(), v.nonEmpty()),
  /** ISO 8601 */
  started_at: v.string(),
  version: v.string(),
  /** The folder the agent works in */
  workspace: v.string(),
});

/** How the command line reaches the gateway that runs on a data directory (DESIGN.md section 5). */
export type ControlRecord = Readonly<v.InferOutput<typeof recordSchema>>;

/** Writes `{data_dir}/control.json`, 0600, in one step. */
export async function writeControlFile(dataDir: string, record: ControlRecord): Promise<void> {
  const path = controlPath(dataDir);
  // A file left by an earlier start may have any mode; a new one gets 0600
  await rm(path, { force: true });
  await writeAtomically(path, `${JSON.stringify(record)}\n`);
}

/** The running gateway's record; undefined when there is none, it is damaged, of another user, others can read it, or its process is gone. */
export async function readControlFile(dataDir: string): Promise<ControlRecord | undefined> {
  try {
    const file = await open(controlPath(dataDir), "r");
    try {
      if (!isPrivate(await file.stat())) return undefined;
      const result = v.safeParse(recordSchema, JSON.parse(await file.readFile("utf8")));
      return result.success && isAlive(result.output.pid) ? result.output : undefined;
    } finally {
      await file.close();
    }
  } catch {
    return undefined;
  }
}

/** Removes the record at the end of the gateway that wrote it; one of a later start stays. */
export async function removeControlFile(dataDir: string, token: string): Promise<void> {
  const current = await readControlFile(dataDir);
  if (current?.token === token) await rm(controlPath(dataDir), { force: true });
}

function controlPath(dataDir: string): string {
  return join(dataDir, "control.json");
}

/** Another user's record would lead root's command line to that user's own server. */
function isPrivate({ mode, uid }: Stats): boolean {
  if (process.platform === "win32") return true;
  return (mode & 0o077) === 0 && uid === process.getuid?.();
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // The process of another user exists all the same
    return (error as { code?: string }).code === "EPERM";
  }
}

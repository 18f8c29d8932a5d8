import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { writeAtomically } from "../../base/durable_files.ts";
import { type ControlRecord, readControlFile, readPrivateFile } from "../control_file.ts";
import { processIdentity } from "../process_identity.ts";

const recordSchema = v.object({
  pid: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** As processIdentity gives it: another process may have the number later */
  identity: v.pipe(v.string(), v.nonEmpty()),
  phase: v.picklist(["starting", "running", "stopping"]),
  /** True when the process leads a process group of its own, which may then be killed whole */
  leads_group: v.boolean(),
  /** The service manager that runs it, such as `openrc`; undefined: none does */
  service: v.optional(v.string()),
  /** Seconds that work gets to finish when the process ends */
  grace_seconds: v.pipe(v.number(), v.minValue(0)),
});

/** The process of a daemon. */
export type DaemonProcess = Readonly<v.InferOutput<typeof recordSchema>>;

/** Content of a PID file: a living process, or a process that is gone and left the file. */
export type PidFile =
  | { readonly kind: "alive"; readonly process: DaemonProcess }
  | { readonly kind: "stale" };

/** Status in the /health reply of a gateway. `silent`: no reply, or none that a gateway would send. */
export type Health = "ok" | "degraded" | "draining" | "silent";

/**
 * A daemon of a data directory. `stale`: it was killed, and its PID file is still there; `running`: its port was opened, whatever
 * its health. `stopped` and `stale` name a gateway that runs in a terminal on the same records.
 */
export type DaemonState =
  | { readonly kind: "stopped"; readonly gateway: ControlRecord | undefined }
  | { readonly kind: "stale"; readonly gateway: ControlRecord | undefined }
  | { readonly kind: "starting"; readonly process: DaemonProcess }
  | { readonly kind: "stopping"; readonly process: DaemonProcess }
  | {
    readonly kind: "running";
    readonly process: DaemonProcess;
    readonly record: ControlRecord;
    readonly health: Health;
  };

/** Finds out about a daemon. @param probe asks the gateway at an address for its health */
export async function readDaemonState(
  dataDir: string,
  probe: (record: ControlRecord) => Promise<Health>,
): Promise<DaemonState> {
  const [file, record] = await Promise.all([readPidFile(dataDir), readControlFile(dataDir)]);
  if (file?.kind !== "alive") return { kind: file === undefined ? "stopped" : "stale", gateway: record };
  const { process } = file;
  if (process.phase === "stopping") return { kind: "stopping", process };
  if (process.phase === "starting" || record?.pid !== process.pid) return { kind: "starting", process };
  return { kind: "running", process, record, health: await probe(record) };
}

/** Writes `{data_dir}/daemon.pid`, 0600, in one step: the number alone on the first line, the rest as JSON on the second. */
export async function writePidFile(dataDir: string, { pid, ...rest }: DaemonProcess): Promise<void> {
  await writeAtomically(pidPath(dataDir), `${pid}\n${JSON.stringify(rest)}\n`, { isPrivate: true });
}

/**
 * Reads `{data_dir}/daemon.pid`. A file that is damaged, of another user, or open to others counts as stale: nobody may choose
 * whom this user sends signals to.
 * @returns undefined when there is none
 */
export async function readPidFile(dataDir: string): Promise<PidFile | undefined> {
  const path = pidPath(dataDir);
  const text = await readPrivateFile(path);
  if (text === undefined) return existsSync(path) ? { kind: "stale" } : undefined;
  const process = parse(text);
  if (process === undefined || await processIdentity(process.pid) !== process.identity) return { kind: "stale" };
  return { kind: "alive", process };
}

/** Removes the file, whoever wrote it; nothing when there is none. */
export async function removePidFile(dataDir: string): Promise<void> {
  await rm(pidPath(dataDir), { force: true });
}

function pidPath(dataDir: string): string {
  return join(dataDir, "daemon.pid");
}

function parse(text: string): DaemonProcess | undefined {
  const [first = "", second = ""] = text.split("\n");
  try {
    const result = v.safeParse(recordSchema, { ...JSON.parse(second), pid: Number(first) });
    return result.success ? result.output : undefined;
  } catch {
    return undefined;
  }
}

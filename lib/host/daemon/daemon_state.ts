import { type ControlRecord, readControlFile } from "../control_file.ts";
import { type DaemonProcess, readPidFile } from "./pid_file.ts";

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

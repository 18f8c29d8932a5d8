import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { backUp, type BackupFacts } from "../../lib/storage/back_up.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { findDataDir } from "../find_data_dir.ts";

/** `postern backup <file>`: all records and keys in one file, also of a gateway that runs. */
export const backupCommand = defineCliCommand({
  args: { file: { type: "positional", required: true, description: "New file for the backup; none is replaced" } },
  example: "postern backup postern-backup.db",
  async run(context, { file }) {
    const dataDir = await findDataDir(context);
    const lock = existsSync(dataDir) ? takeGatewayLock(dataDir) : undefined;
    const { path, bytes, records, keys } = makeBackup(dataDir, resolve(context.io.cwd, file), lock);
    const size = `${(bytes / 1_000_000).toFixed(1)} MB`;
    context.print(
      { file: path, bytes, records, keys },
      `Backed up ${records} records of ${dataDir} to ${path} (${size})`,
    );
    const held = keys.length === 0 ? "" : ` and the key ${keys.join(", ")}, which opens what is encrypted`;
    context.say(`The file holds everything that was said and done${held}: keep it as safe as the data directory`);
    return EXIT.ok;
  },
});

/** @param lock undefined while a gateway has it */
function makeBackup(dataDir: string, to: string, lock: GatewayLock | undefined): BackupFacts {
  try {
    return backUp(dataDir, to, { isInUse: lock === undefined });
  } finally {
    lock?.release();
  }
}

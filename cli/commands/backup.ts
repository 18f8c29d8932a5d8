import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { backUp, type BackupFacts } from "../../lib/storage/back_up.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { EXIT } from "../cli_error.ts";
import { defineCliCommand } from "../command.ts";
import { findDataDir } from "../find_data_dir.ts";

/** Command `postern backup <file>`: writes all records and keys to one file, also while a gateway runs. */
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

/** Writes the backup and releases the lock. @param lock lock of the data directory. Undefined while a gateway holds it */
function makeBackup(dataDir: string, to: string, lock: GatewayLock | undefined): BackupFacts {
  try {
    return backUp(dataDir, to, { isInUse: lock === undefined });
  } finally {
    lock?.release();
  }
}

/** Command `postern restore <file>`: replaces the data directory by a backup, and holds all unfinished work in it for a person. */
export const restoreCommand = defineCliCommand({
  args: {
    file: { type: "positional", required: true, description: "File that postern backup made" },
    "keep-tokens": {
      type: "boolean",
      description: "Keep the tokens of the backup; tokens that were revoked since then work again",
    },
  },
  example: "postern restore postern-backup.db",
  async run(context, args) {
    const { restoreBackup } = await import("../restore/restore_backup.ts");
    const keepTokens = args["keep-tokens"] === true;
    const { dataDir, before, held, cutOff } = await restoreBackup({
      file: resolve(context.io.cwd, args.file),
      dataDir: await findDataDir(context),
      keepTokens,
      clock: systemClock,
    });
    const kept = before === null ? "" : `; what was there before is in ${before}`;
    context.print({ data_dir: dataDir, before, held }, `Restored ${dataDir}${kept}`);
    for (const { made, before } of cutOff) {
      const kept = existsSync(before) ? `; what was there before it is in ${before}` : "";
      context.say(`Removed ${made}, which a restore left that was cut off${kept}`);
    }
    context.say(
      `Held until a person decides: ${held.runs} runs (needs_review), ${held.procedures} procedures, ` +
        `${held.deliveries} deliveries (postern deliveries list --status held); ${held.approvals} questions and approvals ended, ` +
        `${held.schedules} schedules skip what they missed`,
    );
    context.say(
      keepTokens
        ? "Tokens are those of the backup: one that was revoked since counts again"
        : `${held.tokens} tokens are revoked: pair again with postern pair`,
    );
    if (before !== null) {
      context.say(
        "Accepted configuration files, procedures (sops), quarantine and logs stay in the folder of before: " +
          "copy sops back, and accept again with postern trust",
      );
    }
    return EXIT.ok;
  },
});

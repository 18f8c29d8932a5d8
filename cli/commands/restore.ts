import { resolve } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { findDataDir } from "../find_data_dir.ts";

/** `postern restore <file>`: puts a backup in the place of the data directory, and holds whatever was open in it. */
export const restoreCommand = defineCliCommand({
  args: {
    file: { type: "positional", required: true, description: "File that postern backup made" },
    "keep-tokens": {
      type: "boolean",
      description: "Keep the tokens of the backup; also those revoked since count again",
    },
  },
  example: "postern restore postern-backup.db",
  async run(context, args) {
    const { restoreBackup } = await import("../restore/restore_backup.ts");
    const keepTokens = args["keep-tokens"] === true;
    const { dataDir, before, held } = await restoreBackup({
      file: resolve(context.io.cwd, args.file),
      dataDir: await findDataDir(context),
      keepTokens,
      clock: systemClock,
    });
    const kept = before === null ? "" : `; what was there before is in ${before}`;
    context.print({ data_dir: dataDir, before, held }, `Restored ${dataDir}${kept}`);
    context.say(
      `Held until a person decides: ${held.runs} runs (needs_review), ${held.procedures} procedures, ` +
        `${held.deliveries} deliveries; ${held.approvals} questions and approvals ended, ` +
        `${held.schedules} schedules skip what they missed`,
    );
    context.say(
      keepTokens
        ? "Tokens are those of the backup: one that was revoked since counts again"
        : `${held.tokens} tokens are revoked: pair again with postern pair`,
    );
    if (before !== null) {
      context.say("Accepted configuration files and logs stay in the folder of before: postern trust accepts again");
    }
    return EXIT.ok;
  },
});

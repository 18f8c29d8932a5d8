import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { defineCliCommand, EXIT } from "../command.ts";
import { findDataDir } from "../../lib/config/load_config.ts";
import { exactLine } from "../../lib/base/text.ts";
import { backUpAll, type MadeBackup } from "../restore/back_up_all.ts";
import type { Restored } from "../restore/restore_backup.ts";
import { messageColumns, toDefinitions, wrapText } from "../terminal/terminal_text.ts";

/** Command `postern backup <file>`: writes all records and keys to one file, also while a gateway runs. */
export const backupCommand = defineCliCommand({
  args: { file: { type: "positional", required: true, description: "New file for the backup; none is replaced" } },
  example: "postern backup postern-backup.db",
  async run(context, { file }) {
    const dataDir = await findDataDir(context.loadOptions, context.say);
    const lock = existsSync(dataDir) ? takeGatewayLock(dataDir) : undefined;
    const { path, bytes, records, keys, plugins, missing } = await makeBackup(
      dataDir,
      resolve(context.io.cwd, file),
      lock,
    );
    const size = `${(bytes / 1_000_000).toFixed(1)} MB`;
    const packages = plugins === 0 ? "" : ` and ${plugins} plugin${plugins === 1 ? "" : "s"}`;
    context.print(
      { file: path, bytes, records, keys, plugins },
      `Backed up ${records} records${packages} of ${dataDir} to ${path} (${size})`,
    );
    for (const id of missing) {
      context.say(`The files of the plugin ${exactLine(id)} are missing or damaged, and not in the backup`);
    }
    const held = keys.length === 0 ? "" : ` and the key ${keys.join(", ")}, which opens what is encrypted`;
    const care = `The file holds everything that was said and done${held}: keep it as safe as the data directory`;
    context.say(wrapText(care, messageColumns(context.io)).join("\n"));
    return EXIT.ok;
  },
});

/** Writes the backup and releases the lock. @param lock lock of the data directory. Undefined while a gateway holds it */
async function makeBackup(dataDir: string, to: string, lock: GatewayLock | undefined): Promise<MadeBackup> {
  try {
    return await backUpAll(dataDir, to, { isInUse: lock === undefined });
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
    const { dataDir, before, held, plugins, cutOff } = await restoreBackup({
      file: resolve(context.io.cwd, args.file),
      dataDir: await findDataDir(context.loadOptions, context.say),
      keepTokens,
      clock: systemClock,
    });
    const kept = before === null ? "" : `\nThe folder from before is now ${before}`;
    context.print({ data_dir: dataDir, before, held, plugins }, `Restored ${dataDir}${kept}`);
    for (const { made, before } of cutOff) {
      const kept = existsSync(before) ? `; what was there before it is in ${before}` : "";
      context.say(`Removed ${made}, which a restore left that was cut off${kept}`);
    }
    context.say(restoredText({ held, before, plugins, keepTokens }, messageColumns(context.io)));
    return EXIT.ok;
  },
});

/** The facts of a restore that its closing message is about. */
export type RestoreFacts = Pick<Restored, "held" | "before" | "plugins"> & { readonly keepTokens: boolean };

/**
 * Returns the closing message of a restore: what waits for the person now, and what a backup does not hold.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function restoredText({ held, before, plugins, keepTokens }: RestoreFacts, columns: number | undefined): string {
  const rows = WAITING.filter(({ kind }) => held[kind] > 0).map(({ kind, one, many, what }) =>
    [`${held[kind]} ${held[kind] === 1 ? one : many}`, what] as const
  );
  const tokens = keepTokens
    ? "The tokens of the backup count, also one that was revoked after it was made."
    : `${
      held.tokens === 0 ? "No token counts" : "The tokens of the backup are revoked"
    }: pair each client with postern pair.`;
  return [
    "",
    ...wrapText(rows.length === 0 ? "No work was unfinished in the backup." : UNFINISHED, columns),
    ...(rows.length === 0 ? [] : [toDefinitions(rows, columns)]),
    ...wrapText(tokens, columns),
    ...(plugins === 0 ? [] : wrapText(PLUGINS_CAME, columns)),
    ...(before === null ? [] : ["", ...wrapText(NOT_IN_A_BACKUP, columns)]),
  ].join("\n");
}

const UNFINISHED =
  "Work that was unfinished in the backup may have been finished after it, so none of it goes on by itself:";

/** Unfinished work by its kind, with what a person does about it. */
const WAITING = [
  { kind: "runs", one: "run", many: "runs", what: "decide about each: postern runs list --status needs_review" },
  { kind: "procedures", one: "procedure", many: "procedures", what: "asks for your approval before its next step" },
  {
    kind: "deliveries",
    one: "delivery",
    many: "deliveries",
    what: "release or drop each: postern deliveries list --status held",
  },
  { kind: "approvals", one: "approval", many: "approvals", what: "withdrawn or expired" },
  {
    kind: "schedules",
    one: "schedule",
    many: "schedules",
    what: "goes on with its next time; missed ones are skipped",
  },
] as const;

const PLUGINS_CAME =
  "Installed plugins are as they were in the backup, also one that was disabled or removed after it: see postern plugin list.";

const NOT_IN_A_BACKUP =
  "A backup holds no procedures, quarantine, logs and accepted configurations. The folder from before still has them: " +
  "copy its folder sops back if you have procedures, and run postern trust where you had accepted a postern.toml.";

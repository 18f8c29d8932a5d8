import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { MEMORY, memoryText } from "../../lib/memory/memory.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import type { CopyDigests, Moved, MoveOptions, MoveProgress } from "../../lib/storage/moving/move_records.ts";
import { DatabaseAwayError, sqlStateOf } from "../../lib/storage/postgres/database_errors.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { requireYes } from "../terminal/require_yes.ts";
import { messageColumns, toDefinitions, wrapText } from "../terminal/terminal_text.ts";

/** Command `postern storage migrate --from sqlite --to postgres`: moves all records into the PostgreSQL database of `[storage]`. */
export const storageMigrateCommand = defineCliCommand({
  args: {
    from: { type: "string", valueHint: "driver", description: "Where the records are: sqlite" },
    to: { type: "string", valueHint: "driver", description: "Where they go: postgres, as [storage] names it" },
    "dry-run": { type: "boolean", description: "Look at both sides, and change nothing" },
  },
  example: "postern storage migrate --from sqlite --to postgres",
  async run(context, { from, to, "dry-run": isDryRun }) {
    requireDirection(from, to);
    const loaded = await context.loadConfig();
    requireAddress(loaded);
    return await withDataDirectory(loaded.dataDir, () =>
      withMove(context, loaded, async (options) => {
        const { moveRecords, planMove } = await import("../../lib/storage/moving/move_records.ts");
        if (isDryRun === true) {
          const { records, entries } = await planMove(options);
          const target = { database: options.database.name, schema: options.schema };
          context.print(
            { dry_run: true, ...target, records, stream_entries: entries },
            `Would move ${records} records and ${entries} entries of journals and conversations to ${placeOf(target)}`,
          );
          return EXIT.ok;
        }
        const moved = await moveRecords(options);
        report(context, loaded, moved);
        return EXIT.ok;
      }));
  },
});

/** Command `postern storage unmark`: lets gateways use the SQLite database again whose records were moved. */
export const storageUnmarkCommand = defineCliCommand({
  args: { yes: { type: "boolean", description: "Do it without a question" } },
  example: "postern storage unmark",
  async run(context, { yes }) {
    const { dataDir } = await context.loadConfig();
    const path = join(dataDir, DATABASE_NAME);
    return await withDataDirectory(dataDir, async () => {
      const { readMovedMark, unmarkMoved } = await import("../../lib/storage/moving/moved_mark.ts");
      const mark = readMovedMark(path);
      if (mark === undefined) {
        context.print({ unmarked: false }, `${path} is not marked as moved: nothing was changed`);
        return EXIT.ok;
      }
      const warning =
        `The records of ${path} were moved to ${placeOf(mark)} at ${mark.movedAt}. What happened since then is there ` +
        "alone. Once both are used there are two truths: tokens revoked in one count in the other, schedules fire in both, and open " +
        "runs go on in both, so that their effects happen twice. Stop every gateway over PostgreSQL first, and start none again.";
      context.say(wrapText(warning, messageColumns(context.io)).join("\n"));
      if (yes !== true) {
        await requireYes(context, "Use the records of this file again?", {
          unasked: "Cannot remove the mark: nobody can be asked here; give --yes once no gateway uses the copy",
          refused: "Nothing was changed: the records stay marked as moved",
        });
      }
      unmarkMoved(path);
      const was = { database: mark.database, schema: mark.schema, moved_at: mark.movedAt };
      context.print(
        { unmarked: true, was_moved_to: was },
        `Gateways may use ${path} again (storage.driver = "sqlite")`,
      );
      return EXIT.ok;
    });
  },
});

/** @throws {UsageError} for anything but a move from SQLite to PostgreSQL */
function requireDirection(from: string | undefined, to: string | undefined): void {
  if (from === "sqlite" && to === "postgres") return;
  const way = "postern storage migrate --from sqlite --to postgres";
  if (from === undefined || to === undefined) {
    throw new UsageError(`Cannot move the records: --from and --to are missing; see ${way}`);
  }
  const back = from === "postgres" && to === "sqlite"
    ? "; the way back to the records as they were before a move is postern storage unmark"
    : "";
  throw new UsageError(`Cannot move the records from "${from}" to "${to}": there is just ${way}${back}`);
}

/** @throws {ConfigError} no address of a database, or several */
function requireAddress({ config: { storage } }: LoadedConfig): void {
  const given = [storage.url, storage.url_env, storage.url_file].filter((text) => text !== "");
  if (given.length === 1) return;
  const reason = given.length === 0 ? "none is set" : "several are set";
  throw new ConfigError(
    "config_invalid",
    `Cannot move the records: the database is named by just one of storage.url, storage.url_env and storage.url_file, and ${reason}; postern config set storage.url_env <variable>`,
    { key: "storage.url_env" },
  );
}

/** Does work while no gateway and no other command uses the data directory. @throws {CommandError} when one does */
async function withDataDirectory<T>(dataDir: string, work: () => Promise<T>): Promise<T> {
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    throw new CommandError(
      `Cannot use "${dataDir}": a gateway, a node or another command uses it; postern daemon stop, or end it first`,
    );
  }
  try {
    return await work();
  } finally {
    lock.release();
  }
}

async function withMove(
  context: CommandContext,
  { config: { storage }, dataDir }: LoadedConfig,
  use: (options: MoveOptions) => Promise<number>,
): Promise<number> {
  const { openConfiguredDatabase, refusalOf } = await import("../../lib/storage/open_configured_postgres.ts");
  const [clock, random] = [systemClock, createSystemRandom()];
  const environment = (name: string) => context.io.env[name];
  const database = await openConfiguredDatabase({ storage, environment, clock, random });
  try {
    const { schema, engine_unchecked: engineUnchecked } = storage;
    const place = { dataDir, database, schema, engineUnchecked };
    return await use({ ...place, textOf, clock, random, onProgress: toldProgress(context.say, clock) });
  } catch (error) {
    if (error instanceof DatabaseAwayError && !error.wasSent) throw refusalOf(error, storage);
    if (error instanceof DatabaseAwayError || sqlStateOf(error) !== undefined) {
      throw new CommandError(
        `The move was cut off: ${messageOf(error)}; run the same command again, which copies everything again`,
      );
    }
    throw error;
  } finally {
    await database.close();
  }
}

/** Returns the text that a record is found by: memories alone have one. */
function textOf(collection: string, body: string): string | undefined {
  if (collection !== MEMORY.name) return undefined;
  try {
    return memoryText(MEMORY.parse(JSON.parse(body)));
  } catch {
    return undefined;
  }
}

/** Milliseconds between two lines about how far the copy is. */
const TELL_EVERY_MS = 2_000;

/** Returns what tells a person how far a move is. A copy that takes longer than 2 seconds is told every 2 seconds, and once more at its end. */
export function toldProgress(
  say: CommandContext["say"],
  clock: Pick<Clock, "monotonic">,
): (progress: MoveProgress) => void {
  let toldAt = clock.monotonic();
  let isUntold = false;
  const tellCopied = (copied: number, of: number) => {
    const now = clock.monotonic();
    const isDue = now - toldAt >= TELL_EVERY_MS;
    if (!isDue && !(isUntold && copied === of)) return;
    toldAt = now;
    isUntold = copied < of;
    say(`Copied ${copied} of ${of} records and entries`);
  };
  return (progress) => {
    switch (progress.step) {
      case "begun_again":
        return say("A copy was begun before, and cut off: it is made again");
      case "verify":
        return say("Reading both sides again, to compare counts and digests");
      case "copy":
        return tellCopied(progress.copied, progress.of);
    }
  };
}

function report(context: CommandContext, { config: { storage }, dataDir }: LoadedConfig, moved: Moved): void {
  const { copied } = moved;
  const local = LOCAL.filter(({ name }) => existsSync(join(dataDir, name)));
  const place = { database: moved.database, schema: moved.schema };
  const data = { ...place, moved_at: moved.movedAt, copied, stays_in_data_dir: local.map(({ name }) => name) };
  const was = `The records had been moved to ${placeOf(place)} at ${moved.movedAt}: nothing is left to do`;
  context.print(data, copied === null ? was : `Moved ${amountOf(copied)} to ${placeOf(place)}`);
  const columns = messageColumns(context.io);
  const lines = [
    ...(copied === null ? [] : ["Counts and SHA-256 digests are the same on both sides."]),
    `${join(dataDir, DATABASE_NAME)} stays as it is, and gateways refuse it. Remove it once you are sure.`,
    storage.driver === "postgres"
      ? "Start the gateway: it goes on over PostgreSQL."
      : "Turn the driver over, and start the gateway: postern config set storage.driver postgres",
    ...(local.length === 0 ? [] : [`These stay in ${dataDir}, which each gateway has one of:`]),
  ];
  context.say(["", ...lines.flatMap((line) => wrapText(line, columns))].join("\n"));
  if (local.length > 0) context.say(toDefinitions(local.map(({ name, what }) => [name, what] as const), columns));
}

function amountOf({ collections, streams, texts, vectors }: CopyDigests): string {
  const records = collections.reduce((sum, collection) => sum + collection.records, 0);
  return `${records} records, ${streams.entries} entries of ${streams.streams} journals and conversations, ` +
    `${texts} texts and ${vectors} vectors of the search`;
}

function placeOf({ database, schema }: { readonly database: string; readonly schema: string }): string {
  return `the schema "${schema}" of the database ${database}`;
}

const KEY =
  "opens records that were encrypted here: set storage.key_env, start the gateway here, and run postern storage rekey";
/** Files of a data directory that are no records, with what to do about them. */
const LOCAL = [
  { name: "agents_ipc.key", what: KEY },
  { name: "browser_cookies.key", what: KEY },
  { name: "mcp_credentials.key", what: KEY },
  { name: "plugins", what: "files of plugins: install them at each gateway that is to offer them" },
  { name: "skills", what: "files of skills: install them at each gateway" },
  { name: "mcp", what: "packages and secrets of MCP servers: add them at each gateway" },
  { name: "sops", what: "procedures of this machine: copy them to each gateway" },
  { name: "trusted_configs.json", what: "accepted postern.toml files: postern trust at each gateway" },
  { name: "quarantine", what: "files that were moved out of the workspace" },
  { name: "browsers", what: "open browsers and their pages" },
  { name: "chat_history", what: "lines typed in postern chat" },
  { name: "daemon.log", what: "the log" },
] as const;

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { CommandError, defineCliCommand, EXIT } from "../command.ts";
import type { Config } from "../../lib/config/config.ts";
import { findDataDir, loadConfig, type LoadOptions } from "../../lib/config/load_config.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { exactLine } from "../../lib/base/text.ts";
import { type LostPackage, lostPackages } from "../../lib/extensions/mcp/install/package_backup.ts";
import { backUpAll, type MadeBackup } from "../restore/back_up_all.ts";
import type { Restored } from "../restore/restore_backup.ts";
import { messageColumns, toDefinitions, wrapText } from "../terminal/terminal_text.ts";

/** Command `postern backup <file>`: writes all records and keys to one file, also while a gateway runs. */
export const backupCommand = defineCliCommand({
  args: { file: { type: "positional", required: true, description: "New file for the backup; none is replaced" } },
  example: "postern backup postern-backup.db",
  async run(context, { file }) {
    await requireFiles(context.loadOptions, "back up");
    const dataDir = await findDataDir(context.loadOptions, context.say);
    const lock = existsSync(dataDir) ? takeGatewayLock(dataDir) : undefined;
    const made = await makeBackup(dataDir, resolve(context.io.cwd, file), lock);
    const { path, bytes, records, keys, plugins, skills, mcpPackages } = made;
    const size = `${(bytes / 1_000_000).toFixed(1)} MB`;
    const counts = [`${records} records`, ...counted(plugins, "plugin"), ...counted(skills, "skill")];
    const last = counts.length > 1 ? ` and ${counts.pop()}` : "";
    context.print(
      { file: path, bytes, records, keys, plugins, skills, mcp_packages: mcpPackages },
      `Backed up ${counts.join(", ")}${last} of ${dataDir} to ${path} (${size})`,
    );
    for (const id of made.missing) {
      context.say(`The files of the plugin ${exactLine(id)} are missing or damaged, and not in the backup`);
    }
    for (const name of made.missingSkills) {
      context.say(`The files of the skill ${exactLine(name)} are missing or changed, and not in the backup`);
    }
    for (const packages of counted(mcpPackages, "package")) {
      const verbs = mcpPackages === 1 ? ["is", "its name"] : ["are", "their names"];
      context.say(`${packages} of MCP servers ${verbs[0]} not in the backup, which has ${verbs[1]}`);
    }
    const held = keys.length === 0 ? "" : ` and the key ${keys.join(", ")}, which opens what is encrypted`;
    const care = `The file holds everything that was said and done${held}: keep it as safe as the data directory`;
    context.say(wrapText(care, messageColumns(context.io)).join("\n"));
    return EXIT.ok;
  },
});

/** @throws {CommandError} records that are in PostgreSQL. A configuration that cannot be read says nothing of where they are */
async function requireFiles(options: LoadOptions, verb: "back up" | "restore"): Promise<void> {
  const loaded = await loadConfig(options).catch(() => undefined);
  if (loaded?.config.storage.driver !== "postgres") return;
  const { schema } = loaded.config.storage;
  const way = verb === "back up"
    ? `pg_dump --format=custom --schema=${schema} --file=postern.dump, and keep the key of storage.key_env (without it: the keys in "${loaded.dataDir}")`
    : `stop every gateway, psql --command='DROP SCHEMA IF EXISTS ${schema} CASCADE', pg_restore --no-owner --single-transaction postern.dump, both with the address of the database, then postern storage hold (docs/deployment.md, "Backup of a cluster")`;
  throw new CommandError(
    `Cannot ${verb} the records: storage.driver is "postgres", so PostgreSQL's own tools do that: ${way}`,
  );
}

function counted(count: number, one: string): readonly string[] {
  return count === 0 ? [] : [`${count} ${one}${count === 1 ? "" : "s"}`];
}

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
    await requireFiles(context.loadOptions, "restore");
    const { restoreBackup } = await import("../restore/restore_backup.ts");
    const keepTokens = args["keep-tokens"] === true;
    const named = await findDataDir(context.loadOptions, context.say);
    // Accepted files are listed in the folder that goes
    const servers = await serversOf(context.loadOptions);
    const { dataDir, before, held, plugins, skills, lostSkills, mcpPackages, cutOff } = await restoreBackup({
      file: resolve(context.io.cwd, args.file),
      dataDir: named,
      keepTokens,
      clock: systemClock,
    });
    const lost = lostPackages(mcpPackages, { dataDir: named, servers });
    const kept = before === null ? "" : `\nThe folder from before is now ${before}`;
    const report = {
      ...{ data_dir: dataDir, before, held, plugins, skills },
      missing_skills: lostSkills.map(({ name }) => name),
      mcp_packages: lost.map(({ server, spec }) => ({ server, package: spec })),
    };
    context.print(report, `Restored ${dataDir}${kept}`);
    for (const { made, before } of cutOff) {
      const kept = existsSync(before) ? `; what was there before it is in ${before}` : "";
      context.say(`Removed ${made}, which a restore left that was cut off${kept}`);
    }
    const facts = { held, before, plugins, skills, lostSkills, lostPackages: lost, keepTokens };
    context.say(restoredText(facts, messageColumns(context.io)));
    return EXIT.ok;
  },
});

/** Returns the MCP servers of the configuration; none of one that cannot be read, which was said before. */
async function serversOf(options: LoadOptions): Promise<Config["mcp"]["servers"]> {
  try {
    return (await loadConfig(options)).config.mcp.servers;
  } catch (error) {
    if (error instanceof ConfigError) return {};
    throw error;
  }
}

/** The facts of a restore that its closing message is about. */
export interface RestoreFacts extends Pick<Restored, "held" | "before" | "plugins" | "skills" | "lostSkills"> {
  readonly lostPackages: readonly LostPackage[];
  readonly keepTokens: boolean;
}

/**
 * Returns the closing message of a restore: what waits for the person now, and what a backup does not hold.
 * @param columns width of the terminal in characters. Undefined: nothing is wrapped
 */
export function restoredText(facts: RestoreFacts, columns: number | undefined): string {
  const { held, before, plugins, skills, keepTokens } = facts;
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
    ...(skills === 0 ? [] : wrapText(SKILLS_CAME, columns)),
    ...lostSkillsText(facts, columns),
    ...lostPackagesText(facts, columns),
    ...(before === null ? [] : ["", ...wrapText(NOT_IN_A_BACKUP, columns)]),
  ].join("\n");
}

function lostSkillsText({ lostSkills }: RestoreFacts, columns: number | undefined): readonly string[] {
  if (lostSkills.length === 0) return [];
  const rows = lostSkills.map(({ name, from }) => {
    const way = `postern skill add ${name} <where it came from: ${exactLine(from)}>`;
    return [name, way] as const;
  });
  return [...wrapText(SKILLS_LOST, columns), toDefinitions(rows, columns)];
}

function lostPackagesText(
  { lostPackages, before }: RestoreFacts,
  columns: number | undefined,
): readonly string[] {
  if (lostPackages.length === 0) return [];
  const rows = lostPackages.map(({ server, spec, hasArgs }) => {
    const place = server === null ? "" : ` --name ${server} --replace${hasArgs ? " -- <arguments>" : ""}`;
    return [server ?? spec ?? "", `postern mcp add ${spec ?? "<package>"}${place}`] as const;
  });
  const copy = before === null ? [] : wrapText(PACKAGES_BEFORE, columns);
  return [...wrapText(PACKAGES_LOST, columns), toDefinitions(rows, columns), ...copy];
}

const UNFINISHED =
  "Work that was unfinished in the backup may have been finished after it, so none of it goes on by itself:";

/** Unfinished work by its kind, with what a person does about it. */
const WAITING = [
  { kind: "runs", one: "run", many: "runs", what: "decide about each: postern run list --status needs_review" },
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

const PLUGINS_CAME = "Plugins you disabled or removed after the backup are back: see postern plugin list.";

const SKILLS_CAME = "Skills you removed after the backup are back: see postern skill list.";

const SKILLS_LOST = "The backup does not hold the files of these skills. Install them again:";

const PACKAGES_LOST = "A backup does not hold the packages of MCP servers. Install them again:";

const PACKAGES_BEFORE = "Where the folder from before has them, you can copy its folder mcp/packages back instead.";

const NOT_IN_A_BACKUP =
  "A backup holds no procedures, quarantine, logs and accepted configurations. The folder from before still has them: " +
  "copy its folder sops back if you have procedures, and run postern trust where you had accepted a postern.toml.";

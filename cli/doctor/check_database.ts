import { existsSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { findUnreadable, inspectDatabase, readStored } from "../../lib/storage/inspect_database.ts";
import { lostLogBytes } from "../../lib/storage/sqlite/open_database.ts";
import { askForDamage, damagedRecords, lookIsOver, PARSERS } from "./damaged_records.ts";
import { checkKeys, type KeyCheckOptions } from "./check_keys.ts";
import { type Check, failure, type Finding, fine, type Installation, warning } from "./finding.ts";

const NAME = "database";

/** Checks what gateways that share a database need. Finds nothing for a gateway alone. */
export const clusterCheck: Check = {
  name: "cluster",
  run: async (installation) => {
    const { config, workspace } = installation.loaded;
    if (config.storage.driver !== "postgres") return [];
    const { checkCluster } = await import("./check_cluster.ts");
    return await checkCluster("cluster", { config, workspace, ...placeOf(installation) });
  },
};

/** Checks that the records can be used. Never opens the file of a running gateway, and asks the gateway instead. */
export const databaseCheck: Check = {
  name: NAME,
  run: async ({ context, loaded: { config, dataDir }, running }) => {
    const { driver } = config.storage;
    if (driver === "memory") {
      const message = 'Records are kept in memory and end with the gateway: storage.driver is "memory"';
      return warning(NAME, message, "postern config set storage.driver sqlite");
    }
    const { unreadable, complete } = await askForDamage(running);
    if (unreadable.length > 0) return damagedRecords(NAME, unreadable, "the running gateway set aside");
    if (driver === "postgres") {
      const { checkPostgres } = await import("./check_postgres.ts");
      return await checkPostgres(NAME, { storage: config.storage, ...placeOf({ context, running }) });
    }
    if (running?.health === "degraded") {
      const message = "The running gateway cannot write its records or its log";
      return failure(NAME, message, `df -h "${dataDir}", then postern audit verify`);
    }
    if (running?.health === "silent") {
      const message = "Not looked at: a gateway that does not answer has it open";
      return warning(NAME, message, "see the line on the gateway");
    }
    if (running !== undefined) {
      return fine(
        NAME,
        `In use by the running gateway, which writes it${complete ? "" : "; not every record was looked at"}`,
      );
    }
    const { environment, isRunning } = placeOf({ context, running });
    return await checkFile(dataDir, { settings: config.storage, isShared: false, environment, isRunning });
  },
};

/** Returns the environment of this terminal, and whether a gateway runs here that may have another one. */
function placeOf({ context, running }: Pick<Installation, "context" | "running">) {
  return {
    environment: (name: string) => context.io.env[name],
    isRunning: running !== undefined && running.health !== "silent",
  };
}

async function checkFile(dataDir: string, keys: KeyCheckOptions): Promise<readonly Finding[]> {
  const path = join(dataDir, "postern.db");
  if (lostLogBytes(path) > 0) {
    const message = `${path} is missing or empty, and its log holds records`;
    return [failure(NAME, message, "put the database back beside its log, or postern restore <file>")];
  }
  if (!existsSync(path)) {
    return [fine(NAME, "No database yet: the first start creates it"), ...await checkKeys(NAME, keys)];
  }
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    const message = "Not looked at: a node runs on it, or a gateway that cannot be reached";
    return [warning(NAME, message, "postern daemon stop, or end it in its terminal")];
  }
  try {
    const finding = judge(path);
    if (finding.state !== "ok") return [finding];
    const get = (collection: string, key: string) => Promise.resolve(readStored(path, collection, key));
    return [finding, ...await checkKeys(NAME, { ...keys, get })];
  } catch (error) {
    const reason = messageOf(error);
    return [failure(NAME, `${path} cannot be read: ${reason}`, toRestore(path))];
  } finally {
    lock.release();
  }
}

function judge(path: string): Finding {
  const facts = inspectDatabase(path);
  if (facts === undefined) return fine(NAME, "No database yet: the first start creates it");
  const { owner, version, knownVersion, damage, moved } = facts;
  if (owner === "moved") {
    const message =
      `The records of ${path} were moved to the schema "${moved?.schema}" of the database ${moved?.database} at ${moved?.movedAt}`;
    return failure(NAME, message, "postern config set storage.driver postgres, or postern storage unmark");
  }
  if (owner === "another") return failure(NAME, `${path} is the database of another program`, toRestore(path));
  const size = `${(facts.bytes / 1_000_000).toFixed(1)} MB`;
  if (version > knownVersion) {
    const message = `A newer Postern wrote it: its version is ${version}, this program knows ${knownVersion}`;
    return failure(NAME, message, `install the newer Postern, or restore one of "${path}.bak-*"`);
  }
  if (damage === undefined) return fine(NAME, `Version ${version}, ${size}: too large to be checked in passing`);
  if (damage !== null) return failure(NAME, `${path} is damaged: ${damage}`, toRestore(path));
  const found = version < knownVersion
    ? { unreadable: [], finished: true }
    : findUnreadable(path, PARSERS, lookIsOver());
  if (found.unreadable.length > 0) return damagedRecords(NAME, found.unreadable, "cannot be read");
  const due = version < knownVersion ? `; the next start brings it to version ${knownVersion}` : "";
  return fine(
    NAME,
    `Version ${version}, ${size}, undamaged${due}${found.finished ? "" : "; not every record was looked at"}`,
  );
}

function toRestore(path: string): string {
  return `postern restore <file>, or mv "${path}" "${path}.damaged" to start over`;
}

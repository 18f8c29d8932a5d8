import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { createServices } from "../../lib/gateway.ts";
import { createSharedDatabase, type DatabaseLink, type SharedDatabase } from "../support/clustered.ts";
import { toConfig } from "../support/config_edits.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

/** Starts a gateway of the cluster, whose start the signal gives up. */
function start(
  { database, link, signal }: {
    readonly database: SharedDatabase;
    readonly link: DatabaseLink;
    readonly signal: AbortSignal;
  },
  folder: string,
  logged: string[] = [],
) {
  const { clock } = database;
  return createServices({
    config: toConfig({ storage: { driver: "memory" }, cluster: { workspace_id: "shared" } }),
    folders: { dataDir: join(folder, "data"), workspaceRoot: folder, home: folder },
    environment: {},
    about: { version: "0.0.0-test" },
    log: { sink: ({ message }) => void logged.push(message) },
    models: { providers: createScriptedProviders(createScriptedProvider([], { clock })) },
    ...{ cluster: { database: link }, kit: { clock }, signal },
  });
}

test("a start that is given up while the database does not answer ends at once, and without a warning of its own", () =>
  withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const link = database.link();
    const stop = new AbortController();
    const logged: string[] = [];
    // Away from the first join on
    link.onBatch = () => Promise.reject(new Error("The database is down"));
    const starting = start({ database, link, signal: stop.signal }, folder, logged);
    await until(() => logged.some((message) => message.startsWith("The cluster cannot be joined yet")));
    stop.abort(new CancelError("shutdown"));
    await assert.rejects(starting, { name: "CancelError", reason: "shutdown" });
    assert.equal(logged.length, 1, logged.join());
  }));

test("a lease that comes while the start is given up is given back", () =>
  withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const link = database.link();
    const stop = new AbortController();
    const joined = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    link.onBatch = async (writes, make) => {
      const isWritten = await make();
      if (writes.some((write) => write.op !== "delete" && "collection" in write && write.collection === LEASES)) {
        joined.resolve();
        await answered.promise;
      }
      return isWritten;
    };
    const starting = start({ database, link, signal: stop.signal }, folder);
    await joined.promise;
    assert.equal(await database.store.count(LEASES), 1);
    stop.abort(new CancelError("shutdown"));
    answered.resolve();
    await assert.rejects(starting, { name: "CancelError", reason: "shutdown" });
    assert.equal(await database.store.count(LEASES), 0);
  }));

const LEASES = "gateway_leases";

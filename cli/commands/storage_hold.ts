import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import {
  CLUSTER_DRAINS,
  CONVERSATION_HOLDS,
  GATEWAY_FENCES,
  GATEWAY_LEASES,
  RUN_CLAIMS,
  RUN_SIGNALS,
} from "../../lib/cluster/cluster_records.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import type { Store } from "../../lib/storage/store.ts";
import { CommandError, defineCliCommand, EXIT } from "../command.ts";
import { requireYes } from "../terminal/require_yes.ts";
import { messageColumns } from "../terminal/terminal_text.ts";

/** Records about gateways that are gone: a claim without its gateway would let a run go on that is held. */
const OF_GATEWAYS = [GATEWAY_LEASES, GATEWAY_FENCES, RUN_CLAIMS, CONVERSATION_HOLDS, RUN_SIGNALS, CLUSTER_DRAINS];

/** Command `postern storage hold`: holds all unfinished work of a PostgreSQL database that was restored, as `postern restore` does. */
export const storageHoldCommand = defineCliCommand({
  args: {
    "keep-tokens": {
      type: "boolean",
      description: "Keep the tokens; those that were revoked since the dump work again",
    },
    yes: { type: "boolean", description: "Do it without a question" },
  },
  example: "postern storage hold",
  async run(context, { "keep-tokens": keep, yes }) {
    const { config: { storage, cluster }, dataDir } = await context.loadConfig();
    if (storage.driver !== "postgres") {
      throw new CommandError(
        'Cannot hold work: it is for a database that pg_restore brought back, and storage.driver is not "postgres"; postern restore does it for SQLite',
      );
    }
    const lock = takeGatewayLock(dataDir);
    if (lock === undefined) {
      throw new CommandError(`Cannot hold work: a gateway uses "${dataDir}"; stop every gateway first`);
    }
    try {
      const { openConfiguredPostgres } = await import("../../lib/storage/open_configured_postgres.ts");
      const environment = (name: string) => context.io.env[name];
      const place = { storage, environment, clock: systemClock, random: createSystemRandom(), log: SILENT };
      const { store, database } = await openConfiguredPostgres(place);
      try {
        const { requireNoGateway } = await import("../restore/require_no_gateway.ts");
        await requireNoGateway("hold work", { database, schema: storage.schema, leaseSeconds: cluster.lease_secs });
        if (yes !== true) {
          const tokens = keep === true ? "" : ", and revokes all tokens";
          context.say(`This holds all unfinished work in ${database.name} for a person${tokens}.`);
          await requireYes(context, "Hold it?", {
            unasked: "Cannot hold work: nobody can be asked here; give --yes",
            refused: "Nothing was changed",
          });
        }
        const [{ holdOpenWork }, { restoredText }] = await Promise.all([
          import("../restore/hold_open_work.ts"),
          import("./backup.ts"),
        ]);
        await forgetGateways(store);
        const keepTokens = keep === true;
        const held = await holdOpenWork({ store, clock: systemClock, keepTokens });
        context.print({ database: database.name, held }, `Held what was unfinished in ${database.name}`);
        const facts = { before: null, plugins: 0, skills: 0, lostSkills: [], lostPackages: [] };
        context.say(restoredText({ ...facts, held, keepTokens }, messageColumns(context.io)));
        return EXIT.ok;
      } finally {
        await store.close();
      }
    } finally {
      lock.release();
    }
  },
});

async function forgetGateways(store: Store): Promise<void> {
  for (const collection of OF_GATEWAYS) {
    for await (const key of collection.keys(store)) await store.batch([collection.remove(key)]);
  }
}

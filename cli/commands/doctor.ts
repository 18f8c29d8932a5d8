import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { type CommandContext, defineCliCommand, EXIT } from "../command.ts";
import { browserLoginsCheck } from "../doctor/check_browser_logins.ts";
import { clockCheck } from "../doctor/check_clock.ts";
import { filesCheck, sandboxCheck } from "../doctor/check_containment.ts";
import { dataDirectoryCheck, logCheck } from "../doctor/check_data_directory.ts";
import { clusterCheck, databaseCheck } from "../doctor/check_database.ts";
import { environmentCheck } from "../doctor/check_environment.ts";
import { gatewayCheck, serviceCheck } from "../doctor/check_gateway.ts";
import { portCheck } from "../doctor/check_port.ts";
import { instructionsCheck } from "../doctor/check_instructions.ts";
import { pluginsCheck } from "../doctor/check_plugins.ts";
import { mcpCheck } from "../doctor/check_mcp.ts";
import { programsCheck } from "../doctor/check_programs.ts";
import { providerCheck } from "../doctor/check_provider.ts";
import type { Repaired } from "../doctor/repair.ts";
import { runChecks } from "../doctor/run_checks.ts";
import { findingsText } from "../doctor/finding.ts";
import { findDataDir, loadConfig } from "../../lib/config/load_config.ts";
import { takesColour } from "../terminal/terminal_text.ts";

/** All checks, in the order of their findings. */
const CHECKS = [
  environmentCheck,
  dataDirectoryCheck,
  databaseCheck,
  clusterCheck,
  gatewayCheck,
  serviceCheck,
  portCheck,
  providerCheck,
  clockCheck,
  filesCheck,
  sandboxCheck,
  programsCheck,
  browserLoginsCheck,
  pluginsCheck,
  instructionsCheck,
  mcpCheck,
  logCheck,
];

/** Command `postern doctor`: checks everything the gateway needs. Changes nothing without --repair. Exit code 1 when a check fails. */
export const doctorCommand = defineCliCommand({
  args: {
    strict: { type: "boolean", description: "Exit 1 also where there are warnings" },
    repair: { type: "boolean", description: "Remove damaged records, after a backup; no gateway may run" },
  },
  example: "postern doctor --strict",
  async run(context, { strict, repair }) {
    if (repair === true) return await repairRecords(context);
    const findings = (await runChecks(context, CHECKS)).map((found) => ({
      ...found,
      message: context.named(found.message),
      fix: found.fix === null ? null : context.named(found.fix),
    }));
    const { io } = context;
    const bad = findings.filter(({ state }) => state === "failure" || (strict === true && state === "warning"));
    context.print(
      { ok: bad.length === 0, checks: findings },
      findingsText(findings, { columns: io.columns, colour: takesColour(io, "stdout") }),
    );
    return bad.length === 0 ? EXIT.ok : EXIT.failed;
  },
});

async function repairRecords(context: CommandContext): Promise<number> {
  const { backup, removed, finished } = await repairConfigured(context);
  const lines = removed.map(({ collection, key, reason }) => `${collection} ${key}: ${reason}`);
  context.print(
    { backup, removed, finished },
    backup === null
      ? "Every record can be read: nothing was changed"
      : [`Removed ${removed.length} damaged records; as they were, all are in ${backup}:`, ...lines].join("\n"),
  );
  if (!finished) context.say("There are more damaged records: run postern doctor --repair again");
  if (removed.some(({ collection }) => collection.startsWith("audit"))) {
    context.say("A record of the audit was among them: postern audit verify names its place as missing");
  }
  return EXIT.ok;
}

/** Repairs the records where they are. A configuration that cannot be read names no other place than the data directory. */
async function repairConfigured(context: CommandContext): Promise<Repaired> {
  const loaded = await loadConfig(context.loadOptions).catch(() => undefined);
  if (loaded?.config.storage.driver === "postgres") {
    const { isBeforeMove, repairPostgres } = await import("../doctor/repair_postgres.ts");
    const environment = (name: string) => context.io.env[name];
    const options = { loaded, environment, clock: systemClock, random: createSystemRandom() };
    if (!await isBeforeMove(options)) return await repairPostgres(options);
  }
  const { repair } = await import("../doctor/repair.ts");
  return await repair(await findDataDir(context.loadOptions, context.say));
}

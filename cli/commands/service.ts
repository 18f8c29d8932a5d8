import type { ArgsDef } from "citty";
import { stat } from "node:fs/promises";
import { systemClock } from "../../lib/base/clock.ts";
import { readLogEnd } from "../../lib/host/daemon/log_file.ts";
import { readServiceFile } from "../../lib/host/service/service_file.ts";
import { ServiceError, type ServiceManager } from "../../lib/host/service/service_manager.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../command.ts";
import { serviceManagerOf, setUpService } from "../daemon/service_setup.ts";
import { readServiceStatus, serviceLogPath, serviceStatusText, untilServiceAnswers } from "../daemon/service_status.ts";

const args = {
  "service-init": {
    type: "enum",
    options: ["systemd", "openrc"],
    valueHint: "systemd|openrc",
    description: "The service manager (default: the one that runs here)",
  },
} as const satisfies ArgsDef;

/** Command `postern service install`: writes the service, which then starts with the machine or at login. Repeating it changes nothing. */
export const serviceInstallCommand = defineCliCommand({
  args,
  example: "postern service install --config ./postern.toml",
  async run(context, given) {
    const manager = managerOf(context, given["service-init"]);
    manager.requireRights();
    const { description, notes } = await setUpService(context, manager);
    const said = [...await manager.install(description), ...notes];
    context.print(
      { installed: manager.file, init: manager.init, notes: said },
      `Installed ${manager.file} for ${manager.init}. Next: ${context.named("postern service start")}`,
    );
    if (!context.flags.json) { for (const note of said) context.say(note); }
    return EXIT.ok;
  },
});

/** Command `postern service uninstall`: stops and removes the service. Exit code 0 also when none was installed. */
export const serviceUninstallCommand = defineCliCommand({
  args,
  example: "postern service uninstall",
  async run(context, given) {
    const manager = managerOf(context, given["service-init"]);
    manager.requireRights();
    const isThere = await readServiceFile(manager.file) !== undefined;
    const notes = await manager.uninstall();
    context.print(
      { uninstalled: isThere ? manager.file : null, init: manager.init, notes },
      isThere ? `Removed ${manager.file}` : `Nothing to remove: there is no ${manager.file}`,
    );
    if (!context.flags.json) { for (const note of notes) context.say(note); }
    return EXIT.ok;
  },
});

/** Command `postern service start`: ends when the service answers. */
export const serviceStartCommand = lifecycle("start", "Started");
/** Command `postern service restart`: also starts a service that did not run. */
export const serviceRestartCommand = lifecycle("restart", "Restarted");
/** Command `postern service stop`: lets work finish for the configured grace time. */
export const serviceStopCommand = lifecycle("stop", "Stopped");

/** Command `postern service status`: says "running" only when the unit runs and its port answers. Exit code 0 in any case. */
export const serviceStatusCommand = defineCliCommand({
  args,
  example: "postern service status --json",
  async run(context, given) {
    const manager = managerOf(context, given["service-init"]);
    const status = await readServiceStatus(context, manager);
    context.print(status, serviceStatusText(status, context.io.columns));
    return EXIT.ok;
  },
});

function lifecycle(verb: "start" | "restart" | "stop", done: string) {
  return defineCliCommand({
    args,
    example: `postern service ${verb}`,
    async run(context, given) {
      const manager = managerOf(context, given["service-init"]);
      if (!(await manager.state()).installed) {
        throw new CommandError(
          `Cannot ${verb} the service: it is not installed; install it with postern service install`,
        );
      }
      await withLogEnd(manager, async () => {
        await manager[verb]();
        if (verb !== "stop") await untilServiceAnswers(context, manager, { verb, clock: systemClock });
      });
      context.print({ [verb]: "done", init: manager.init }, `${done} the service`);
      return EXIT.ok;
    },
  });
}

/** Does the work, and adds the last lines of the service's log to an error: they tell more than the service manager does. */
async function withLogEnd(manager: ServiceManager, work: () => Promise<void>): Promise<void> {
  const logFile = serviceLogPath(await readServiceFile(manager.file) ?? "");
  const from = logFile === undefined ? 0 : await stat(logFile).then(({ size }) => size, () => 0);
  try {
    await work();
  } catch (error) {
    const lines = logFile === undefined ? "" : await readLogEnd(logFile, from);
    if (!(error instanceof ServiceError) || lines === "") throw error;
    throw new CommandError(`${error.message}\nThe last lines of ${logFile} are\n${lines}`, { cause: error });
  }
}

/** Returns the service manager. @throws {CommandError} no service manager runs here, and none was named */
function managerOf(context: CommandContext, named: string | undefined): ServiceManager {
  const manager = serviceManagerOf(context, named);
  if (manager !== undefined) return manager;
  throw new CommandError(
    "Cannot find a service manager: neither systemd nor OpenRC runs here; name one with --service-init, or use postern daemon start",
  );
}

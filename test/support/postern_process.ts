import { ROOT, RUN, RUN_ENV } from "./gateway_process.ts";
import { type StartedProcess, startProcess, type StartProcessOptions } from "./started_process.ts";

/** Starts a `postern` command as `startProcess` does; what it has of this process's environment is what a start needs. */
export function startPostern(
  argv: readonly string[],
  { env, ready, cwd = ROOT }: Partial<StartProcessOptions> & Pick<StartProcessOptions, "env" | "ready">,
): Promise<StartedProcess> {
  return startProcess([...RUN, `${ROOT}cli/main.ts`, ...argv], {
    cwd,
    env: { ...RUN_ENV, NO_COLOR: "1", ...env },
    ready,
  });
}

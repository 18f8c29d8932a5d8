import { mainOf, ROOT, RUN, RUN_ENV } from "./gateway_process.ts";
import { type StartedProcess, startProcess, type StartProcessOptions } from "./started_process.ts";

/** Options of `startPostern`. */
interface PosternOptions extends Pick<StartProcessOptions, "env" | "ready"> {
  readonly cwd?: string | undefined;
  /** Folder with another build of the program. Default: this project */
  readonly program?: string | undefined;
}

/** Starts a `postern` command as `startProcess` does; what it has of this process's environment is what a start needs. */
export function startPostern(
  argv: readonly string[],
  { env, ready, cwd = ROOT, program }: PosternOptions,
): Promise<StartedProcess> {
  return startProcess([...RUN, mainOf(program), ...argv], {
    cwd,
    env: { ...RUN_ENV, NO_COLOR: "1", ...env },
    ready,
  });
}

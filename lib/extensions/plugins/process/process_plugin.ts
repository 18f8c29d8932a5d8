import { join } from "node:path";
import type { OpenPlugin } from "../plugin_openers.ts";
import { openProgramPlugin, type ProgramServices } from "./program_plugin.ts";

/**
 * Creates the opener of process plugins: programs that read a call from their input, as one line of JSON, and write the answer to their
 * output, as one line of JSON. What they write to their error output is shown in the error of a call that fails.
 */
export function createProcessOpener(services: ProgramServices): OpenPlugin<"process"> {
  return ({ manifest: { id, process, capabilities }, folder, config }) => {
    const { command, args, mode } = process;
    // A file of the package begins with "./"
    const file = command.startsWith("./") ? join(folder, command) : command;
    const program = { file, args, folder };
    return Promise.resolve(openProgramPlugin({ id, program, mode, capabilities, config }, services));
  };
}

import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { writeAtomically } from "../../lib/base/write_atomically.ts";
import { prepareDataDir } from "../../lib/config/folders.ts";
import { readText } from "../../lib/config/find_config.ts";
import { trustDirectory } from "../../lib/config/load_config.ts";
import { acceptFile } from "../../lib/config/trust_store.ts";
import { CommandError } from "../cli_error.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { STARTER_CONFIG } from "../starter_config.ts";

/** `postern init`: writes a commented `./postern.toml` and accepts it. An existing file is never overwritten. */
export const initCommand = defineCliCommand({
  args: { yes: { type: "boolean", description: "Do not ask" } },
  example: "postern init --yes",
  async run(context, { yes }) {
    const path = join(context.io.cwd, "postern.toml");
    if (await readText(path) !== undefined) {
      throw new CommandError(`Cannot write "${path}": it exists already; accept it with postern trust`);
    }
    if (yes !== true) {
      const answer = await context.io.ask(`Write ${path}? [Y/n] `);
      if (answer === undefined) throw new CommandError("Cannot ask: there is no terminal; say --yes");
      if (!/^(y(es)?)?$/i.test(answer.trim())) throw new CommandError("Nothing was written");
    }
    await writeAtomically(path, STARTER_CONFIG);
    const trustDir = trustDirectory(context.loadOptions);
    await prepareDataDir(trustDir);
    await acceptFile(trustDir, { path: await realpath(path), text: STARTER_CONFIG }, { now: systemClock.now() });
    context.print({ written: path }, `Wrote ${path} and accepted it. Next: postern gateway`);
    return EXIT.ok;
  },
});

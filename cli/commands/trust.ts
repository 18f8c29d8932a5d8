import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { prepareDataDir, userConfigFile } from "../../lib/config/folders.ts";
import { readText } from "../../lib/config/find_config.ts";
import { checkConfigText, trustDirectory } from "../../lib/config/load_config.ts";
import { acceptFile } from "../../lib/config/trust_store.ts";
import { CommandError } from "../cli_error.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";

/** `postern trust`: accepts `./postern.toml` with its present content; a later change asks again (DESIGN.md section 6). */
export const trustCommand = defineCliCommand({
  args: {},
  example: "cat postern.toml && postern trust",
  async run(context) {
    const here = join(context.io.cwd, "postern.toml");
    const text = await readText(here);
    if (text === undefined) {
      throw new CommandError(`Cannot accept "${here}": there is no such file; postern init writes one`);
    }
    await checkConfigText(text, here);
    const path = await realpath(here);
    const trustDir = trustDirectory(context.loadOptions);
    await prepareDataDir(trustDir);
    await acceptFile(trustDir, { path, text }, { now: systemClock.now() });
    context.print({ trusted: path }, `Accepted ${path} as it is now`);
    const own = userConfigFile(context.io);
    if (await readText(own) !== undefined) {
      context.say(`It is not used while ${own} exists; name it with --config to use it`);
    }
    return EXIT.ok;
  },
});

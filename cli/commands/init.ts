import { chmod, realpath } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { readText } from "../../lib/config/find_config.ts";
import { prepareDataDir, resolvePath, userConfigFile } from "../../lib/config/folders.ts";
import { checkConfigText, trustDirectory } from "../../lib/config/load_config.ts";
import { acceptFile } from "../../lib/config/trust_store.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../command.ts";
import { type StarterChoices, starterConfig } from "../starter_config.ts";
import { isYes } from "../terminal/require_yes.ts";

/**
 * Command `postern init`: writes a commented configuration to `./postern.toml`, or to the file that --config names, and accepts it
 * where that is needed. Asks three questions, a fourth one where the folder has AGENTS.md or its like, or none with --yes. Overwrites an existing file only after a person agreed.
 */
export const initCommand = defineCliCommand({
  args: { yes: { type: "boolean", description: "Do not ask: take the defaults" } },
  example: "postern init --yes",
  async run(context, { yes }) {
    const { io, flags } = context;
    const here = join(io.cwd, "postern.toml");
    const path = flags.config === undefined ? here : resolvePath(flags.config, io.cwd, io.home);
    const exists = await readText(path) !== undefined;
    if (exists && yes === true) {
      throw new CommandError(`Cannot write "${path}": it exists already; accept it with postern trust, or remove it`);
    }
    const choices = yes === true ? {} : await ask(context, exists ? await realpath(path) : undefined);
    const text = starterConfig(choices);
    await checkConfigText(text, path);
    await writeAtomically(path, text);
    // The file that was overwritten may have been readable by others
    if (exists) await chmod(path, 0o600);
    const accepted = path === here;
    if (accepted) await accept(context, { path: await realpath(path), text });
    const notes = await notesOn(context, { path, choices });
    const named = accepted || path === userConfigFile(io) ? "" : ` --config ${path}`;
    context.print(
      { written: path, accepted, notes },
      `Wrote ${path}${accepted ? " and accepted it" : ""}. Next: ${context.named("postern gateway")}${named}`,
    );
    if (!flags.json) { for (const note of notes) context.say(note); }
    return EXIT.ok;
  },
});

/** Asks for the choices. @param existing real path of a file that would be overwritten. @throws {CommandError} the person said no */
async function ask({ io }: CommandContext, existing: string | undefined): Promise<StarterChoices> {
  const { askChoices, askLine } = await import("../terminal/ask_choices.ts");
  if (existing !== undefined) {
    const answer = await askLine(io, `${existing} exists already. Overwrite it? [y/N] `);
    if (!isYes(answer)) throw new CommandError("Nothing was written");
  }
  return await askChoices(io);
}

async function accept({ loadOptions }: CommandContext, file: { readonly path: string; readonly text: string }) {
  const trustDir = trustDirectory(loadOptions);
  await prepareDataDir(trustDir);
  await acceptFile(trustDir, file, { now: systemClock.now() });
}

/** Returns what the person must still do before the configuration works. */
async function notesOn(
  { io, flags }: CommandContext,
  { path, choices }: { readonly path: string; readonly choices: StarterChoices },
): Promise<readonly string[]> {
  const key = VENDORS[choices.provider?.kind ?? ""]?.keyEnv;
  const own = userConfigFile(io);
  const isHidden = flags.config === undefined && await readText(own) !== undefined;
  return [
    ...(key === undefined || (io.env[key] ?? "") !== "" ? [] : [
      `The provider needs an API key: put it into the environment as ${key}, or into a file that provider.api_key_file names`,
    ]),
    ...(isHidden ? [`${path} is not used while ${own} exists; to use it, give --config ${path}`] : []),
  ];
}

/**
 * Command `postern trust`: accepts `./postern.toml` with its present content. A later change must be accepted again.
 * Source: docs/design/configuration.md "Where it comes from"
 */
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
      context.say(`${path} is not used while ${own} exists; to use it, name it with --config`);
    }
    return EXIT.ok;
  },
});

import { realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { readText } from "../../lib/config/find_config.ts";
import { prepareDataDir, resolvePath, userConfigFile } from "../../lib/config/folders.ts";
import { checkConfigText, trustDirectory } from "../../lib/config/load_config.ts";
import { acceptFile, readTrust } from "../../lib/config/trust_store.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { requireSandboxFor, tryBubblewrapHere } from "../doctor/check_containment.ts";
import { sandboxCure } from "../doctor/sandbox_cure.ts";
import { requireAgreed, shownChange } from "../edit_configuration.ts";
import { PRESETS } from "../presets.ts";
import { STARTER_CONFIG, type StarterChoices, withChoices } from "../starter_config.ts";
import type { AskedChoices } from "../terminal/ask_choices.ts";
import type { Read } from "../terminal/choose.ts";
import { readPreset } from "./preset.ts";

/**
 * Command `postern init`: writes a commented configuration to the place of the user's own, to `./postern.toml` with --here, or to the file
 * that --config or POSTERN_CONFIG names. Asks for the model, the folder and how far the agent may go, unless flags say so or --yes takes the
 * defaults. Changes a file that is there only after a person has seen the difference and agreed.
 */
export const initCommand = defineCliCommand({
  args: {
    here: { type: "boolean", description: "Write ./postern.toml, which counts in this folder alone" },
    provider: {
      type: "string",
      valueHint: "name or address",
      description: "Vendor of the models, or a server's address",
    },
    model: { type: "string", valueHint: "name", description: "Model of that provider" },
    "key-file": { type: "string", valueHint: "file", description: "File that holds its key and nothing else" },
    preset: { type: "string", valueHint: "name", description: `How far the agent may go: ${PRESETS.join(", ")}` },
    yes: { type: "boolean", description: "Do not ask: take the defaults for what no flag says" },
  },
  example: "postern init --yes --preset write",
  async run(context, args) {
    const { io, flags } = context;
    const { path, isHere } = placeOf(context, args.here === true);
    const before = await readText(path);
    if (before !== undefined && args.yes === true) {
      const way = "change it with postern preset apply or postern config set, or let postern init ask you";
      throw new CommandError(`Cannot write "${path}": it exists already; ${way}`);
    }
    if (before !== undefined && isHere) await requireTrusted(context, { path, text: before });
    const given = await readFlags(context, args);
    const { askChoices } = await import("../terminal/ask_choices.ts");
    const asked: AskedChoices = args.yes === true
      ? given
      : await askChoices(io, { given, isThere: before !== undefined });
    const { key, ...provider } = asked.provider ?? { kind: "" };
    const keyFile = key === undefined ? provider.keyFile : join(dirname(userConfigFile(io)), `${provider.kind}.key`);
    const choices = asked.provider === undefined ? asked : { ...asked, provider: { ...provider, keyFile } };
    const text = await withChoices(before ?? STARTER_CONFIG, choices);
    await checkConfigText(text, path);
    const change = before === undefined ? undefined : shownChange(context, { before, after: text });
    if (change !== undefined && change !== "") {
      await requireAgreed(context, { path, change, yes: false });
      if (await readText(path) !== before) throw new CommandError(`Nothing was written: ${path} was changed meanwhile`);
    }
    if (key !== undefined && keyFile !== undefined) await writeAtomically(keyFile, `${key}\n`, { isPrivate: true });
    if (change !== "") await writeAtomically(path, text);
    if (isHere) await accept(context, { path: await realpath(path), text });
    const notes = await notesOn(context, { path, isHere, text, keyFile: key === undefined ? undefined : keyFile });
    const named = isHere || path === userConfigFile(io) ? "" : ` --config ${path}`;
    const done = change === "" ? `Nothing to change in ${path}` : `Wrote ${path}${isHere ? " and accepted it" : ""}`;
    if (!flags.json) { for (const note of notes) context.say(note); }
    context.print(
      { written: change === "" ? null : path, accepted: isHere, notes },
      `${done}. Next: postern gateway${named}`,
    );
    return EXIT.ok;
  },
});

/** Returns the file to write: the one that --config or POSTERN_CONFIG names, `./postern.toml`, or the user's own. @throws {UsageError} two are named */
function placeOf(
  { io, flags }: CommandContext,
  here: boolean,
): { readonly path: string; readonly isHere: boolean } {
  const local = join(io.cwd, "postern.toml");
  const named = flags.config ?? (io.env["POSTERN_CONFIG"] || undefined);
  if (named !== undefined && here) {
    throw new UsageError("Cannot use --here: --config or POSTERN_CONFIG names another file");
  }
  const path = named === undefined ? here ? local : userConfigFile(io) : resolvePath(named, io.cwd, io.home);
  return { path, isHere: path === local };
}

/** Attack: what came with a folder would be accepted with a change of one line. @throws {CommandError} the file was not accepted as it is */
async function requireTrusted(
  { loadOptions }: CommandContext,
  { path, text }: { readonly path: string; readonly text: string },
) {
  if (await readTrust(trustDirectory(loadOptions), { path: await realpath(path), text }) === "trusted") return;
  throw new CommandError(
    `Cannot change "${path}": you have not accepted it as it is; read it, then accept it with postern trust, or remove it`,
  );
}

/** Flags of `postern init` that are answers. */
interface InitFlags {
  readonly provider?: string | undefined;
  readonly model?: string | undefined;
  readonly "key-file"?: string | undefined;
  readonly preset?: string | undefined;
}

/** Reads the choices that flags make, and tries the provider. @throws {UsageError} a flag cannot be used; {CommandError} the key is refused */
async function readFlags({ io, flags, say }: CommandContext, args: InitFlags): Promise<StarterChoices> {
  const preset = args.preset === undefined ? undefined : readPreset(args.preset);
  if (preset !== undefined) await requireSandboxFor(preset);
  const { readFolder } = await import("../terminal/ask_choices.ts");
  const workspace = flags.workspace === undefined
    ? undefined
    : valueOf("workspace", await readFolder(flags.workspace, io));
  const keyFile = args["key-file"] === undefined ? undefined : resolvePath(args["key-file"], io.cwd, io.home);
  if (args.provider === undefined) {
    if (args.model !== undefined || keyFile !== undefined) {
      throw new UsageError("Cannot use --model and --key-file without --provider");
    }
    return { preset, workspace };
  }
  const { answered, readProvider } = await import("../terminal/ask_provider.ts");
  const provider = { ...valueOf("provider", readProvider(args.provider)), model: args.model, keyFile };
  const hasKey = keyFile !== undefined || (io.env[VENDORS[provider.kind]?.keyEnv ?? ""] ?? "") !== "";
  if (hasKey || provider.baseUrl !== undefined) {
    const { tryProvider } = await import("../doctor/try_provider.ts");
    const tried = await tryProvider(provider, { env: io.env });
    if (tried.kind === "refused") throw new CommandError(`Nothing was written: ${tried.reason}`);
    if (tried.kind === "answers" && args.model !== undefined && !tried.models.includes(args.model)) {
      throw new CommandError(`Nothing was written: "${args.model}" is not among the models of ${args.provider}`);
    }
    say(answered(provider, tried));
  }
  return { provider, preset, workspace };
}

function valueOf<T>(flag: string, read: Read<T>): T {
  if ("value" in read && read.value !== undefined) return read.value;
  throw new UsageError(`Cannot use --${flag}: ${"wrong" in read ? read.wrong : "it is empty"}`);
}

async function accept({ loadOptions }: CommandContext, file: { readonly path: string; readonly text: string }) {
  const trustDir = trustDirectory(loadOptions);
  await prepareDataDir(trustDir);
  await acceptFile(trustDir, file, { now: systemClock.now() });
}

/** Configuration that was written. */
interface Written {
  readonly path: string;
  readonly isHere: boolean;
  readonly text: string;
  /** File of a key that was stored */
  readonly keyFile: string | undefined;
}

/** Returns what the person must still know or do before the configuration works. */
async function notesOn(
  { io, flags }: CommandContext,
  { path, isHere, text, keyFile }: Written,
): Promise<readonly string[]> {
  const { provider, security } = await checkConfigText(text, path);
  const variable = provider.api_key_file === "" && provider.base_url === ""
    ? VENDORS[provider.kind]?.keyEnv
    : undefined;
  const own = userConfigFile(io);
  const isHidden = isHere && flags.config === undefined && await readText(own) !== undefined;
  const hides = path === own && await readText(join(io.cwd, "postern.toml")).catch(() => "") !== undefined;
  const found = security.shell.sandbox === "off" ? undefined : await tryBubblewrapHere();
  return [
    ...(keyFile === undefined ? [] : [`The key is in ${keyFile}, which no tool may read`]),
    ...(variable === undefined || (io.env[variable] ?? "") !== "" ? [] : [
      `The provider needs an API key: put it into the environment as ${variable}, or into a file that provider.api_key_file names`,
    ]),
    ...(isHidden ? [`${path} is not used while ${own} exists; to use it, give --config ${path}`] : []),
    ...(hides
      ? [`The postern.toml of this folder is not used while ${own} exists; to use it, give --config ./postern.toml`]
      : []),
    ...(found === undefined || found.kind === "bubblewrap"
      ? []
      : [`Commands are not contained here: ${found.reason}. What mends it: ${await sandboxCure(found)}`]),
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
    await accept(context, { path, text });
    context.print({ trusted: path }, `Accepted ${path} as it is now`);
    const own = userConfigFile(context.io);
    if (await readText(own) !== undefined) {
      context.say(`${path} is not used while ${own} exists; to use it, name it with --config`);
    }
    return EXIT.ok;
  },
});

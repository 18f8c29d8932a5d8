import { realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { changeConfigFile } from "../../lib/config/edit_config.ts";
import { readText } from "../../lib/config/find_config.ts";
import { prepareDataDir, resolvePath, userConfigFile } from "../../lib/config/folders.ts";
import { checkConfigText, trustDirectory } from "../../lib/config/load_config.ts";
import { acceptFile, readTrust } from "../../lib/config/trust_store.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { type CliIo, type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { requireSandboxFor, tryBubblewrapHere } from "../doctor/check_containment.ts";
import { sandboxCure } from "../doctor/sandbox_cure.ts";
import { whileNobodyWrites } from "../configuration_lock.ts";
import { agreeToChange, sayWhereItCounts, unlessChanged } from "../edit_configuration.ts";
import { PRESETS } from "../presets.ts";
import { STARTER_CONFIG, type StarterChoices, withChoices } from "../starter_config.ts";
import type { Read } from "../terminal/ask_choices.ts";
import type { AskedProvider } from "../terminal/ask_provider.ts";
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
    const local = join(io.cwd, "postern.toml");
    const named = flags.config ?? (io.env["POSTERN_CONFIG"] || undefined);
    if (named !== undefined && args.here === true) {
      throw new UsageError("Cannot use --here: --config or POSTERN_CONFIG names another file");
    }
    const own = args.here === true ? local : userConfigFile(io);
    const path = named === undefined ? own : resolvePath(named, io.cwd, io.home);
    const before = await readText(path);
    if (before !== undefined) {
      await requireChangeable(context, { path, text: before, isHere: path === local, yes: args.yes });
    }
    const given = await readFlags(context, args);
    const asked = args.yes === true ? given : await ask(io, { given, isThere: before !== undefined });
    const { key, kind = "", baseUrl = "" } = asked.provider ?? {};
    const keyName = URL.parse(baseUrl)?.host.replaceAll(/[^\w.-]/g, "_") ?? kind;
    const keyFile = join(dirname(userConfigFile(io)), `${keyName}.key`);
    const text = await withChoices(before ?? STARTER_CONFIG, asked, key === undefined ? undefined : keyFile);
    await checkConfigText(text, path);
    const shown = { path, before, after: text };
    const isChanged = await agreeToChange(context, shown, { yes: false }) !== "";
    await whileNobodyWrites(context.loadOptions, async () => {
      await changeConfigFile(path, async (now) => {
        const after = unlessChanged(shown, now);
        if (key !== undefined) await writeAtomically(keyFile, `${key}\n`, { isPrivate: true });
        return after;
      });
      if (path === local) await accept(context, { path: await realpath(path), text });
    });
    const notes = [
      ...(key === undefined ? [] : [`The key is in ${keyFile}, which no tool may read`]),
      ...await notesOn(context, { path, text }),
    ];
    if (!flags.json) { for (const note of notes) context.say(note); }
    if (isChanged) await sayWhereItCounts(context, before === undefined);
    const done = isChanged
      ? `Wrote ${path}${path === local ? " and accepted it" : ""}`
      : `Nothing to change in ${path}`;
    const flag = path === own ? "" : ` --config ${path}`;
    const report = { written: isChanged ? path : null, accepted: path === local, notes };
    context.print(report, `${done}. Next: ${context.named("postern gateway")}${flag}`);
    return EXIT.ok;
  },
});

/**
 * Checks that a file which is there may be changed.
 * Attack: what came with a folder would be accepted together with a change of one line.
 * @throws {CommandError} nobody is asked, or it is a `./postern.toml` that was not accepted as it is
 */
async function requireChangeable(
  { loadOptions }: CommandContext,
  { path, text, isHere, yes }: {
    readonly path: string;
    readonly text: string;
    readonly isHere: boolean;
    readonly yes: boolean | undefined;
  },
): Promise<void> {
  if (yes === true) {
    const way = "change it with postern preset apply or postern config set, or let postern init ask you";
    throw new CommandError(`Cannot write "${path}": it exists already; ${way}`);
  }
  if (!isHere || await readTrust(trustDirectory(loadOptions), { path: await realpath(path), text }) === "trusted") {
    return;
  }
  const way = "read it, then accept it with postern trust, or remove it";
  throw new CommandError(`Cannot change "${path}": you have not accepted it as it is; ${way}`);
}

/** Choices of a person or of flags, with a key that is not stored yet. */
interface AskedChoices extends StarterChoices {
  readonly provider?: AskedProvider | undefined;
}

async function ask(
  io: CliIo,
  { given, isThere }: { readonly given: AskedChoices; readonly isThere: boolean },
): Promise<AskedChoices> {
  const [{ askChoices, nobodyToAsk }, { askProvider }] = await Promise.all([
    import("../terminal/ask_choices.ts"),
    import("../terminal/ask_provider.ts"),
  ]);
  if (!io.canAsk) throw nobodyToAsk();
  const empty = (standard: string) => isThere ? "no change" : standard;
  const provider = given.provider ?? await askProvider(io, empty("1"));
  return { provider, ...await askChoices(io, { given, empty }) };
}

type AnswerFlags = { readonly [name in "provider" | "model" | "preset" | "key-file"]?: string | undefined };

/** Reads the choices that flags make, and tries the provider. @throws {UsageError} a flag cannot be used; {CommandError} the key is refused */
async function readFlags({ io, flags, say }: CommandContext, args: AnswerFlags): Promise<AskedChoices> {
  const preset = args.preset === undefined ? undefined : readPreset(args.preset);
  if (preset !== undefined) await requireSandboxFor(preset);
  const { model, provider: named, "key-file": file } = args;
  const folder = flags.workspace;
  const { readFolder } = await import("../terminal/ask_choices.ts");
  const workspace = folder === undefined ? undefined : valueOf("workspace", await readFolder(folder, io));
  if (named === undefined && (model ?? file) !== undefined) {
    throw new UsageError("Cannot use --model and --key-file without --provider");
  }
  if (named === undefined) return { preset, workspace };
  const { answered, readProvider } = await import("../terminal/ask_provider.ts");
  const keyFile = file === undefined ? undefined : resolvePath(file, io.cwd, io.home);
  const provider = { ...valueOf("provider", readProvider(named)), model, keyFile };
  const variable = VENDORS[provider.kind]?.keyEnv ?? "";
  if ((keyFile ?? provider.baseUrl ?? io.env[variable] ?? "") === "") return { provider, preset, workspace };
  const { tryProvider } = await import("../doctor/check_provider.ts");
  const tried = await tryProvider(provider, io.env);
  if ("refused" in tried) throw new CommandError(`Nothing was written: ${tried.refused}`);
  if ("models" in tried && model !== undefined && !tried.models.includes(model)) {
    throw new CommandError(`Nothing was written: "${model}" is not among the models of ${named}`);
  }
  say(answered(provider, tried));
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

/** Returns what the person must still know or do before a configuration works. */
async function notesOn(
  { io, flags }: CommandContext,
  { path, text }: { readonly path: string; readonly text: string },
): Promise<readonly string[]> {
  const { provider, security } = await checkConfigText(text, path);
  const variable = provider.api_key_file + provider.base_url === "" ? VENDORS[provider.kind]?.keyEnv : undefined;
  const [own, local] = [userConfigFile(io), join(io.cwd, "postern.toml")];
  const isOne = flags.config === undefined && (path === own || path === local);
  const areBoth = isOne && [await readText(own), await readText(local)].every((there) => there !== undefined);
  const found = security.shell.sandbox === "off" ? undefined : await tryBubblewrapHere();
  const key = `put it into the environment as ${variable}, or into a file that provider.api_key_file names`;
  return [
    ...(variable === undefined || (io.env[variable] ?? "") !== "" ? [] : [`The provider needs an API key: ${key}`]),
    ...(areBoth ? [`${local} is not used while ${own} exists; to use it, give --config ${local}`] : []),
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
      throw new CommandError(`Cannot accept "${here}": there is no such file; postern init --here writes one`);
    }
    await checkConfigText(text, here);
    const path = await realpath(here);
    await whileNobodyWrites(context.loadOptions, () => accept(context, { path, text }));
    context.print({ trusted: path }, `Accepted ${path} as it is now`);
    const own = userConfigFile(context.io);
    if (await readText(own) !== undefined) {
      context.say(`${path} is not used while ${own} exists; to use it, name it with --config`);
    }
    return EXIT.ok;
  },
});

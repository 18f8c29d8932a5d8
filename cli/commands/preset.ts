import { readText } from "../../lib/config/find_config.ts";
import { userConfigFile } from "../../lib/config/folders.ts";
import { locateConfig } from "../../lib/config/load_config.ts";
import { toKeyText, toTomlValue } from "../../lib/config/toml.ts";
import { requireSandboxFor } from "../doctor/check_containment.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { editConfiguration, requireAgreed, shownChange } from "../edit_configuration.ts";
import {
  applyPreset,
  type Preset,
  PRESET_PROMISES,
  PRESET_ROWS,
  presetOf,
  PRESETS,
  presetSettings,
  presetTable,
} from "../presets.ts";

/**
 * Command `postern preset show [<name>]`: what each preset opens and never opens, and which one the configuration is like. With a name
 * also the change that `preset apply` would make.
 */
export const presetShowCommand = defineCliCommand({
  args: { name: { type: "positional", required: false, description: PRESETS.join(", ") } },
  example: "postern preset show code",
  async run(context, { name }) {
    const preset = name === undefined ? undefined : readPreset(name);
    const { config } = await context.loadConfig();
    const like = presetOf(config);
    const rows = PRESET_ROWS.map(({ work, answers }) => ({ work, ...byPreset((index) => answers[index]) }));
    const settings = byPreset((index) =>
      Object.fromEntries(presetSettings(PRESETS[index] ?? "look").map(([key, value]) => [toKeyText(key), value]))
    );
    const { target, before } = await targetOf(context);
    const change = preset === undefined
      ? ""
      : shownChange(context, { before, after: await applyPreset(before, preset) });
    context.print(
      { in_use: like ?? null, rows, promises: PRESET_PROMISES, settings, ...preset === undefined ? {} : { change } },
      [
        presetTable(context.io.columns),
        "",
        like === undefined ? "In use: settings of your own, like none of them" : `In use: ${like}`,
        ...preset === undefined ? [] : [
          "",
          ...settingLines(preset),
          "",
          change === "" ? NOTHING : `postern preset apply ${preset} changes ${target}:`,
          change,
        ],
      ].join("\n").trimEnd(),
    );
    return EXIT.ok;
  },
});

const NOTHING = "The configuration file has these values already";

function byPreset<T>(valueAt: (index: number) => T): Readonly<Record<string, T>> {
  return Object.fromEntries(PRESETS.map((name, index) => [name, valueAt(index)]));
}

function settingLines(preset: Preset): readonly string[] {
  return [
    `${preset} is`,
    ...presetSettings(preset).map(([key, value]) => `  ${toKeyText(key)} = ${toTomlValue(value)}`),
  ];
}

/** Command `postern preset apply <name>`: changes the configuration file to a preset, after its difference was shown and agreed to. */
export const presetApplyCommand = defineCliCommand({
  args: {
    name: { type: "positional", required: true, description: PRESETS.join(", ") },
    yes: { type: "boolean", description: "Do not ask" },
  },
  example: "postern preset apply write --yes",
  async run(context, { name, yes }) {
    const preset = readPreset(name);
    await requireSandboxFor(preset);
    const { target, before } = await targetOf(context);
    const after = await applyPreset(before, preset);
    const change = shownChange(context, { before, after });
    if (change === "") {
      context.print(
        { file: target, preset, change },
        `Nothing to change: ${target} has the values of ${preset} already`,
      );
      return EXIT.ok;
    }
    await requireAgreed(context, { path: target, change, yes: yes === true });
    const file = await editConfiguration(context, (text) => {
      if (text === before) return Promise.resolve(after);
      throw new CommandError(`Nothing was written: ${target} was changed meanwhile; try again`);
    });
    context.print({ file, preset, change }, `Applied ${preset} to ${file}`);
    return EXIT.ok;
  },
});

/** Returns the preset of a name. @throws {UsageError} there is none */
export function readPreset(name: string): Preset {
  const preset = PRESETS.find((one) => one === name);
  if (preset !== undefined) return preset;
  throw new UsageError(`Cannot use the preset "${name}": the presets are ${PRESETS.join(", ")}`);
}

/** Finds the configuration file in use, or the one that a change would make, with its text. */
async function targetOf(
  { loadOptions, io }: CommandContext,
): Promise<{ readonly target: string; readonly before: string }> {
  const { file } = await locateConfig(loadOptions);
  const target = file?.path ?? userConfigFile(io);
  return { target, before: file?.text ?? await readText(target) ?? "" };
}

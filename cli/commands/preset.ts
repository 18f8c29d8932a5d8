import { userConfigFile } from "../../lib/config/folders.ts";
import { locateConfig } from "../../lib/config/load_config.ts";
import { toKeyText, toTomlValue } from "../../lib/config/toml.ts";
import { type CommandContext, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { requireSandboxFor } from "../doctor/check_containment.ts";
import { agreeToChange, editConfiguration, shownChange, unlessChanged } from "../edit_configuration.ts";
import { applyPreset, type Preset, PRESET_ROWS, presetOf, PRESETS, presetSettings, presetTable } from "../presets.ts";

/**
 * Command `postern preset show [<name>]`: what each preset opens and never opens, and which one the configuration is like. With a name
 * also its keys, and the change that `preset apply` would make.
 */
export const presetShowCommand = defineCliCommand({
  args: { name: { type: "positional", required: false, description: PRESETS.join(", ") } },
  example: "postern preset show code",
  async run(context, { name }) {
    const preset = name === undefined ? undefined : readPreset(name);
    const { config } = await context.loadConfig();
    const used = presetOf(config);
    const rows = PRESET_ROWS.map(([work, answers]) => ({
      work,
      ...Object.fromEntries(PRESETS.map((one, at) => [one, answers[at]])),
    }));
    const lines = [presetTable(context.io.columns), "", `In use: ${used ?? "settings of your own, like none of them"}`];
    if (preset === undefined) {
      context.print({ in_use: used ?? null, rows }, lines.join("\n"));
      return EXIT.ok;
    }
    const { path, before } = await fileOf(context);
    const change = shownChange(before ?? "", await applyPreset(before ?? "", preset));
    const settings = presetSettings(preset, config).map(([key, value]) => [toKeyText(key), value] as const);
    lines.push("", `${preset} is`, ...settings.map(([key, value]) => `  ${key} = ${toTomlValue(value)}`), "");
    lines.push(
      change === ""
        ? `${path} has these values already`
        : `${context.named(`postern preset apply ${preset}`)} changes ${path}:\n${change}`,
    );
    context.print(
      { in_use: used ?? null, rows, settings: Object.fromEntries(settings), file: path, change },
      lines.join("\n"),
    );
    return EXIT.ok;
  },
});

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
    const { path, before } = await fileOf(context);
    const shown = { path, before, after: await applyPreset(before ?? "", preset) };
    const change = await agreeToChange(context, shown, { yes: yes === true });
    if (change !== "") await editConfiguration(context, async (text) => unlessChanged(shown, text));
    const done = change === ""
      ? `Nothing to change: ${path} has the values of ${preset} already`
      : `Applied ${preset} to ${path}`;
    context.print({ file: path, preset, change }, done);
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
async function fileOf({ loadOptions, io }: CommandContext) {
  const { file } = await locateConfig(loadOptions);
  return { path: file?.path ?? userConfigFile(io), before: file?.text };
}

import type { JsonObject } from "../../base/json.ts";
import { redactJson, type RedactPart } from "../../base/redact.ts";
import type { Config } from "../../config/config.ts";
import type { ToolSecrets } from "../../tools/secrets/tool_secrets.ts";
import type { PluginAnswer } from "./plugin_host.ts";

/** Settings of one plugin: `[plugins.config.<id>]`. */
export type PluginSettings = Config["plugins"]["config"][string];

/** Returns the settings of a plugin. Undefined for a plugin without any. */
export function settingsOf(id: string, { plugins }: Pick<Config, "plugins">): PluginSettings | undefined {
  const { config } = plugins;
  return Object.hasOwn(config, id) ? config[id] : undefined;
}

/** Tells whether settings name a secret. */
export function nameSecrets(settings: PluginSettings | undefined): settings is PluginSettings {
  return Object.values(settings ?? {}).some((value) => typeof value === "object");
}

/**
 * Returns the settings of a plugin that runs with rights of its own, with the values of its secrets: a field of its call.
 * @returns no field for a plugin without settings
 * @throws {ToolError} as ToolSecrets.fill
 */
export async function filledSettings(
  id: string,
  { config, secrets, signal }: {
    readonly config: Pick<Config, "plugins">;
    readonly secrets: Pick<ToolSecrets, "fill">;
    readonly signal: AbortSignal;
  },
): Promise<{ readonly config?: JsonObject }> {
  const settings = settingsOf(id, config);
  if (settings === undefined) return {};
  // Without a secret, all are of JSON
  if (!nameSecrets(settings)) return { config: settings as JsonObject };
  return { config: await secrets.fill(settings, { child: { kind: "plugins", name: id }, signal }) };
}

/** Masks secrets in an answer: a plugin that got one may send it back. */
export function maskAnswer(
  answer: Omit<PluginAnswer, "used">,
  redact: RedactPart | undefined,
): Omit<PluginAnswer, "used"> {
  if (redact === undefined) return answer;
  const mask = (text: string) => maskText(text, redact);
  const { output, data, ...rest } = answer;
  const masked = data === undefined ? {} : { data: redactJson(data, mask) };
  return { ...rest, output: mask(output), ...masked };
}

/** Masks secrets in a text. */
export function maskText(text: string, redact: RedactPart): string {
  const bytes = new TextEncoder().encode(text);
  return new TextDecoder().decode(redact.redact(bytes, { from: 0, to: bytes.length }));
}

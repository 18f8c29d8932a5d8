import { toKeyText } from "../../lib/config/key_path.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { idleSettings } from "../../lib/tools/idle_settings.ts";

/** A setting that does nothing, with its place. */
export interface ConfigWarning {
  readonly key: string;
  readonly message: string;
  /** null: it comes from the environment or the command line */
  readonly line: number | null;
}

/** Lists the settings of a configuration that do nothing in this version, as `postern.toml:12: [browser] does nothing: ...`. */
export async function configWarnings({ config, file, sources }: LoadedConfig): Promise<readonly ConfigWarning[]> {
  const idle = idleSettings(config);
  if (idle.length === 0) return [];
  const { locateKeys } = await import("../../lib/config/locate_keys.ts");
  const located = file === undefined ? undefined : await locateKeys(file.text);
  return idle.map(({ path, message }) => {
    const key = toKeyText(path);
    const isInFile = [...sources].some(([name, source]) =>
      source === "file" && (name === key || name.startsWith(`${key}.`))
    );
    const line = isInFile ? located?.lineOf(path) : undefined;
    return { key, message: line === undefined ? message : `${file?.path}:${line}: ${message}`, line: line ?? null };
  });
}

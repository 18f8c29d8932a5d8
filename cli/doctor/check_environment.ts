import { environmentLayer } from "../../lib/config/environment_layer.ts";
import { toKeyText } from "../../lib/config/key_path.ts";
import { parseToml } from "../../lib/config/parse_toml.ts";
import { HANDOVER_VARIABLE } from "../../lib/host/daemon/handover_variable.ts";
import { SERVICE_VARIABLE } from "../../lib/host/service/service_description.ts";
import { type Check, type Finding, fine, warning } from "./finding.ts";

const NAME = "environment";
const OWN = ["POSTERN_CONFIG", "POSTERN_DATA_DIR", "POSTERN_TOKEN", HANDOVER_VARIABLE, SERVICE_VARIABLE];

/** Variables that decide something, and those that look as if they did. Names alone are shown. */
export const environmentCheck: Check = {
  name: NAME,
  async look({ context: { io }, loaded: { file, config } }) {
    const { keys } = environmentLayer(io.env);
    const inFile = file === undefined ? {} : parseToml(file.text, file.path);
    const hidden = keys.filter(({ path }) => hasKey(inFile, path));
    // A key of a provider may have any name the configuration gives it
    const named = JSON.stringify(config);
    const idle = Object.keys(io.env).filter((name) =>
      /^POSTERN_[A-Z]/.test(name) && !OWN.includes(name) && !named.includes(`"${name}"`)
    );
    const set = [...OWN.filter((name) => (io.env[name] ?? "") !== ""), ...keys.map(({ variable }) => variable)].sort();
    return [
      set.length === 0
        ? fine(NAME, "No variable changes the configuration")
        : fine(NAME, `It decides by ${set.join(", ")}`),
      ...hidden.map(({ variable, path }): Finding =>
        warning(NAME, `${variable} takes the place of ${toKeyText(path)} in ${file?.path}`, `unset ${variable}`)
      ),
      ...idle.map((name): Finding =>
        warning(
          NAME,
          `${name} is read by nobody: a setting is written POSTERN__SECTION__KEY, with two underscores`,
          `unset ${name}`,
        )
      ),
    ];
  },
};

function hasKey(table: Readonly<Record<string, unknown>>, path: readonly (string | number)[]): boolean {
  let value: unknown = table;
  for (const part of path) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, part)) return false;
    value = (value as Record<string, unknown>)[String(part)];
  }
  return true;
}

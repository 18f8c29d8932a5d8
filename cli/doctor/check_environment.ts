import type { Config } from "../../lib/config/config.ts";
import { environmentLayer } from "../../lib/config/layers.ts";
import { SERVICE_VARIABLE } from "../../lib/host/service/service_manager.ts";
import { hasKey, parseToml, toKeyText } from "../../lib/config/toml.ts";
import { missingVariables, namedVariables } from "../../lib/config/secrets.ts";
import { HANDOVER_VARIABLE } from "../command.ts";
import { NODE_TOKEN_VARIABLE } from "../commands/node.ts";
import { PROGRAM_VARIABLE } from "../program_name.ts";
import { type Check, type Finding, fine, warning } from "./finding.ts";

const NAME = "environment";
const OWN = [
  "POSTERN_CONFIG",
  "POSTERN_DATA_DIR",
  "POSTERN_TOKEN",
  NODE_TOKEN_VARIABLE,
  HANDOVER_VARIABLE,
  PROGRAM_VARIABLE,
  SERVICE_VARIABLE,
];

/** Checks the environment: which variables set something, which have no effect, and which are missing. Shows names only, no values. */
export const environmentCheck: Check = {
  name: NAME,
  async run({ context: { io }, loaded: { file, config } }) {
    const { keys } = environmentLayer(io.env);
    const inFile = file === undefined ? {} : parseToml(file.text, file.path);
    const hidden = keys.filter(({ path }) => hasKey(inFile, path));
    // The configuration may name any variable as the place of a secret
    const named = new Set(namedVariables(config).map(({ name }) => name));
    const idle = Object.keys(io.env).filter((name) =>
      /^POSTERN_[A-Z]/.test(name) && !OWN.includes(name) && !named.has(name)
    );
    const set = [...OWN.filter((name) => (io.env[name] ?? "") !== ""), ...keys.map(({ variable }) => variable)].sort();
    return [
      set.length === 0
        ? fine(NAME, "No variable changes the configuration")
        : fine(NAME, `Variables in use: ${set.join(", ")}`),
      ...hidden.map(({ variable, path }): Finding =>
        warning(NAME, `${variable} takes the place of ${toKeyText(path)} in ${file?.path}`, `unset ${variable}`)
      ),
      ...idle.map((name) => unnamed(name, config)),
      ...missingVariables(config, io.env).map(({ name, key }): Finding =>
        warning(NAME, `${name}, which ${key} names, is not set here`, `export ${name}=... where the gateway is started`)
      ),
    ];
  },
};

/** Setting that names a variable. */
interface Naming {
  readonly key: string;
  /** Tells whether the setting names no variable yet, and would count if it named one. */
  readonly isFree: (config: Config) => boolean;
}

/** Settings by the name that the documentation gives their variable. */
const DOCUMENTED: Readonly<Record<string, Naming>> = {
  POSTERN_DATABASE: {
    key: "storage.url_env",
    isFree: ({ storage: { url, url_env, url_file } }) => [url, url_env, url_file].every((given) => given === ""),
  },
  POSTERN_DATABASE_DIRECT: {
    key: "storage.direct_url_env",
    isFree: ({ storage }) => storage.driver === "postgres" && storage.direct_url_env === "",
  },
  POSTERN_RECORDS: { key: "storage.key_env", isFree: ({ storage }) => storage.key_env === "" },
  POSTERN_CLUSTER_TOKEN: {
    key: "cluster.token_env",
    isFree: ({ storage, cluster }) => storage.driver === "postgres" && cluster.token_env === "",
  },
};

/** Warns about a variable that no setting names: one that the documentation has, or a setting that is written wrongly. */
function unnamed(name: string, config: Config): Finding {
  const message = `${name} is set, yet no setting names it`;
  const naming = DOCUMENTED[name];
  if (naming?.isFree(config) === true) return warning(NAME, message, `postern config set ${naming.key} ${name}`);
  const hint = "a variable that is a setting itself is written POSTERN__SECTION__KEY, with two underscores";
  return warning(NAME, `${message}; ${hint}`, `unset ${name}`);
}

const RUNTIME = "runtime";
const OLDEST_DENO = [2, 9] as const;

/** Checks the version of Node or Deno. A Node that is too old never gets here: main.ts refuses it. */
export function checkRuntime(): Finding {
  const place = `on ${process.platform} ${process.arch}`;
  if (process.platform === "win32") {
    const missing = "daemon, shell and process tools are not there on Windows";
    return warning(RUNTIME, `Node ${process.versions.node} ${place}: ${missing}`, "run it under WSL");
  }
  const deno = process.versions["deno"];
  if (deno === undefined) return fine(RUNTIME, `Node ${process.versions.node} ${place}`);
  const [major = 0, minor = 0] = deno.split(".").map(Number);
  const isOld = major < OLDEST_DENO[0] || (major === OLDEST_DENO[0] && minor < OLDEST_DENO[1]);
  if (!isOld) return fine(RUNTIME, `Deno ${deno} ${place}`);
  return warning(
    RUNTIME,
    `Deno ${deno} is older than ${OLDEST_DENO.join(".")}, the oldest it is tried on`,
    "deno upgrade",
  );
}

import type { Config } from "./config.ts";

/** Names of all environment variables that keys of the configuration name (`api_key_env`, `secret_env` ...): their values are secrets. */
export function namedEnvironment(config: Config): string[] {
  const names = new Set<string>();
  const visit = (value: unknown) => {
    if (value === null || typeof value !== "object") return;
    for (const [key, item] of Object.entries(value)) {
      if (key.endsWith("_env") && typeof item === "string" && item !== "") names.add(item);
      else visit(item);
    }
  };
  visit(config);
  return [...names];
}

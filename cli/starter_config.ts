import { toTomlValue } from "../lib/config/to_toml_value.ts";

/** What a new configuration sets; everything else keeps its default. */
export interface StarterChoices {
  /** `[provider]`; undefined: found by itself */
  readonly provider?: { readonly kind: string; readonly baseUrl?: string } | undefined;
  /** The folder the agent works in; undefined: the one the gateway is started in */
  readonly workspace?: string | undefined;
  /** `ask`: it may change files and use git, each time with a person's word; `free`: without. undefined: neither */
  readonly changes?: "ask" | "free" | undefined;
}

/** A commented configuration: the keys a newcomer changes first, each with its default or what was chosen. */
export function starterConfig({ provider, workspace, changes }: StarterChoices = {}): string {
  const writes = changes === undefined ? undefined : true;
  return `# Postern's configuration. Every line that begins with "#" shows a default: take the "#" away to change it.
# All keys: postern config show. One key: postern config set gateway.port 8080. Check: postern config check.

# The folder the agent works in; empty: the one the gateway is started in
${line("workspace", "", workspace)}
# The agent's git_operations
${line("enable_git", false, writes)}

[provider]
# auto takes OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY from the environment, else a local model server,
# else the built-in offline assistant. Or: openai, anthropic, openrouter, ollama, openai_compatible, offline, none
${line("kind", "auto", provider?.kind)}
# Empty: the provider's own default
${line("model", "", undefined)}
# Address of the API, as "http://127.0.0.1:8000/v1"; empty: the provider's own
${line("base_url", "", provider?.baseUrl)}
# A file that holds the key and nothing else; the key itself is never written here
${line("api_key_file", "", undefined)}

[gateway]
${line("host", "127.0.0.1", undefined)}
${line("port", 42617, undefined)}

[autonomy]
# read_only: the agent only reads. supervised: writing and the network need your word. full: it decides
${line("level", "supervised", changes === "free" ? "full" : undefined)}

[security]
# Programs that the agent may run
${line("allowed_commands", ["ls", "pwd", "cat", "echo"], undefined)}

[security.write_file]
# The tools that write, edit and patch files inside the workspace
${line("enabled", false, writes)}
`;
}

/** A key with its default as a comment, or as it was chosen. */
function line(key: string, standard: unknown, chosen: unknown): string {
  return chosen === undefined ? `# ${key} = ${toTomlValue(standard)}` : `${key} = ${toTomlValue(chosen)}`;
}

/** Nothing chosen. */
export const STARTER_CONFIG = starterConfig();

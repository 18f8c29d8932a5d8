import { toTomlValue } from "../lib/config/toml.ts";

/** Choices for a new configuration. Everything else keeps its default. */
export interface StarterChoices {
  /** Provider of the models. Undefined: the gateway looks for one at each start */
  readonly provider?: { readonly kind: string; readonly baseUrl?: string } | undefined;
  /** Folder the agent works in. Undefined: the folder the gateway is started in */
  readonly workspace?: string | undefined;
  /** `ask`: the agent may change files and use git after a person approved each call; `free`: without approval. Undefined: neither */
  readonly changes?: "ask" | "free" | undefined;
  /** True: runs are told of AGENTS.md of the workspace once its content is trusted. Undefined: they are not */
  readonly instructions?: true | undefined;
}

/** Returns a commented configuration: the keys that a newcomer changes first, each with its default or the chosen value. */
export function starterConfig({ provider, workspace, changes, instructions }: StarterChoices = {}): string {
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
# Address of the API, such as "http://127.0.0.1:8000/v1"; empty: the provider's own
${line("base_url", "", provider?.baseUrl)}
# A file that holds the key and nothing else; the key itself is never written here
${line("api_key_file", "", undefined)}

[gateway]
${line("host", "127.0.0.1", undefined)}
${line("port", 42617, undefined)}

[agent]
# Tells runs of AGENTS.md of the workspace, or of its like, once you trust its content: postern instructions trust
${line("workspace_instructions", false, instructions)}

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

/** Returns the line of a key: its default as a comment, or the chosen value. */
function line(key: string, standard: unknown, chosen: unknown): string {
  return chosen === undefined ? `# ${key} = ${toTomlValue(standard)}` : `${key} = ${toTomlValue(chosen)}`;
}

/** Starter configuration in which every key keeps its default. */
export const STARTER_CONFIG = starterConfig();

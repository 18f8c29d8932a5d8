import { setConfigValue } from "../lib/config/edit_config.ts";
import { checkConfigText } from "../lib/config/load_config.ts";
import { applyPreset, type Preset } from "./presets.ts";

/** Commented configuration in which every key keeps its default: the keys that a newcomer changes first. */
export const STARTER_CONFIG =
  `# Postern's configuration. Every line that begins with "#" shows a default: take the "#" away to change it.
# All keys: postern config show. One key: postern config set gateway.port 8080. Check: postern config check.

# How far the agent may go, in one word: postern preset show, postern preset apply write

# The folder the agent works in; empty: the one the gateway is started in
# workspace = ""
# The agent's git_operations
# enable_git = false

[provider]
# auto takes OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY from the environment, else a local model server,
# else the built-in offline assistant. Or: openai, anthropic, openrouter, ollama, openai_compatible, offline, none
# kind = "auto"
# Empty: the provider's own default
# model = ""
# Address of the API, such as "http://127.0.0.1:8000/v1"; empty: the provider's own
# base_url = ""
# A file that holds the key and nothing else; the key itself is never written here
# api_key_file = ""

[gateway]
# host = "127.0.0.1"
# port = 42617

[agent]
# Tells runs of AGENTS.md of the workspace, or of its like, once you trust its content: postern instructions trust
# workspace_instructions = false

[autonomy]
# read_only: the agent only reads. supervised: writing and the network need your approval. full: it decides
# level = "supervised"
# Tools that run without the question that the level would ask
# auto_approve = []

[security]
# Programs that the agent may run
# allowed_commands = ["ls", "pwd", "cat", "echo"]

[security.write_file]
# The tools that write, edit and patch files inside the workspace
# enabled = false
`;

/** Provider of the models. Undefined: its own default */
export interface ProviderChoice {
  readonly kind: string;
  /** Address of the API */
  readonly baseUrl?: string | undefined;
  readonly model?: string | undefined;
  /** Absolute path of the file with the key */
  readonly keyFile?: string | undefined;
}

/** Choices for a configuration. An undefined one leaves what is there. */
export interface StarterChoices {
  readonly provider?: ProviderChoice | undefined;
  /** Folder the agent works in */
  readonly workspace?: string | undefined;
  readonly preset?: Preset | undefined;
  /** True: runs are told of AGENTS.md of the workspace once its content is trusted */
  readonly instructions?: true | undefined;
}

/**
 * Changes the text of a configuration to choices.
 * @param newKeyFile file that gets the provider's key. Default: that of the choices
 * @throws {ConfigError} the text cannot be used, or edited in place
 */
export async function withChoices(
  text: string,
  { provider, workspace, preset, instructions }: StarterChoices,
  newKeyFile?: string,
): Promise<string> {
  const { provider: before, ...config } = await checkConfigText(text, "postern.toml");
  const earlier: Readonly<Record<string, unknown>> = before;
  const wanted = provider === undefined ? {} : {
    kind: provider.kind,
    model: provider.model ?? "",
    base_url: provider.baseUrl ?? "",
    api_key_env: "",
    api_key_file: newKeyFile ?? provider.keyFile ?? "",
  };
  const values: readonly (readonly [key: readonly string[], before: unknown, after: unknown])[] = [
    [["workspace"], config.workspace, workspace],
    ...Object.entries(wanted).map(([key, value]) => [["provider", key], earlier[key], value] as const),
    [["agent", "workspace_instructions"], config.agent.workspace_instructions, instructions],
  ];
  let changed = preset === undefined ? text : await applyPreset(text, preset);
  for (const [key, was, is] of values) {
    if (is !== undefined && was !== is) changed = await setConfigValue(changed, key, is);
  }
  return changed;
}

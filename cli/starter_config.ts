/** What `postern init` writes: the keys a newcomer changes first, each with its default. */
export const STARTER_CONFIG =
  `# Postern's configuration. Every line that begins with "#" shows a default: take the "#" away to change it.
# All keys: postern config show. One key: postern config set gateway.port 8080. Check: postern config check.

[provider]
# auto takes OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY from the environment, else a local model server,
# else the built-in offline assistant. Or: openai, anthropic, openrouter, ollama, openai_compatible, offline, none
# kind = "auto"
# model = ""
# base_url = ""

[gateway]
# host = "127.0.0.1"
# port = 42617

[autonomy]
# read_only: the agent only reads. supervised: writing and the network need your word. full: it decides
# level = "supervised"

[security]
# allowed_commands = ["ls", "pwd", "cat", "echo"]

[security.write_file]
# enabled = false
`;

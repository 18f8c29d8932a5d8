import * as v from "valibot";
import { about, boolean, choice, environmentName, httpUrl, integer, required, text, texts } from "./value.ts";

/** `[agent]`: bounds of one run of the agent (docs/design/runs.md "The loop"). */
export const agentSchema = v.strictObject({
  system_prompt: about("Text that every run begins with. Empty: the built-in prompt", text("")),
  max_iterations: about("Model turns of one run", integer(20, 1, 1000)),
  max_tool_calls: about("Tool calls of one run", integer(100, 0, 10_000)),
  parallel_tools: about("Runs the tool calls of one turn at the same time when all of them only read", boolean(true)),
  context_window_tokens: about("Tokens that the model can take. 0: what the provider says", integer(0, 0, 100_000_000)),
  tools: about("Tools that the agent has: names, `prefix*` or `*`. An empty list means none", texts(["*"])),
  workspace_instructions: about(
    "Tells runs of AGENTS.md at the top of the workspace, or of its like (CLAUDE.md, GEMINI.md, .github/copilot-instructions.md, .cursorrules), once you trust its content: `postern instructions trust`",
    boolean(false),
  ),
  tool_search: about(
    "Tells the model of a few tools in each turn, and lets it find the others with `tool_search`. `auto`: in runs with more than 24 tools",
    choice(["auto", "on", "off"], "auto"),
  ),
  ask_user: about("Turns `ask_user` on, the agent's questions to a person", boolean(true)),
});

/** `[runs]`: the supervisor's queue. */
export const runsSchema = v.strictObject({
  max_concurrent: about("Runs that work at the same time", integer(16, 1, 1000)),
  max_queued: about(
    "Runs that may wait for their turn; further ones are refused. One token has at most seven eighths of them",
    integer(1000, 0, 100_000),
  ),
  max_per_conversation: about(
    "Runs of one conversation that may wait for the one at work; a cluster counts them at all gateways",
    integer(8, 1, 1000),
  ),
  when_reader_leaves: about(
    "What becomes of a reply in a conversation when its reader leaves, by a closed page or a lost connection. `go_on`: it is said to its end, and found again. `cancel`: it ends",
    choice(["go_on", "cancel"], "go_on"),
  ),
  approval_timeout_secs: about(
    "Seconds that a run with a record, such as one of a conversation or a schedule, waits for a person's answer. After them the call is denied",
    integer(86_400, 1, 31_536_000),
  ),
  retention_days: about("Days that an ended run is kept. 0: for ever", integer(30, 0, 36_500)),
});

/** `[budget]`: tokens, 0: no limit. */
export const budgetSchema = v.strictObject({
  tokens_per_run: about("Tokens that one run may use. 0: no limit", integer(0, 0, 1_000_000_000_000)),
  tokens_per_day: about(
    "Tokens that all runs together may use in a day of UTC. 0: no limit",
    integer(0, 0, 1_000_000_000_000),
  ),
});

/** `[agents.<name>]`: an agent for `delegate`. */
export const delegateAgentSchema = v.strictObject({
  provider: about("Address of the agent's API. Empty: the default provider", httpUrl()),
  model: about("Model of the agent. Empty: the provider's default", text("")),
  api_key_env: about("Environment variable that holds the key of `provider`", environmentName()),
  system_prompt: about("Text that its runs begin with. Empty: the built-in prompt", text("")),
  max_depth: about("Delegations in a chain, counted from the top", integer(2, 1, 10)),
  agentic: about("Lets the agent call tools", boolean(false)),
  max_iterations: about("Model turns of one delegation", integer(10, 1, 1000)),
  allowed_tools: about(
    "Tools that it may call, of those that its caller has. An empty list means none; `delegate` may not be in it",
    texts([]),
  ),
});

/** An entry of `[[model_routes]]` or `[[embedding_routes]]`. */
export const routeSchema = v.strictObject({
  hint: about('Name that a request uses, such as `"model": "hint:<hint>"`', required()),
  provider: about("Name of the provider", required()),
  model: about("Model of that provider", required()),
});

const ruleSchema = v.strictObject({
  hint: about("Hint that a matching query gets", required()),
  keywords: about("Words of which the query must have one, in any case", texts([])),
  patterns: about("Texts of which the query must have one, exactly as written", texts([])),
  min_length: about("Fewest characters of a matching query. 0: no limit", integer(0, 0, 1_000_000)),
  max_length: about("Most characters of a matching query. 0: no limit", integer(0, 0, 1_000_000)),
  priority: about("Rank of the rule: of all that match, the highest wins", integer(0, -1000, 1000)),
});

/** `[query_classification]`: which hint a query gets. */
export const queryClassificationSchema = v.strictObject({
  enabled: about("Chooses a model route by the query when a request names no model", boolean(false)),
  rules: about("Rules that give a query its hint", v.optional(v.pipe(v.array(ruleSchema), v.maxLength(1000)), [])),
});

/** `[channels.<name>]`: a source of messages (docs/design/automation.md "Channels"). */
export const channelSchema = v.strictObject({
  kind: about("Form of the messages", choice(["generic"], "generic")),
  secret_env: about("Environment variable that holds the secret of the signatures", environmentName()),
  reply_url: about("Address that replies are sent to; it may be private. Empty: replies are only kept", httpUrl()),
  conversation: about(
    "What makes a conversation: each sender, the whole channel, or each message",
    choice(["sender", "channel", "message"], "sender"),
  ),
});

/** `[conversations]`: days a conversation is kept, 0: for ever. */
export const conversationsSchema = v.strictObject({
  retention_days: about("Days that a conversation is kept. 0: for ever", integer(0, 0, 36_500)),
});

/** `[cron]`: schedules. */
export const cronSchema = v.strictObject({
  enabled: about("Turns schedules and their tools on", boolean(false)),
  timezone: about(
    "IANA name of the time zone of new schedules, which keep it. Empty: the zone of the machine",
    text(""),
  ),
  max_tasks: about("Schedules that may exist at the same time", integer(100, 1, 100_000)),
});

/** `[memory]`: how memories are found (docs/design/storage.md "Search by meaning"). */
export const memorySchema = v.strictObject({
  embedding_route: about(
    "Hint of an `[[embedding_routes]]` whose model finds memories by their meaning too. Their texts are sent to it. Empty: by words alone",
    text(""),
  ),
});

/** `[skills]`: further folders of skills. */
export const skillsSchema = v.strictObject({
  dirs: about("Further folders of skills: absolute, or relative to the data directory", texts([])),
});

/** `[sops]`: further folders of SOPs; seconds until an unanswered step is denied. */
export const sopsSchema = v.strictObject({
  dirs: about("Further folders of procedures", texts([])),
  approval_timeout_secs: about(
    "Seconds that a step waits for a person's answer. After them the execution ends",
    integer(3600, 1, 31_536_000),
  ),
});

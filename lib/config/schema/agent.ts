import * as v from "valibot";
import { boolean, choice, environmentName, httpUrl, integer, required, text, texts } from "./value.ts";

/** `[agent]`: bounds of one run of the agent (docs/design/runs.md "The loop"). */
export const agentSchema = v.strictObject({
  /** Empty: the built-in one */
  system_prompt: text(""),
  /** Model turns of one run */
  max_iterations: integer(20, 1, 1000),
  /** Tool calls of one run */
  max_tool_calls: integer(100, 0, 10_000),
  /** Calls of one turn run at the same time when all of them only read */
  parallel_tools: boolean(true),
  /** 0: what the provider says */
  context_window_tokens: integer(0, 0, 100_000_000),
  /** Names, `prefix*` or `*`; an empty list means none */
  tools: texts(["*"]),
});

/** `[runs]`: the supervisor's queue. */
export const runsSchema = v.strictObject({
  max_concurrent: integer(16, 1, 1000),
  max_queued: integer(1000, 0, 100_000),
  max_per_conversation: integer(8, 1, 1000),
  /** Seconds a durable run waits for an answer */
  approval_timeout_secs: integer(86_400, 1, 31_536_000),
  /** Days an ended run is kept, 0: for ever */
  retention_days: integer(30, 0, 36_500),
});

/** `[budget]`: tokens, 0: no limit. */
export const budgetSchema = v.strictObject({
  tokens_per_run: integer(0, 0, 1_000_000_000_000),
  tokens_per_day: integer(0, 0, 1_000_000_000_000),
});

/** `[agents.<name>]`: an agent for `delegate`. */
export const delegateAgentSchema = v.strictObject({
  /** Address of its API; empty: the default provider */
  provider: httpUrl(),
  model: text(""),
  api_key_env: environmentName(),
  system_prompt: text(""),
  /** Delegations in a chain */
  max_depth: integer(2, 1, 10),
  /** Whether it may call tools */
  agentic: boolean(false),
  max_iterations: integer(10, 1, 1000),
  /** An empty list means none; `delegate` may not be in it */
  allowed_tools: texts([]),
});

/** One of `[[model_routes]]` or `[[embedding_routes]]`. */
export const routeSchema = v.strictObject({ hint: required(), provider: required(), model: required() });

const ruleSchema = v.strictObject({
  hint: required(),
  /** Words that must appear, without case; one is enough */
  keywords: texts([]),
  /** Texts that must appear as they are; one is enough */
  patterns: texts([]),
  /** Characters of the query, 0: no limit */
  min_length: integer(0, 0, 1_000_000),
  max_length: integer(0, 0, 1_000_000),
  /** The highest one that matches wins */
  priority: integer(0, -1000, 1000),
});

/** `[query_classification]`: which hint a query gets. */
export const queryClassificationSchema = v.strictObject({
  enabled: boolean(false),
  rules: v.optional(v.pipe(v.array(ruleSchema), v.maxLength(1000)), []),
});

/** `[channels.<name>]`: a source of messages (docs/design/automation.md "Channels"). */
export const channelSchema = v.strictObject({
  kind: choice(["generic"], "generic"),
  /** Environment variable of the signature's secret */
  secret_env: environmentName(),
  /** Replies are sent there, be it private or on this machine: it is the operator's word. Empty: they are only kept */
  reply_url: httpUrl(),
  /** What makes a conversation: each sender, the whole channel, or each message */
  conversation: choice(["sender", "channel", "message"], "sender"),
});

/** `[conversations]`: days a conversation is kept, 0: for ever. */
export const conversationsSchema = v.strictObject({ retention_days: integer(0, 0, 36_500) });

/** `[cron]`: schedules. */
export const cronSchema = v.strictObject({
  enabled: boolean(false),
  /** IANA name; empty: the machine's */
  timezone: text(""),
  max_tasks: integer(100, 1, 100_000),
});

/** `[skills]`: further folders of skills. */
export const skillsSchema = v.strictObject({ dirs: texts([]) });

/** `[sops]`: further folders of SOPs; seconds until an unanswered step is denied. */
export const sopsSchema = v.strictObject({ dirs: texts([]), approval_timeout_secs: integer(3600, 1, 31_536_000) });

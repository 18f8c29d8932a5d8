import * as v from "valibot";
import { about, boolean, environmentName, httpUrl, integer, text, texts } from "./value.ts";

/** Events that a rule of `[[notify]]` may tell a person of. */
export const NOTICE_EVENTS = [
  "approval_waiting",
  "run_ended",
  "run_failed",
  "run_needs_review",
  "budget_near",
  "gateway_degraded",
  "sign_in_needed",
] as const;
/** Event that a rule may tell of. */
export type NoticeEvent = (typeof NOTICE_EVENTS)[number];

/** Ways of a message to a person. */
const NOTIFY_KINDS = ["webhook", "ntfy", "pushover", "command"] as const;

/** `[[notify]]`: who is told of what, and how. */
export const notifyRuleSchema = v.strictObject({
  name: about(
    "Name of the rule, for `postern notify test` and in the list of deliveries",
    v.pipe(v.string(), v.regex(/^[a-z0-9_-]{1,64}$/), v.description("1-64 of a-z, 0-9, _ and -")),
  ),
  events: about(
    "Events that it tells of: an approval or question waits, a run has ended, failed or needs a review, 80 % of the day's tokens are used, the gateway is degraded, an MCP server wants a sign-in",
    v.pipe(v.array(v.picklist(NOTICE_EVENTS)), v.minLength(1), v.maxLength(20)),
  ),
  kind: about(
    "Way of its messages",
    v.pipe(v.picklist(NOTIFY_KINDS), v.description("`webhook`, `ntfy`, `pushover` or `command`")),
  ),
  url: about(
    "Address of a webhook; of the server for `ntfy` (empty: `https://ntfy.sh`) and `pushover` (empty: its API). It may be private",
    httpUrl(),
  ),
  secret_env: about("For `webhook`: environment variable of the secret that signs", environmentName()),
  topic_env: about("For `ntfy`: environment variable of the topic, which whoever knows it can read", environmentName()),
  token_env: about(
    "Environment variable of the access token for `ntfy`, or of the application's token for `pushover`",
    environmentName(),
  ),
  user_env: about("For `pushover`: environment variable of the user's key", environmentName()),
  command: about("For `command`: the program and its arguments. The text comes on its input", texts([])),
  window_secs: about(
    "Seconds that a message waits for more, which are then told as one. 0: each is told at once",
    integer(10, 0, 3600),
  ),
  quiet_hours: about(
    "Hours in which nothing is told, such as `22:00-07:00`. What waits is told at their end. Empty: none",
    v.optional(
      v.pipe(
        v.string(),
        v.regex(/^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$/),
        v.description("two times, such as `22:00-07:00`"),
      ),
      "",
    ),
  ),
  timezone: about("IANA name of the time zone of the quiet hours. Empty: that of `[cron]`", text("")),
  approvals_break_quiet: about("Tells of approvals in the quiet hours too", boolean(false)),
});

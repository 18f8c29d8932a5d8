import * as v from "valibot";
import type { DeepReadonly } from "../../base/json.ts";
import { isTimezone } from "../../base/zoned_time.ts";
import { about, boolean, environmentName, httpUrl, integer, text, texts } from "./value.ts";

/** Events that a rule of `[[notify]]` may tell a person of. */
export const ALERT_EVENTS = [
  "approval_waiting",
  "run_ended",
  "run_failed",
  "run_needs_review",
  "budget_near",
  "gateway_degraded",
  "sign_in_needed",
] as const;
/** Event that a rule may tell of. */
export type AlertEvent = (typeof ALERT_EVENTS)[number];

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
    v.pipe(v.array(v.picklist(ALERT_EVENTS)), v.minLength(1), v.maxLength(20)),
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

/** Contradiction in `[[notify]]`, or in the settings of answer links. */
interface NotifyContradiction {
  readonly path: readonly (string | number)[];
  readonly reason: string;
}

/** Rule of `[[notify]]`. */
export type NotifyRule = DeepReadonly<v.InferOutput<typeof notifyRuleSchema>>;

/** Keys that each way needs. Others of these keys are for another way. */
const NEEDED: Readonly<
  Record<NotifyRule["kind"], readonly ("url" | "secret_env" | "topic_env" | "token_env" | "user_env" | "command")[]>
> = {
  webhook: ["url", "secret_env"],
  ntfy: ["topic_env"],
  pushover: ["token_env", "user_env"],
  command: ["command"],
};

/** Finds contradictions of `[[notify]]`, and answer links without the address that they begin with. */
export function* notifyChecks({ notify, gateway }: {
  readonly notify: readonly NotifyRule[];
  readonly gateway: { readonly public_url: string; readonly answer_links: boolean };
}): Iterable<NotifyContradiction> {
  if (gateway.answer_links && gateway.public_url === "") {
    yield { path: ["gateway", "answer_links"], reason: "a link begins with gateway.public_url, which is not set" };
  }
  if (gateway.public_url !== "" && !isPlain(gateway.public_url)) {
    yield { path: ["gateway", "public_url"], reason: "it may have no user, query or fragment" };
  }
  for (const [index, rule] of notify.entries()) {
    const path = (key: keyof NotifyRule) => ["notify", index, key] as const;
    if (notify.findIndex(({ name }) => name === rule.name) < index) {
      yield { path: path("name"), reason: "another rule has this name" };
    }
    const missing = NEEDED[rule.kind].find((key) => rule[key].length === 0);
    if (missing !== undefined) yield { path: path(missing), reason: `kind = "${rule.kind}" needs it` };
    const [start, end] = rule.quiet_hours.split("-");
    if (start !== undefined && start !== "" && start === end) {
      yield { path: path("quiet_hours"), reason: "it begins and ends at the same time" };
    }
    if (rule.timezone !== "" && !isTimezone(rule.timezone)) {
      yield { path: path("timezone"), reason: "it must be an IANA time zone, such as Europe/Berlin" };
    }
  }
}

/** Returns why a rule cannot deliver anything now. Undefined where nothing is known against it */
export function whyUndeliverable(
  rule: NotifyRule,
  environment: (name: string) => string | undefined,
): string | undefined {
  const names = [rule.secret_env, rule.topic_env, rule.token_env, rule.user_env].filter((name) => name !== "");
  const missing = names.find((name) => !environment(name)?.trim());
  return missing === undefined ? undefined : `the variable ${missing} is not set`;
}

function isPlain(address: string): boolean {
  const url = URL.parse(address);
  return url !== null && url.username === "" && url.password === "" && url.search === "" && url.hash === "";
}

/** Parts of a configuration that say whether a person can be asked who looks at nothing. */
interface AskingSettings {
  readonly notify: readonly NotifyRule[];
  readonly gateway: { readonly public_url: string; readonly answer_links: boolean };
}

/** Tells whether a rule tells a person of approvals. */
export function tellsOfApprovals(
  { notify }: Pick<AskingSettings, "notify">,
  environment: (name: string) => string | undefined,
): boolean {
  return notify.some((rule) =>
    rule.events.includes("approval_waiting") && whyUndeliverable(rule, environment) === undefined
  );
}

/** Tells whether a message of an approval has a link that answers it. */
export function sendsAnswerLinks(settings: AskingSettings, environment: (name: string) => string | undefined): boolean {
  const { public_url: start, answer_links: isOn } = settings.gateway;
  return isOn && start !== "" && tellsOfApprovals(settings, environment);
}

import type { Clock } from "../../base/clock.ts";
import { withoutEnd } from "../../base/text.ts";
import { zoneClock } from "../../base/zoned_time.ts";
import type { Config } from "../../config/config.ts";
import type { AlertEvent, NotifyRule } from "../../config/schema/notify.ts";
import type { Store } from "../../storage/store.ts";
import { type AlertRecord, DELIVERIES, isAlert, NOTIFY } from "../channels/delivery_record.ts";
import { failedAttempt, type SendOptions, type SendOutcome } from "../channels/send_delivery.ts";
import { type AlertMessage, sendAlert } from "./send_alert.ts";

/** Something that rules may tell of. */
export interface NewAlert {
  readonly event: AlertEvent;
  readonly title: string;
  readonly text: string;
  /** Fragment of the page of the dashboard that shows more */
  readonly page: string;
  /** Approval that it tells of. Default: none */
  readonly approvalId?: string | undefined;
  /** True: a link may answer the approval. Default false */
  readonly mayLink?: boolean | undefined;
  /** Key under which it is told once, at whichever gateway and however often it is asked for. Default: each is told */
  readonly key?: string | undefined;
}

/** The messages of rules, as their deliveries need them. */
export interface AlertWork {
  /** Returns the milliseconds until a message may be sent, by its window, its next attempt and the quiet hours of its rule; 0: now. */
  waitMs(record: AlertRecord): number;
  /**
   * Returns a message with those of its rule that go with it, the oldest first, and those that need not be told any more.
   * @param isHere tells whether a delivery is this gateway's
   */
  gather(record: AlertRecord, isHere: (id: string) => boolean): Promise<{
    readonly group: readonly AlertRecord[];
    readonly settled: readonly AlertRecord[];
  }>;
  /** Sends messages of one rule as one. @throws {CancelError} when the signal aborts */
  send(group: readonly AlertRecord[], options: SendOptions): Promise<SendOutcome>;
  /** Sends a message of a test by a rule. Undefined: there is no such rule. @throws {CancelError} when the signal aborts */
  test(rule: string, options: SendOptions): Promise<SendOutcome | undefined>;
}

/** Configuration and services that messages are made with. */
export interface AlertOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly config: () => Pick<Config, "notify" | "gateway" | "cron">;
  /** Tells whether an approval still waits. */
  readonly isPending: (approvalId: string) => Promise<boolean>;
  /** Makes a link that answers an approval, once. Undefined where none is given out */
  readonly makeLink: (approvalId: string) => Promise<string | undefined>;
  /** Runs a command with a text on its input. @throws {ToolError} */
  readonly run: (words: readonly string[], text: string, signal: AbortSignal) => Promise<unknown>;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const MINUTE_MS = 60_000;
/** Messages that one message tells of. Those beyond go with the next. */
const MAX_TOLD = 1_000;
/** Messages that are named in one that tells of many. */
const MAX_NAMED = 5;

/** Words for one message of an event, and for several. */
const WORDS: Readonly<Record<AlertEvent, readonly [one: string, more: string]>> = {
  approval_waiting: ["approval waits for an answer", "approvals wait for an answer"],
  run_ended: ["run has ended", "runs have ended"],
  run_failed: ["run has failed", "runs have failed"],
  run_needs_review: ["run needs a review", "runs need a review"],
  budget_near: ["message about the budget", "messages about the budget"],
  gateway_degraded: ["message about the state of the gateway", "messages about the state of the gateway"],
  sign_in_needed: ["MCP server wants a sign-in", "MCP servers want a sign-in"],
};

/** Creates the messages of `[[notify]]`. */
export function createAlertWork(options: AlertOptions): AlertWork {
  const { store, clock, config } = options;
  const ruleOf = (name: string) => config().notify.find((rule) => rule.name === name);
  const untilLoud = ({ channel, alert }: AlertRecord) => {
    const rule = ruleOf(nameOf(channel));
    const isQuiet = rule !== undefined && !(rule.approvals_break_quiet && alert.event === "approval_waiting");
    return isQuiet ? quietMs(rule, config().cron.timezone, clock.now()) : 0;
  };
  return {
    waitMs(record) {
      const wait = record.next_attempt_at === null ? 0 : Date.parse(record.next_attempt_at) - clock.now();
      return Math.max(0, wait, untilLoud(record));
    },
    async gather(record, isHere) {
      const found = [record];
      const now = clock.now();
      const where = { field: "status", value: "waiting" } as const;
      for await (const { value: other } of DELIVERIES.all(store, { order: "created", where })) {
        if (found.length === MAX_TOLD) break;
        if (other.channel !== record.channel || other.run_id === record.run_id || !isAlert(other)) continue;
        // A window that is still open closes with that of the first
        const isDue = other.attempts === 0 || Date.parse(other.next_attempt_at ?? "") <= now;
        if (isDue && isHere(other.run_id) && untilLoud(other) === 0) found.push(other);
      }
      const group: AlertRecord[] = [];
      const settled: AlertRecord[] = [];
      for (const each of found.sort((a, b) => (a.accepted_at < b.accepted_at ? -1 : 1))) {
        const { approval_id: id } = each.alert;
        if (id === null || await options.isPending(id)) group.push(each);
        else settled.push({ ...each, last_error: "the approval was settled before it was told of" });
      }
      return { group, settled };
    },
    async send(group, given) {
      const [first] = group;
      const rule = first && ruleOf(nameOf(first.channel));
      if (first === undefined || rule === undefined) {
        return { ...failedAttempt("[[notify]] has no rule of this name any more"), isFinal: true };
      }
      const { approval_id: id, may_link: mayLink } = first.alert;
      const answer = group.length === 1 && id !== null && mayLink ? await options.makeLink(id) : undefined;
      const message = toMessage(group, { rule: rule.name, publicUrl: config().gateway.public_url, answer });
      return await sendAlert(message, rule, { ...given, run: options.run, attempt: first.attempts + 1 });
    },
    async test(name, given) {
      const rule = ruleOf(name);
      const text = `This is a test of the rule "${name}". Nothing waits for you.`;
      return rule && await sendAlert(
        { id: "ntf_test", rule: name, title: "Postern: a test", text, alerts: [] },
        rule,
        { ...given, run: options.run, attempt: 1 },
      );
    },
  };
}

/** Returns the name of the rule of a message. */
function nameOf(channel: string): string {
  return channel.slice(NOTIFY.length);
}

/** Returns the milliseconds until the quiet hours of a rule end; 0 outside of them. */
function quietMs({ quiet_hours: hours, timezone }: NotifyRule, defaultZone: string, now: number): number {
  const [start, end] = hours.split("-").map(minutesOf);
  if (start === undefined || end === undefined) return 0;
  const zone = zoneClock(timezone || defaultZone || Intl.DateTimeFormat().resolvedOptions().timeZone);
  const local = now + zone.offset(now);
  const midnight = Math.floor(local / DAY_MS) * DAY_MS;
  const minute = Math.floor((local - midnight) / MINUTE_MS);
  const isOverMidnight = start > end;
  const isQuiet = isOverMidnight ? minute >= start || minute < end : minute >= start && minute < end;
  if (!isQuiet) return 0;
  const isTomorrow = isOverMidnight && minute >= start;
  // Never 0 within the hours, whatever the clock is changed by
  return Math.max(1, zone.momentOf(midnight + (isTomorrow ? DAY_MS : 0) + end * MINUTE_MS) - now);
}

function minutesOf(time: string): number {
  const [hours = "", minutes = ""] = time.split(":");
  return Number(hours) * 60 + Number(minutes);
}

/** Returns the message that tells of all of a group. */
function toMessage(
  group: readonly AlertRecord[],
  { rule, publicUrl, answer }: {
    readonly rule: string;
    readonly publicUrl: string;
    readonly answer: string | undefined;
  },
): AlertMessage {
  const [first, ...others] = group.map(({ alert }) => alert);
  const alerts = group.map(({ run_id: id, alert: { event, title } }) => ({ id, event, title }));
  const hasApproval = group.some(({ alert }) => alert.event === "approval_waiting");
  const page = others.length === 0 ? first?.page ?? "" : hasApproval ? "approvals" : "runs";
  const { id = "" } = alerts[0] ?? {};
  const place = publicUrl === "" ? {} : { page: `${withoutEnd(publicUrl, "/")}/#${page}` };
  const rest = { id, rule, alerts, answer, isUrgent: hasApproval, ...place };
  if (first !== undefined && others.length === 0) return { ...rest, title: first.title, text: first.text };
  const counts = Object.entries(WORDS).flatMap(([event, [one, more]]) => {
    const count = alerts.filter((each) => each.event === event).length;
    return count === 0 ? [] : [`${count} ${count === 1 ? one : more}`];
  });
  const named = alerts.slice(0, MAX_NAMED).map(({ title }) => `- ${title}`);
  const more = alerts.length > MAX_NAMED ? [`and ${alerts.length - MAX_NAMED} more`] : [];
  return { ...rest, title: `Postern: ${counts.join(", ")}`, text: [...named, ...more].join("\n") };
}

import { CancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { failedAttempt, post, type SendOptions, type SendOutcome, signedHeaders } from "../channels/send_delivery.ts";
import { type NotifyRule, whyUndeliverable } from "../../config/schema/notify.ts";

/** Message to a person. Its texts have no control characters but line breaks. */
export interface AlertMessage {
  /** Id of the first delivery in it */
  readonly id: string;
  readonly rule: string;
  readonly title: string;
  readonly text: string;
  /** Address of the page of the dashboard that shows more. Default: none is told */
  readonly page?: string | undefined;
  /** Link that answers the approval. Default: there is none */
  readonly answer?: string | undefined;
  /** True: somebody waits for the person. Default false */
  readonly isUrgent?: boolean | undefined;
  /** Deliveries in it. */
  readonly alerts: readonly { readonly id: string; readonly event: string; readonly title: string }[];
}

/** Services that one message is sent with. */
export interface SendAlertOptions extends SendOptions {
  readonly run: (words: readonly string[], text: string, signal: AbortSignal) => Promise<unknown>;
  /** From 1 on */
  readonly attempt: number;
}

/** Source: https://docs.ntfy.sh/publish/#publish-as-json. Not tried live. */
const NTFY = "https://ntfy.sh";
/** Source: https://pushover.net/api ("Pushing Messages", "Being Friendly to our API"). Not tried live. */
const PUSHOVER = "https://api.pushover.net/1/messages.json";
/** Characters of a title and a text: below the bounds of Pushover (250, 1,024) and of ntfy (4,096 bytes). */
const [MAX_TITLE, MAX_TEXT] = [200, 1_000];

/** Sends a message by a rule, once. No redirect is followed. @throws {CancelError} when the signal aborts */
export async function sendAlert(
  { title: whole, text: long, ...rest }: AlertMessage,
  rule: NotifyRule,
  options: SendAlertOptions,
): Promise<SendOutcome> {
  const problem = whyUndeliverable(rule, options.environment);
  if (problem !== undefined) return failedAttempt(problem);
  const message = { ...rest, title: cut(whole, MAX_TITLE), text: cut(long, MAX_TEXT) };
  switch (rule.kind) {
    case "webhook":
      return await sendWebhook(message, rule, options);
    case "ntfy":
      return await sendNtfy(message, rule, options);
    case "pushover":
      return await sendPushover(message, rule, options);
    case "command":
      return await runCommand(message, rule, options);
  }
}

async function sendWebhook(message: AlertMessage, rule: NotifyRule, options: SendAlertOptions): Promise<SendOutcome> {
  const { id, title, text, page = null, answer = null, alerts } = message;
  const body = JSON.stringify({
    ...{ object: "alert", id, rule: rule.name, count: alerts.length, title, text },
    ...{ page_url: page, answer_url: answer, alerts },
  });
  const headers = signedHeaders(body, { secretEnv: rule.secret_env, id, attempt: options.attempt }, options);
  if (headers === undefined) return failedAttempt(`the variable ${rule.secret_env} is not set`);
  return await post({ url: rule.url, headers, body, redirects: "refuse" }, options);
}

/** The topic and all texts go in the body: a topic in the address would be shown with it, and a text in a header could end it. */
async function sendNtfy(message: AlertMessage, rule: NotifyRule, options: SendAlertOptions): Promise<SendOutcome> {
  const { title, text, page, answer, isUrgent = false } = message;
  const view = (label: string, url: string) => ({ action: "view", label, url });
  const open = page === undefined ? [] : [view("Open", page)];
  const actions = answer === undefined ? open : [view("Allow", `${answer}#allow`), view("Deny", `${answer}#deny`)];
  const token = valueOf(rule.token_env, options);
  const body = JSON.stringify({
    ...{ topic: valueOf(rule.topic_env, options), title, message: text, priority: isUrgent ? 4 : 3, actions },
    ...(page === undefined ? {} : { click: page }),
  });
  const headers = {
    "content-type": "application/json",
    ...(token === "" ? {} : { authorization: `Bearer ${token}` }),
  };
  return await post({ url: rule.url || NTFY, headers, body, redirects: "refuse" }, options);
}

async function sendPushover(message: AlertMessage, rule: NotifyRule, options: SendAlertOptions): Promise<SendOutcome> {
  const { title, text, page, answer, isUrgent = false } = message;
  const url = answer ?? page;
  const body = new URLSearchParams({
    ...{ token: valueOf(rule.token_env, options), user: valueOf(rule.user_env, options), title, message: text },
    priority: isUrgent ? "1" : "0",
    ...(url === undefined ? {} : { url, url_title: answer === undefined ? "Open Postern" : "Allow or deny" }),
  }).toString();
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  // The makers of Pushover ask that a message is not sent again which a 4xx refused
  const isFinal = (status: number) => status >= 400 && status < 500 && status !== 429;
  return await post({ url: rule.url || PUSHOVER, headers, body, redirects: "refuse", isFinal }, options);
}

async function runCommand(message: AlertMessage, rule: NotifyRule, options: SendAlertOptions): Promise<SendOutcome> {
  const { title, text, page, answer } = message;
  try {
    const lines = [title, text, page, answer].filter((line) => line !== undefined);
    await options.run(rule.command, `${lines.join("\n")}\n`, options.signal);
    return { kind: "delivered" };
  } catch (error) {
    if (error instanceof CancelError || !(error instanceof ToolError)) throw error;
    return failedAttempt(error.message);
  }
}

function valueOf(name: string, { environment }: Pick<SendOptions, "environment">): string {
  return name === "" ? "" : environment(name)?.trim() ?? "";
}

function cut(text: string, most: number): string {
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most - 3).join("")}...` : text;
}

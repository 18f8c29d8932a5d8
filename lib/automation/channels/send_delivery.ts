import { bodyHmac, SIGNATURE_HEADER } from "../../base/body_hmac.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { Run } from "../../base/records/run.ts";
import type { GuardedFetch, RedirectMode } from "../../system/net/guarded_fetch.ts";
import { retryAfterMs } from "../../system/net/retry_after.ts";
import type { UrlRules } from "../../system/net/url_rules.ts";
import type { DeliveryRecord } from "./delivery_record.ts";

/** Address and secret for the replies of a channel: its `[channels.<name>]`. */
export interface ReplyTarget {
  readonly url: string;
  /** Environment variable of the secret; empty: replies are not signed */
  readonly secretEnv: string;
}

/** Outcome of an attempt. */
export type SendOutcome =
  | { readonly kind: "delivered" }
  | FailedAttempt;

/** Attempt after which nothing is known to have arrived. */
export interface FailedAttempt {
  readonly kind: "failed";
  readonly reason: string;
  /** True when another attempt would end the same way */
  readonly isFinal: boolean;
  /** Milliseconds that the receiver asks to wait; 0: it asks for none */
  readonly retryAfterMs: number;
}

/** Fetch, rules and secrets that one attempt works with. */
export interface SendOptions {
  readonly fetch: GuardedFetch;
  readonly clock: Clock;
  readonly rules: UrlRules;
  readonly environment: (name: string) => string | undefined;
  readonly signal: AbortSignal;
}

/** Request of one attempt to an address of the configuration. */
export interface DeliveryRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly redirects: RedirectMode;
  /** Tells whether a status says that another attempt would end the same way. Default: 410 does, since nobody wants it any more */
  readonly isFinal?: ((status: number) => boolean) | undefined;
}

const TIMEOUT_MS = 30_000;
/** Bytes of the receiver's answer that are read. Its content is not used. */
const MAX_BYTES = 65_536;
const MAX_RETRY_AFTER_MS = 3_600_000;

/**
 * Sends the reply of an ended run once: a JSON body, `Idempotency-Key` with the run's id, the same at every attempt, and the
 * channel's signature where it has a secret.
 * @throws {CancelError} when the signal aborts
 */
export async function sendRunReply(
  record: DeliveryRecord,
  run: Run,
  { target: { url, secretEnv }, ...options }: SendOptions & { readonly target: ReplyTarget },
): Promise<SendOutcome> {
  const body = JSON.stringify({
    channel: record.channel,
    run_id: run.id,
    message_id: record.message_id,
    sender: record.sender,
    conversation_id: run.conversation_id,
    status: run.status,
    reply: run.result,
    error: run.error,
  });
  const headers = signedHeaders(body, { secretEnv, id: run.id, attempt: record.attempts + 1 }, options);
  if (headers === undefined) return failedAttempt(`the signature's secret ${secretEnv} is not set`);
  return await post({ url, headers, body, redirects: "keep_method" }, options);
}

/**
 * Returns the headers of a signed JSON body. Undefined where the secret is not set: a receiver that expects a signature is never sent
 * anything without one.
 * @param secretEnv variable of the secret; empty: the body is not signed
 */
export function signedHeaders(
  body: string,
  { secretEnv, id, attempt }: { readonly secretEnv: string; readonly id: string; readonly attempt: number },
  { clock, environment }: Pick<SendOptions, "clock" | "environment">,
): Readonly<Record<string, string>> | undefined {
  const secret = secretEnv === "" ? undefined : environment(secretEnv);
  if (secretEnv !== "" && !secret) return undefined;
  const time = String(Math.floor(clock.now() / 1000));
  return {
    "content-type": "application/json",
    "idempotency-key": id,
    "x-postern-attempt": String(attempt),
    ...(secret === undefined ? {} : { [SIGNATURE_HEADER]: `t=${time},sha256=${toHex(bodyHmac(secret, time, body))}` }),
  };
}

/** Posts a body to an address of the configuration, once. Any 2xx is a success. @throws {CancelError} when the signal aborts */
export async function post(
  { url, headers, body, redirects, isFinal = (status) => status === 410 }: DeliveryRequest,
  { fetch: guarded, clock, rules, signal }: Omit<SendOptions, "environment">,
): Promise<SendOutcome> {
  try {
    const reply = await guarded({
      method: "POST",
      url,
      headers: () => headers,
      body,
      guard: { rules, fromConfig: true },
      redirects,
      identity: true,
      maxBytes: MAX_BYTES,
      timeoutMs: TIMEOUT_MS,
      signal,
    });
    if (reply.status >= 200 && reply.status < 300) return { kind: "delivered" };
    return {
      kind: "failed",
      reason: `the receiver answered ${reply.status}`,
      isFinal: isFinal(reply.status),
      retryAfterMs: Math.min(retryAfterMs(reply.headers, clock.now()) ?? 0, MAX_RETRY_AFTER_MS),
    };
  } catch (error) {
    if (error instanceof ToolError) return failedAttempt(error.message);
    throw error;
  }
}

/** Returns the outcome of an attempt that another may follow. */
export function failedAttempt(reason: string): FailedAttempt {
  return { kind: "failed", reason, isFinal: false, retryAfterMs: 0 };
}

function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

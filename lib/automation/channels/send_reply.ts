import type { Clock } from "../../base/clock.ts";
import { bodyHmac, SIGNATURE_HEADER } from "../../base/body_hmac.ts";
import { ToolError } from "../../base/errors.ts";
import type { Run } from "../../base/records/run.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../system/net/url_policy.ts";
import type { DeliveryRecord } from "./delivery_record.ts";

/** Where the replies of a channel go: its `[channels.<name>]`. */
export interface ReplyTarget {
  readonly url: string;
  /** Environment variable of the secret; empty: replies are not signed */
  readonly secretEnv: string;
}

/** Outcome of an attempt. */
export type SendOutcome =
  | { readonly kind: "delivered" }
  | {
    readonly kind: "failed";
    readonly reason: string;
    /** Another attempt would end the same way */
    readonly isFinal: boolean;
    /** The receiver's word on when to try again; 0 for none */
    readonly retryAfterMs: number;
  };

/** Fetch, rules and secrets for sending a reply. */
export interface SendOptions {
  readonly fetch: GuardedFetch;
  readonly clock: Clock;
  readonly rules: UrlRules;
  readonly environment: (name: string) => string | undefined;
  readonly signal: AbortSignal;
}

const TIMEOUT_MS = 30_000;
/** Bytes of the receiver's answer that are read. Its content is not used. */
const MAX_BYTES = 65_536;
const MAX_RETRY_AFTER_MS = 3_600_000;

/**
 * Sends the reply of an ended run once: a JSON body, `Idempotency-Key` with the run's id, the same at every attempt, and the
 * channel's signature where it has a secret. Any 2xx is a success; 410 means that nobody wants it any more.
 * @throws {CancelError} when the signal aborts
 */
export async function sendReply(
  record: DeliveryRecord,
  run: Run,
  target: ReplyTarget,
  { fetch: guarded, clock, rules, environment, signal }: SendOptions,
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
  const secret = target.secretEnv === "" ? undefined : environment(target.secretEnv);
  if (target.secretEnv !== "" && !secret) {
    // Fail closed: a receiver that expects a signature is never sent anything without one
    return failed(`the signature's secret ${target.secretEnv} is not set`);
  }
  const time = String(Math.floor(clock.now() / 1000));
  const headers = {
    "content-type": "application/json",
    "idempotency-key": run.id,
    "x-postern-attempt": String(record.attempts + 1),
    ...(secret === undefined ? {} : { [SIGNATURE_HEADER]: `t=${time},sha256=${toHex(bodyHmac(secret, time, body))}` }),
  };
  try {
    const reply = await guarded({
      method: "POST",
      url: target.url,
      headers: () => headers,
      body,
      rules,
      fromConfig: true,
      keepsMethod: true,
      maxBytes: MAX_BYTES,
      timeoutMs: TIMEOUT_MS,
      signal,
    });
    if (reply.status >= 200 && reply.status < 300) return { kind: "delivered" };
    return {
      kind: "failed",
      reason: `the receiver answered ${reply.status}`,
      isFinal: reply.status === 410,
      retryAfterMs: retryAfterOf(reply.headers["retry-after"] ?? "", clock.now()),
    };
  } catch (error) {
    if (error instanceof ToolError) return failed(error.message);
    throw error;
  }
}

/** Seconds or a date (RFC 9110, section 10.2.3), an hour at most. */
function retryAfterOf(text: string, now: number): number {
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return wait > 0 ? Math.min(wait, MAX_RETRY_AFTER_MS) : 0;
}

function failed(reason: string): SendOutcome {
  return { kind: "failed", reason, isFinal: false, retryAfterMs: 0 };
}

function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

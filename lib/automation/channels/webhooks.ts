import { hash, timingSafeEqual } from "node:crypto";
import * as v from "valibot";
import { bodyHmac } from "../../base/body_hmac.ts";
import type { Kit } from "../../base/kit.ts";
import { HttpError, refuse } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { RunHandle, RunRequest } from "../../runs/run_request.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { type Accepted, acceptedSchema, acceptOnce, forgetBefore } from "./accept_once.ts";
import type { Deliveries } from "./delivery_service.ts";

/** Name of a channel in a path. */
export const CHANNEL_NAME = /^[a-z0-9_-]{1,64}$/;

/** Collection of messages that were taken. The key is channel, token (where the channel has no secret) and message id. */
export const WEBHOOK_MESSAGES = new Collection("webhook_messages", acceptedSchema, { replaced: "never changed" });
/** Collection of signed requests that were taken. The key is channel and signature. */
export const WEBHOOK_SIGNATURES = new Collection(
  "webhook_signatures",
  v.object({ v: v.literal(1), at: v.number() }),
  { replaced: "never changed" },
);
/** How long a `message_id` is remembered, in milliseconds. */
const MESSAGE_MS = 24 * 3600 * 1000;

/** A channel that takes messages by webhook. */
export interface WebhookChannel {
  readonly name: string;
  /** True: each message needs a signature, which vouches for it */
  readonly isSigned: boolean;
  readonly conversation: Config["channels"][string]["conversation"];
}

/** A message as its channel has passed it on. */
export interface WebhookMessage {
  readonly sender: string | undefined;
  readonly messageId: string | undefined;
  /** Token that it came with */
  readonly tokenId: string | null;
}

/** Head of a request that brings a message. */
export type RequestHead = Pick<Request, "headers">;

/** Start of the run of a message, with the claims of the request. */
export interface WebhookStart {
  /** Claim of the request's Idempotency-Key. Default: none */
  readonly claim: ((runId: string) => Write) | undefined;
  readonly start: (claim: RunRequest["claim"]) => Promise<RunHandle>;
}

/** Parts of a gateway that webhooks need. */
export interface WebhookParts extends Pick<Kit, "clock" | "log" | "environment"> {
  readonly store: Store;
  readonly config: () => Config;
  readonly deliveries: Pick<Deliveries, "promise" | "watch">;
}

const USED = "it was used before";

function signatureOf({ headers }: RequestHead): string | null {
  return headers.get("x-postern-signature");
}

/** Messages of channels that come by webhook: their signatures, and that each is taken once. Source: docs/design/automation.md "Channels" */
export class Webhooks {
  readonly #parts: WebhookParts;
  /** Channels of requests that were admitted, as the configuration had them at that moment */
  readonly #admitted = new WeakMap<object, WebhookChannel>();

  constructor(parts: WebhookParts) {
    this.#parts = parts;
  }

  /** Returns a channel by its name. @throws {HttpError} 404 not_found */
  channel(name: string): WebhookChannel {
    const { channels } = this.#parts.config();
    const channel = Object.hasOwn(channels, name) ? channels[name] : undefined;
    if (CHANNEL_NAME.test(name) && (channel !== undefined || name === "default")) {
      const { secret_env = "", conversation = "sender" } = channel ?? {};
      return { name, isSigned: secret_env !== "", conversation };
    }
    throw refuse("not_found", `Cannot find this channel: configure it as [channels.<name>], or use "default"`);
  }

  /**
   * Admits a request to a channel: checks the signature of its raw body, where the channel demands one.
   * @throws {HttpError} 404 not_found; 401 auth_invalid, also for a signature that was used; 500 internal_error without the secret
   */
  async admit(name: string, head: RequestHead, body: () => Promise<Uint8Array>): Promise<void> {
    const channel = this.channel(name);
    if (channel.isSigned) await this.#verify(name, signatureOf(head), body);
    this.#admitted.set(head, channel);
  }

  async #verify(name: string, header: string | null, body: () => Promise<Uint8Array>): Promise<void> {
    const { clock, config, environment, log, store } = this.#parts;
    const { secret_env: secretEnv = "" } = config().channels[name] ?? {};
    const secret = environment(secretEnv);
    // Fail closed: a channel that demands a signature never goes without one
    if (!secret) {
      log.error("The secret of a channel is not set", { channel: name, secret_env: secretEnv });
      throw refuse(
        "internal_error",
        `Cannot check the signature: the gateway was started without the variable that [channels.${name}] secret_env names`,
      );
    }
    checkWebhookSignature({ header, body: await body(), secret, now: clock.now() });
    if (await this.#isUsed(keyOf(name, header))) throw refused(USED);
    // The sender's time may be ahead by a whole window, so a signature may count for two windows
    await forgetBefore(store, WEBHOOK_SIGNATURES, clock.now() - 2 * SIGNATURE_WINDOW_SECONDS * 1000);
  }

  /**
   * Takes a message: starts its run, once for each message id and each signature.
   * @throws {HttpError} 401 auth_invalid for a signature that another request used in the same moment; 503 overloaded
   */
  async take(
    head: RequestHead,
    { sender, messageId, tokenId }: WebhookMessage,
    { claim, start }: WebhookStart,
  ): Promise<Accepted> {
    const { store, clock, deliveries } = this.#parts;
    const { name, isSigned } = this.channelOf(head);
    const used = isSigned ? keyOf(name, signatureOf(head)) : undefined;
    // The signature is used up with the acceptance of the message: one that was not accepted may be sent again
    const use = used === undefined ? undefined : () => WEBHOOK_SIGNATURES.insert(used, { v: 1, at: clock.now() });
    const begin = async (first?: RunRequest["claim"]) => {
      const promise = await deliveries.promise({ channel: name, sender, messageId });
      const claims = [first, claim, promise, use].filter((each) => each !== undefined);
      const run = await start(claims.length === 0 ? undefined : (runId) => claims.flatMap((each) => each(runId)))
        .catch(async (error: unknown) => {
          // Another request used the signature in the same moment. Under a key it may be the same request, which has its answer
          const isTaken = error instanceof HttpError && error.code === "conflict";
          if (isTaken && claim === undefined && used !== undefined && await this.#isUsed(used)) throw refused(USED);
          throw error;
        });
      if (promise !== undefined) await deliveries.watch(run.id);
      return run;
    };
    if (messageId === undefined) return { first: true, run: await begin() };
    // Ids of one sender are none of another's: without a secret, each token is a sender
    const by = isSigned ? "" : `${tokenId ?? ""}:`;
    const key = `${name}:${by}${shortDigest(messageId)}`;
    const accepted = await acceptOnce({ store, now: clock.now(), collection: WEBHOOK_MESSAGES, key, start: begin });
    await forgetBefore(store, WEBHOOK_MESSAGES, clock.now() - MESSAGE_MS);
    if (!accepted.first && use !== undefined && !await store.batch([use()])) throw refused(USED);
    return accepted;
  }

  /** Returns the channel of a request that `admit` has let in. A change of the configuration since then does not count. */
  channelOf(head: RequestHead): WebhookChannel {
    const channel = this.#admitted.get(head);
    // Fail closed: whether somebody vouches for a message is known by its check alone
    if (channel === undefined) throw new TypeError("A message of a channel was not admitted");
    return channel;
  }

  async #isUsed(key: string): Promise<boolean> {
    return await WEBHOOK_SIGNATURES.versionOf(this.#parts.store, key) > 0;
  }
}

/** Returns the name of a text whose form nobody knows. */
export function shortDigest(text: string): string {
  return hash("sha256", text).slice(0, 48);
}

/** Maximum distance of the signature's time from the gateway's, earlier or later. */
const SIGNATURE_WINDOW_SECONDS = 300;

const SIGNATURE = /^t=(\d{1,12}), ?sha256=([0-9a-fA-F]{64})$/;

/** A webhook's body with the signature and the secret to check it by. */
interface SignedBody {
  /** Header X-Postern-Signature: `t=<unix seconds>,sha256=<hex>` of `<t>.<body>` */
  readonly header: string | null;
  readonly body: Uint8Array;
  readonly secret: string;
  /** Milliseconds since the epoch */
  readonly now: number;
}

/**
 * Checks the HMAC of a webhook's raw body, in constant time.
 * @throws {HttpError} 401 auth_invalid
 * Source: docs/design/automation.md "Channels"
 */
function checkWebhookSignature(signed: SignedBody): void {
  if (signed.header === null) throw refused("this channel demands the header X-Postern-Signature");
  const [, time, hex] = SIGNATURE.exec(signed.header) ?? [];
  if (time === undefined || hex === undefined) {
    throw refused("expected t=<unix seconds>,sha256=<64 hexadecimal digits>");
  }
  const expected = bodyHmac(signed.secret, time, signed.body);
  if (!timingSafeEqual(expected, Buffer.from(hex, "hex"))) {
    throw refused("it is not that of this body under the channel's secret");
  }
  if (Math.abs(signed.now / 1000 - Number(time)) > SIGNATURE_WINDOW_SECONDS) {
    throw refused(`its time is more than ${SIGNATURE_WINDOW_SECONDS} s away: check the sender's clock`);
  }
}

/** Returns the key to remember while the time of a checked signature is acceptable, so that a signature is not used twice. */
function keyOf(channel: string, header: string | null): string {
  const [, time = "", hex = ""] = SIGNATURE.exec(header ?? "") ?? [];
  return `${channel}:${time}:${hex.toLowerCase()}`;
}

/** Returns the refusal of a signature. */
function refused(reason: string) {
  return refuse("auth_invalid", `Cannot accept the signature: ${reason}`);
}

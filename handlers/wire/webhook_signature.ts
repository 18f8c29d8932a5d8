import { timingSafeEqual } from "node:crypto";
import { bodyHmac } from "../../lib/base/body_hmac.ts";
import { httpError } from "./error_codes.ts";

/** How far the signature's time may be from ours, both ways. */
export const SIGNATURE_WINDOW_SECONDS = 300;

const SIGNATURE = /^t=(\d{1,12}), ?sha256=([0-9a-fA-F]{64})$/;

export interface SignedBody {
  /** Header X-Postern-Signature: `t=<unix seconds>,sha256=<hex>` of `<t>.<body>` */
  readonly header: string | null;
  readonly body: Uint8Array;
  readonly secret: string;
  /** Milliseconds since the epoch */
  readonly now: number;
}

/**
 * Checks the HMAC of a webhook's raw body, in constant time.
 * @returns what to remember for as long as the signature's time is acceptable, so that it is not used twice
 * @throws {HttpError} 401 auth_invalid
 * Source: docs/design/automation.md "Channels"
 */
export function checkWebhookSignature(signed: SignedBody): string {
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
  return `${time}:${hex.toLowerCase()}`;
}

/** The refusal of a signature. */
export function refused(reason: string) {
  return httpError("auth_invalid", `Cannot accept the signature: ${reason}`);
}

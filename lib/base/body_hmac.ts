import { createHmac } from "node:crypto";

/** The header that signs a webhook's body, in both directions: `t=<unix seconds>,sha256=<hex>`. */
export const SIGNATURE_HEADER = "x-postern-signature";

/**
 * Returns the HMAC-SHA-256 of `<time>.<body>` under a channel's secret.
 * @param time unix seconds, as it is in the header
 */
export function bodyHmac(secret: string, time: string, body: string | Uint8Array): Uint8Array {
  return createHmac("sha256", secret).update(`${time}.`).update(body).digest();
}

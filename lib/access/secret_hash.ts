import { hash } from "node:crypto";

/**
 * SHA-256 of a secret, 43 characters of base64url: what is kept in its place.
 *
 * Records are found by this hash, so the time a look-up takes says nothing about the secret. For values of 40 random bits or
 * more; never for a password.
 */
export function secretHash(secret: string): string {
  return hash("sha256", secret, "base64url");
}

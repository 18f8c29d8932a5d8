import { hash } from "node:crypto";
import * as v from "valibot";
import { SCOPES } from "../base/records/caller.ts";

const bodySchema = v.object({
  v: v.literal(1),
  id: v.string(),
  /** SHA-256 of the token, base64url */
  hash: v.string(),
  label: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
  /** Seconds without a use after which the token counts no more. Absent: no such end, also in records of older versions */
  idle_ttl_seconds: v.optional(v.number()),
  /** Completions with it go to the model without the agent's own tools. Absent: they have them */
  plain: v.optional(v.literal(true)),
  last_used_at: v.nullable(v.string()),
});

/** A token as it is persisted. Times are ISO 8601. */
export type TokenBody = v.InferOutput<typeof bodySchema>;

/**
 * A persisted body as the newest form of a token: the one place where older versions are upcast.
 * @throws {v.ValiError} for a body that no version wrote
 */
export function parseTokenBody(body: unknown): TokenBody {
  return v.parse(bodySchema, body);
}

/**
 * SHA-256 of a secret, 43 characters of base64url: what is kept in its place.
 *
 * Records are found by this hash, so the time a look-up takes says nothing about the secret. For values of 40 random bits or
 * more; never for a password.
 */
export function secretHash(secret: string): string {
  return hash("sha256", secret, "base64url");
}

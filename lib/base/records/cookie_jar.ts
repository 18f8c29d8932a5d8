import * as v from "valibot";
import { storedObject } from "./stored_object.ts";

/** Collection of the cookies that the browsers of conversations keep, by conversation. */
export const COOKIE_JARS = "browser_cookies";

/** Cookie of a page. */
export const keptCookieSchema = v.strictObject({
  name: v.string(),
  value: v.string(),
  domain: v.string(),
  path: v.string(),
  /** Seconds since the epoch; -1: until the browser is closed */
  expires: v.number(),
  httpOnly: v.boolean(),
  secure: v.boolean(),
  sameSite: v.picklist(["Strict", "Lax", "None"]),
  partitionKey: v.exactOptional(v.string()),
});

/** Cookie of a page, as the browser tells it. */
export type KeptCookie = v.InferOutput<typeof keptCookieSchema>;

const bodySchema = storedObject({
  v: v.literal(1),
  sealed: storedObject({ key: v.string(), nonce: v.string(), data: v.string() }),
});

/** Parses a stored body. @throws {v.ValiError} for a body that no version wrote */
export function parseCookieJar(body: unknown): v.InferOutput<typeof bodySchema> {
  return v.parse(bodySchema, body);
}

/** Parses the opened text of a jar. @throws {v.ValiError} {SyntaxError} for a text that no version sealed */
export function parseCookies(text: string): readonly KeptCookie[] {
  return v.parse(v.array(keptCookieSchema), JSON.parse(text));
}

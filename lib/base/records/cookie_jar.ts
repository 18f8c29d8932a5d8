import * as v from "valibot";

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

/** Parses the opened text of a jar. @throws {v.ValiError} {SyntaxError} for a text that no version sealed */
export function parseCookies(text: string): readonly KeptCookie[] {
  return v.parse(v.array(keptCookieSchema), JSON.parse(text));
}

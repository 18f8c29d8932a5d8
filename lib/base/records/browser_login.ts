import * as v from "valibot";
import { keptCookieSchema } from "./cookie_jar.ts";

/** Values that pages of one origin keep in their local storage. */
const storedOriginSchema = v.strictObject({
  /** As `https://app.example.com:8443` */
  origin: v.string(),
  items: v.array(v.strictObject({ name: v.string(), value: v.string() })),
});
/** Values of the local storage of one origin. */
export type StoredOrigin = v.InferOutput<typeof storedOriginSchema>;

/** Cookies and stored values of a login, with the hosts that they are for. */
export const loginStateSchema = v.strictObject({
  /** Hosts that the login counts for, with those below each; the site comes first */
  hosts: v.pipe(v.array(v.string()), v.minLength(1), v.maxLength(20)),
  cookies: v.array(keptCookieSchema),
  storage: v.array(storedOriginSchema),
});
/** Cookies and stored values of a login. */
export type LoginState = v.InferOutput<typeof loginStateSchema>;

const keptLoginSchema = v.strictObject({ ...loginStateSchema.entries, created_at: v.string() });
/** Login as its record holds it, sealed. `created_at` is ISO 8601. */
export type KeptLogin = v.InferOutput<typeof keptLoginSchema>;

/** Parses the opened text of a login. @throws {v.ValiError} {SyntaxError} for a text that no version sealed */
export function parseKeptLogin(text: string): KeptLogin {
  return v.parse(keptLoginSchema, JSON.parse(text));
}

/** A login without its values, as `/v1/browser-logins` shows it. Times are ISO 8601. */
export const browserLoginSchema = v.object({
  id: v.string(),
  object: v.literal("browser_login"),
  /** Host that the person signed in at: the name that `[browser] logins` takes */
  site: v.string(),
  /** Empty for a login that cannot be read */
  hosts: v.array(v.string()),
  cookies: v.number(),
  /** Values of local storage */
  stored_values: v.number(),
  created_at: v.nullable(v.string()),
  /** When the last cookie ends. Null: no end is known, as for a cookie without one */
  expires_at: v.nullable(v.string()),
  state: v.picklist(["kept", "expired", "unreadable"]),
  /** Why it cannot be used; null when it can */
  reason: v.nullable(v.string()),
  /** True when `[browser] logins` names the site, so that runs get it */
  used_by_runs: v.boolean(),
});
/** Login without its values. */
export type BrowserLogin = v.InferOutput<typeof browserLoginSchema>;

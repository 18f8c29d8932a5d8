import * as v from "valibot";
import { storedObject } from "../base/records/stored_object.ts";
import { Collection } from "../storage/read_records.ts";

const sealedSchema = storedObject({
  v: v.literal(1),
  sealed: storedObject({ key: v.string(), nonce: v.string(), data: v.string() }),
});

/** Collection of the logins that people gave the agent's browser, by site. */
export const BROWSER_LOGINS = new Collection("browser_logins", sealedSchema);
/** Collection of the cookies that the browsers of conversations keep, by conversation. */
export const COOKIE_JARS = new Collection("browser_cookies", sealedSchema);

import { isRecord } from "../../lib/base/json.ts";
import type { AssistantMessage } from "../../lib/base/records/message.ts";
import { parseJsonBytes } from "./read_json.ts";

/** Beginning of a text that this gateway made: its fields follow, as JSON in base64url. */
const SEAL = "postern.";
/** Field of a message that a vendor wants its own parts of reasoning back in. */
const DETAILS = "reasoning_details";

type Fields = Readonly<Record<string, unknown>>;

/** Returns fields as one text, for a client that hands it back untouched: the vendor's fields of reasoning, or a summary. */
export function seal(fields: Fields): string {
  return SEAL + Buffer.from(JSON.stringify(fields)).toString("base64url");
}

/** Tells whether this gateway made a text by `seal`. */
export function isSealed(text: unknown): text is string {
  return typeof text === "string" && text.startsWith(SEAL);
}

/** Returns the fields of a sealed text. Attack: nothing vouches for it, so it is read as a part of the body would be. */
export function openSeal(text: string | null | undefined): Fields | undefined {
  if (!isSealed(text)) return undefined;
  try {
    const fields = parseJsonBytes(Buffer.from(text.slice(SEAL.length), "base64url"));
    return isRecord(fields) ? fields : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the parts of reasoning in opened fields that one provider gave, and none but it gets; undefined: there are none. */
export function ownedThought(fields: Fields | undefined): AssistantMessage["opaque"] {
  const { provider, [DETAILS]: details } = fields ?? {};
  if (typeof provider !== "string" || !Array.isArray(details)) return undefined;
  return { [provider]: { message: { [DETAILS]: details } } };
}

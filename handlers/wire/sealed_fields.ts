import { refuse } from "../../lib/base/errors.ts";
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

/** Most broken sealed texts of one body. */
const MAX_BROKEN = 100;

/** Opens the sealed texts of one body. Attack: each broken one takes the time of an error, and a body has room for 100,000 of them. */
export class Seals {
  #broken = 0;

  /** Returns the fields of a sealed text; undefined for a broken one, and for any other text. @throws {HttpError} 400 invalid_request */
  open(text: string | null | undefined): Fields | undefined {
    const fields = openSeal(text);
    if (fields === undefined && isSealed(text) && ++this.#broken > MAX_BROKEN) {
      throw refuse(
        "invalid_request",
        `Cannot read this body: more than ${MAX_BROKEN} of its texts that begin with "${SEAL}" are broken; send them as they came, or leave them out`,
      );
    }
    return fields;
  }
}

/** Returns the parts of reasoning in opened fields that one provider gave, and none but it gets; undefined: there are none. */
export function ownedThought(fields: Fields | undefined): AssistantMessage["opaque"] {
  const { provider, [DETAILS]: details } = fields ?? {};
  if (typeof provider !== "string" || !Array.isArray(details)) return undefined;
  return { [provider]: { message: { [DETAILS]: details } } };
}

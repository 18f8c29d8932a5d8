import { type CompletionMessage, IMAGE_URL } from "./completion_body.ts";
import { httpError } from "./http_errors.ts";

/** Types of content parts that the gateway knows in either mode. */
const KNOWN_PARTS: ReadonlySet<string> = new Set(["text", "image_url", "input_audio", "file", "refusal"]);
/** Names of fields with an address in a part: `url`, `image_url`, `fileUrl`. */
const ADDRESS_FIELD = /(?:^|_)url$|Url$/;

/**
 * Checks content parts of types that the gateway does not know. In plain mode they go to the model as they came, except one with an
 * address that a model server would read from its own disk. Where the agent's tools are on, they are refused.
 * @throws {HttpError} 400 `invalid_request` naming the part
 */
export function checkParts(messages: readonly CompletionMessage[], { plain }: { readonly plain: boolean }): void {
  for (let i = 0; i < messages.length; i++) {
    const content = messages[i]?.content;
    if (typeof content === "string" || !content) continue;
    for (let j = 0; j < content.length; j++) {
      const part = content[j];
      if (part === undefined || KNOWN_PARTS.has(part.type)) continue;
      const place = `messages[${i}].content[${j}]`;
      if (!plain) throw unknownPart(`${place}.type`, part.type);
      checkAddresses(part, place);
    }
  }
}

/** Checks the address fields of a part and of all objects in it. A body's depth is bounded, and so is the recursion. */
function checkAddresses(value: object, place: string): void {
  for (const [key, member] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${place}[${key}]` : `${place}.${key.slice(0, MAX_SHOWN)}`;
    if (typeof member === "object" && member !== null) checkAddresses(member, at);
    else if (typeof member === "string" && ADDRESS_FIELD.test(key) && !IMAGE_URL.test(member)) {
      throw httpError("invalid_request", `Cannot accept "${at}": expected an http, https or data URL`, { param: at });
    }
  }
}

function unknownPart(param: string, type: string) {
  const shown = JSON.stringify(type.slice(0, MAX_SHOWN));
  return httpError(
    "invalid_request",
    `Cannot accept "${param}" ${shown}: with the agent's tools on, the types are ${
      [...KNOWN_PARTS].join(", ")
    }; the header ` +
      '"x-postern-tools: none" or the model "plain/<id>" passes other parts on to the model',
    { param },
  );
}

const MAX_SHOWN = 64;

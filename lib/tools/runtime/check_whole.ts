import { Buffer } from "node:buffer";
import type { KnownSecrets } from "../../base/redact.ts";
import { firstBytes } from "../../base/text.ts";
import { checkPicture } from "./check_pictures.ts";
import { boundData, MAX_OUTPUT_BYTES } from "./run_call.ts";
import type { WholeResult } from "./tool_call.ts";
import { type EmbeddedContent, labelOf, MAX_PARTS, type ToolContent } from "./tool_content.ts";

/** Bytes of all parts of one result that are no text. */
const MAX_BINARY_BYTES = 8_388_608;
/** Characters of base64 that are decoded at most: more is over the bound in any case. */
const MAX_BASE64 = Math.ceil(MAX_BINARY_BYTES / 3) * 4;

/**
 * Checks a result in its parts, for a caller that takes more than text: bounded in number and in bytes, known secrets masked. A part that
 * may not be given is replaced with a line that says why.
 */
export async function checkWhole({ content, structured }: WholeResult, known: KnownSecrets): Promise<WholeResult> {
  const checker = new PartChecker(known);
  const checked: ToolContent[] = [];
  for (const part of content.slice(0, MAX_PARTS)) checked.push(await checker.check(part));
  const rest = content.length - MAX_PARTS;
  if (rest > 0) checked.push({ type: "text", text: `[${rest} further parts of the result are left out]` });
  const data = structured === undefined ? undefined : boundData(structured, known.redact);
  return { content: checked, ...(data === undefined ? {} : { structured: data }) };
}

/** Checker of the parts of one result, one after the other: their bytes count together. */
class PartChecker {
  readonly #known: KnownSecrets;
  #text = MAX_OUTPUT_BYTES;
  #binary = MAX_BINARY_BYTES;

  constructor(known: KnownSecrets) {
    this.#known = known;
  }

  async check(part: ToolContent): Promise<ToolContent> {
    switch (part.type) {
      case "text":
        return { type: "text", text: this.#take(part.text) };
      case "image":
        return await this.#image(part);
      case "audio": {
        const bytes = this.#decode(part.data);
        if (typeof bytes === "string") return leftOut("audio", bytes);
        return { type: "audio", data: bytes.toString("base64"), mimeType: this.#label(part.mimeType) };
      }
      case "resource":
        return this.#resource(part.resource);
      case "resource_link": {
        const { uri, name, title, description, mimeType, size } = part;
        return {
          type: "resource_link",
          uri: this.#label(uri),
          name: this.#label(name),
          ...(title === undefined ? {} : { title: this.#label(title) }),
          ...(description === undefined ? {} : { description: this.#label(description) }),
          ...(mimeType === undefined ? {} : { mimeType: this.#label(mimeType) }),
          ...(size === undefined ? {} : { size }),
        };
      }
    }
  }

  async #image({ data }: { readonly data: string }): Promise<ToolContent> {
    const bytes = this.#decode(data);
    const checked = typeof bytes === "string" ? bytes : await checkPicture({ bytes }, this.#known);
    if (typeof bytes === "string" || typeof checked === "string") return leftOut("picture", String(checked));
    // The bytes say what it is, whatever the tool says
    return { type: "image", data: bytes.toString("base64"), mimeType: checked.picture.media_type };
  }

  #resource(resource: EmbeddedContent): ToolContent {
    const { mimeType } = resource;
    const about = {
      uri: this.#label(resource.uri),
      ...(mimeType === undefined ? {} : { mimeType: this.#label(mimeType) }),
    };
    if ("text" in resource) return { type: "resource", resource: { ...about, text: this.#take(resource.text) } };
    const bytes = this.#decode(resource.blob);
    if (typeof bytes === "string") return leftOut(`resource ${about.uri}`, bytes);
    return { type: "resource", resource: { ...about, blob: bytes.toString("base64") } };
  }

  /** Returns a text without its secrets, and as much of it as the result has room for. */
  #take(text: string): string {
    const masked = this.#known.redact(text);
    const given = firstBytes(masked, this.#text);
    this.#text -= Buffer.byteLength(given);
    return given === masked ? given : `${given}\n[Cut: a result has at most ${MAX_OUTPUT_BYTES} bytes of text]`;
  }

  /** @returns the bytes, or why they are left out */
  #decode(base64: string): Buffer | string {
    const bytes = base64.length > MAX_BASE64 ? undefined : Buffer.from(base64, "base64");
    if (bytes === undefined || bytes.length > this.#binary) {
      return `the parts of a result that are no text have at most ${MAX_BINARY_BYTES} bytes`;
    }
    const masked = this.#known.part.redact(bytes, { from: 0, to: bytes.length });
    if (Buffer.compare(masked, bytes) !== 0) return "it holds a secret";
    this.#binary -= bytes.length;
    return bytes;
  }

  #label(words: string): string {
    return labelOf(this.#known.redact(words));
  }
}

function leftOut(what: string, why: string): ToolContent {
  return { type: "text", text: `[A ${what} was left out: ${why}]` };
}

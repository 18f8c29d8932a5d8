import { mediaTypeOf } from "../base/media_type.ts";
import type { Message, Picture, ToolMessage } from "../base/records/message.ts";
import { textOf } from "../base/records/message.ts";

/** A picture that a request carries. */
export interface ShownPicture extends Picture {
  readonly base64: string;
}

/** Names of the media types for people and models. */
const NAMES: Readonly<Record<Picture["media_type"], string>> = {
  "image/png": "PNG",
  "image/jpeg": "JPEG",
  "image/webp": "WebP",
  "image/gif": "GIF",
};

/** Tells whether a message is a tool result with pictures. */
export function hasPictures(message: Message): message is ToolMessage {
  return message.role === "tool" && message.pictures !== undefined;
}

/** Returns a picture in words, such as `A picture (PNG, 800 x 600 pixels, saved as "a.png")`. */
export function describePicture({ media_type, width, height, saved_as }: Picture): string {
  const place = saved_as === undefined ? "" : `, saved as ${JSON.stringify(saved_as)}`;
  return `A picture (${NAMES[media_type]}, ${width} x ${height} pixels${place})`;
}

/**
 * Parts a tool result into the pictures that the request carries and a plain result, whose text tells of all others.
 * @param pictures as in ProviderRequest
 */
export function splitPictures(
  message: ToolMessage,
  pictures: ReadonlyMap<string, string> | undefined,
): { readonly shown: readonly ShownPicture[]; readonly plain: ToolMessage } {
  const { pictures: all, frame: _, ...plain } = message;
  if (all === undefined) return { shown: [], plain };
  const shown: ShownPicture[] = [];
  const lines: string[] = [];
  for (const picture of all) {
    const base64 = pictures?.get(picture.sha256);
    if (base64 !== undefined) shown.push({ ...picture, base64 });
    else lines.push(`[Postern] ${describePicture(picture)} is not shown: ${reasonHidden(pictures)}.`);
  }
  if (lines.length === 0) return { shown, plain };
  return { shown, plain: { ...plain, content: [textOf(plain.content), ...lines].join("\n") } };
}

function reasonHidden(pictures: ReadonlyMap<string, string> | undefined): string {
  return pictures === undefined ? "this model is not given pictures" : "it is too old, and not kept any more";
}

/** Characters of base64 that hold the longest beginning. */
const BEGINNING = 24;

/**
 * Reads a `data:` URL of base64 in any spelling. The content decides on its type, since labels are often wrong and some vendors refuse
 * those; an unknown content is what its label says.
 * @returns undefined for any other URL
 */
export function readDataUrl(url: string): { readonly media_type: string; readonly data: string } | undefined {
  const comma = url.indexOf(",");
  const [type = "", ...more] = url.slice(0, comma).toLowerCase().split(";").map((part) => part.trim());
  if (!type.startsWith("data:") || !more.includes("base64")) return undefined;
  const data = url.slice(comma + 1);
  const found = mediaTypeOf(Buffer.from(data.slice(0, BEGINNING), "base64"));
  const label = type.slice("data:".length);
  return { media_type: found ?? (label === "image/jpg" ? "image/jpeg" : label), data };
}

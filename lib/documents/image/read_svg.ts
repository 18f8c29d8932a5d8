import { DocumentError } from "../document_error.ts";
import { attribute, readMarkup } from "../parse_xml.ts";
import type { ByteSource } from "./byte_source.ts";
import { damaged, type ImageProperties } from "./image_properties.ts";

/** The root element must stand in the first bytes */
const HEAD_BYTES = 65_536;
/** CSS pixels by unit */
const PIXELS: Readonly<Record<string, number>> = {
  "": 1,
  px: 1,
  pt: 4 / 3,
  pc: 16,
  in: 96,
  cm: 96 / 2.54,
  mm: 96 / 25.4,
};

/** Reads the size of an SVG off its root element; nothing else of it is read. @returns undefined when it is no SVG */
export async function readSvg(source: ByteSource): Promise<ImageProperties | undefined> {
  const head = await source.part(0, Math.min(source.size, HEAD_BYTES));
  const root = readRoot(new TextDecoder().decode(head));
  if (root === undefined) return undefined;
  const box = (attribute(root, "viewBox") ?? "").trim().split(/[\s,]+/, 5).map(Number);
  const [, , boxWidth, boxHeight] = box.length === 4 && box.every(Number.isFinite) ? box : [];
  const width = lengthOf(attribute(root, "width"), boxWidth);
  const height = lengthOf(attribute(root, "height"), boxHeight);
  return { format: "SVG", width, height, alpha: true };
}

function readRoot(text: string): { readonly attributes: string } | undefined {
  let at = 0;
  for (;;) {
    // Only markup and white space may stand before the root
    const start = /[^\s\ufeff]/g;
    start.lastIndex = at;
    at = start.exec(text)?.index ?? text.length;
    if (text[at] !== "<") return undefined;
    try {
      const markup = readMarkup(text, at);
      if (markup.kind === "open") return /^([\w.-]+:)?svg$/.test(markup.name) ? markup : undefined;
      if (markup.kind !== "skipped" && markup.kind !== "doctype") return undefined;
      at = markup.end;
    } catch (error) {
      if (error instanceof DocumentError && /<([\w.-]+:)?svg[\s>]/.test(text)) {
        throw damaged("its root element does not end");
      }
      return undefined;
    }
  }
}

/** A length in pixels; one in percent, or none, is that of the view box. */
function lengthOf(text: string | undefined, boxLength: number | undefined): number | undefined {
  const [, digits, unit = ""] = /^(\d{0,9}(?:\.\d{1,9})?)\s*([a-z]{2})?$/i.exec(text?.slice(0, 100).trim() ?? "") ?? [];
  const pixels = digits === undefined || digits === "" ? undefined : PIXELS[unit.toLowerCase()];
  if (pixels !== undefined) return Math.round(Number(digits) * pixels * 100) / 100;
  return boxLength !== undefined && boxLength > 0 ? boxLength : undefined;
}

import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import { shown } from "../../system/files/parse_path.ts";
import { readScope } from "../files/file_scope.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { MAX_PICTURE_BYTES } from "../runtime/tool_content.ts";
import { DocumentError } from "../../documents/document_error.ts";
import type { ImageProperties } from "../../documents/image/image_properties.ts";

const loadReader = lazily(() =>
  Promise.all([import("../../documents/image/read_image.ts"), import("../../documents/image/byte_source.ts")])
);

/** `image_info`: reads the properties in the header of an image (docs/design/tools.md "Files"). */
export const imageInfo = defineTool({
  name: "image_info",
  description:
    "Tells format, size, colours, frames and EXIF data of an image (PNG, JPEG, GIF, WebP, AVIF, HEIC, SVG, TIFF, BMP, ICO, PSD)",
  access: "read",
  enabled: "always",
  needs: ["files"],
  input: v.strictObject({
    path: v.pipe(v.string(), v.minLength(1), v.description("Relative to the allowed root")),
    show: v.optional(
      v.pipe(v.boolean(), v.description("Shows you the picture")),
    ),
  }),
  textField: "path",
  effects: ({ path }) => ({ root: "read_file", paths: [path] }),
  async run({ path, show = false }, context) {
    const file = await context.services.files.open(path, readScope(context));
    try {
      const [{ readImage }, { fileSource }] = await loadReader();
      const image = await readImage(fileSource(file, context));
      const result = {
        output: describe(image, file.size),
        isError: false,
        data: toData(image, { path, size: file.size }),
      };
      if (!show) return result;
      const refusal = context.sees
        ? file.size > MAX_PICTURE_BYTES ? `it has more than ${MAX_PICTURE_BYTES} bytes` : undefined
        : "this model is not given pictures ([provider] vision)";
      if (refusal !== undefined) {
        return { ...result, output: `${result.output}\n[The picture is not shown: ${refusal}]` };
      }
      const bytes = new Uint8Array(file.size);
      const read = await file.read(bytes, 0);
      return { ...result, pictures: [{ bytes: bytes.subarray(0, read), savedAs: path }] };
    } catch (error) {
      if (!(error instanceof DocumentError)) throw error;
      throw new ToolError(error.code, `Cannot read ${shown(path)}: ${error.message}`, { cause: error });
    } finally {
      await file.close();
    }
  },
});

/** Names of the pictures in a file, where they are no frames of an animation */
const FRAMES: Readonly<Partial<Record<ImageProperties["format"], string>>> = { TIFF: "pages", ICO: "pictures" };

/** Returns a line `name: value` for each property. */
function describe(image: ImageProperties, size: number): string {
  const { width, height, bitsPerSample, colour, alpha, frames, sizes, dpi, exif = {} } = image;
  const turned = exif.orientation !== undefined && exif.orientation > 1;
  const sideways = turned && (exif.orientation ?? 0) > 4;
  const pixels = width === undefined || height === undefined ? "unknown" : `${width} x ${height} pixels`;
  const lines: readonly (readonly [name: string, value: unknown])[] = [
    ["format", image.format],
    ["size", pixels],
    ["shown", sideways ? `turned, as ${height} x ${width} pixels` : turned ? "turned" : undefined],
    ["file size", `${size} bytes`],
    [
      "colours",
      colour === undefined ? undefined : `${colour}${bitsPerSample === undefined ? "" : `, ${bitsPerSample} bits`}`,
    ],
    ["transparency", alpha === undefined ? undefined : alpha ? "yes" : "no"],
    [FRAMES[image.format] ?? "frames", frames === undefined || frames === 1 ? undefined : frames],
    ["sizes", sizes?.map(([across, down]) => `${across} x ${down}`).join(", ")],
    ["density", dpi === undefined ? undefined : `${dpi[0]} x ${dpi[1]} dpi`],
    ...Object.entries(exif).map(([name, value]) => [name.replaceAll("_", " "), value] as const),
  ];
  return lines.filter(([, value]) => value !== undefined).map(([name, value]) => `${name}: ${value}`).join("\n");
}

function toData(image: ImageProperties, file: { readonly path: string; readonly size: number }): unknown {
  const { format, width = null, height = null, bitsPerSample = null, colour = null, alpha = null } = image;
  const { frames = null, sizes, dpi = null, exif = null } = image;
  const properties = { format, width, height, bits_per_sample: bitsPerSample, colour, alpha, frames, dpi, exif };
  return { ...file, ...properties, ...(sizes === undefined ? {} : { sizes }) };
}

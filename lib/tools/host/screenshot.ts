import * as v from "valibot";
import { lazily } from "../../base/lazily.ts";
import { ToolError } from "../../base/errors.ts";
import { DocumentError } from "../../documents/document_error.ts";
import type { ImageProperties } from "../../documents/image/image_properties.ts";
import { shown } from "../../system/files/parse_path.ts";
import { writeScope } from "../files/file_scope.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";

/** More than all programs for one session may take together. */
const TIMEOUT_MS = 120_000;
/** Last chunk of each PNG, without its length and checksum. */
const PNG_END = "IEND";

const images = lazily(() =>
  Promise.all([import("../../documents/image/read_image.ts"), import("../../documents/image/byte_source.ts")])
);

/** `screenshot`: takes the screen of the gateway's desktop session (docs/design/tools.md "The machine"). */
export const screenshot = defineTool({
  name: "screenshot",
  description: "Saves a picture of the user's whole screen as a PNG. Replaces an existing file only with overwrite",
  access: "write",
  enabled: "always",
  timeoutMs: () => TIMEOUT_MS,
  needs: ["files", "desktop"],
  input: v.strictObject({
    filename: v.pipe(v.string(), v.minLength(1), v.description("PNG file, relative to the allowed root")),
    overwrite: v.optional(v.pipe(v.boolean(), v.description("Replaces an existing file. Default false"))),
  }),
  textField: "filename",
  check({ filename }) {
    if (/[^/]\.png$/i.test(filename)) return;
    throw new ToolError("invalid_input", 'Cannot call "screenshot": "filename" must end with ".png"');
  },
  effects: ({ filename }) => ({ root: "write_file", paths: [filename] }),
  screen: async (input, context) => void await requirePlace(input, context),
  async run({ filename, overwrite = false }, context) {
    const { services: { files, desktop }, signal } = context;
    // Before the screen is taken, so that no picture is taken for nothing
    const expected = await requirePlace({ filename, overwrite }, context);
    const { bytes, program } = await desktop.takeScreen({ signal });
    const { width, height } = await readPng(bytes, program);
    await files.change([{ kind: "write", path: filename, content: bytes, expected }], writeScope(context), { signal });
    return {
      output: `Saved the screen to ${
        shown(filename)
      }: ${width} x ${height} pixels, ${bytes.length} bytes, by ${program}`,
      isError: false,
      data: { path: filename, bytes: bytes.length, width, height, program, created: expected === undefined },
      // Anybody's page may stand on the screen
      ...context.sees ? { pictures: [{ bytes, savedAs: filename }], taint: ["screenshot"] } : {},
    };
  },
});

/** @returns version of the file that is replaced; undefined when there is none */
async function requirePlace(
  { filename, overwrite = false }: { readonly filename: string; readonly overwrite?: boolean | undefined },
  context: Pick<ContextWith<"files">, "services" | "workspaceRoot" | "allowSensitiveFileWrites" | "config">,
): Promise<string | undefined> {
  const { file } = await context.services.files.inspect(filename, writeScope(context), { maxBytes: undefined });
  if (file === undefined || overwrite) return file?.version;
  throw new ToolError("file_exists", `Cannot write ${shown(filename)}: it exists; "overwrite": true replaces it`);
}

/** Reads the header of a whole PNG. @throws {ToolError} `screen_invalid` for everything else */
async function readPng(bytes: Uint8Array, program: string): Promise<Pick<ImageProperties, "width" | "height">> {
  const [{ readImage }, { asciiOf, memorySource }] = await images();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const invalid = (cause?: unknown) =>
    new ToolError("screen_invalid", `Cannot take the screen: what ${program} wrote is no whole PNG`, { cause });
  try {
    const image = await readImage(memorySource(view));
    if (image.format === "PNG" && asciiOf(view, bytes.length - 8, 4) === PNG_END) return image;
  } catch (error) {
    throw error instanceof DocumentError ? invalid(error) : error;
  }
  throw invalid();
}

import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { systemCodeOf } from "../../base/errors.ts";
import { isTakenToolName, MANIFEST_NAME, NO_DIGEST, parsePluginManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";

/** Kinds of plugins that `postern plugin new` writes: each has a folder in `scaffolds/` with all its files but the manifest. */
export const SCAFFOLD_KINDS = [
  "wasm-rust",
  "wasm-go",
  "wasm-assemblyscript",
  "process-node",
  "process-python",
  "ffi-c",
] as const;
/** Kind of a plugin that `postern plugin new` writes. */
export type ScaffoldKind = typeof SCAFFOLD_KINDS[number];

const FOLDER = fileURLToPath(new URL("./scaffolds/", import.meta.url));
/** End of the name of each template, so that no tool takes one for a file of this project: npm packs no `.gitignore`, Deno checks `index.ts` */
const ENDING = ".template";

const WASM = { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } };
/** Fields of the manifest that differ by kind. */
const MANIFEST_PARTS: Readonly<Record<ScaffoldKind, (tool: string) => Readonly<Record<string, unknown>>>> = {
  "wasm-rust": () => WASM,
  "wasm-go": () => WASM,
  "wasm-assemblyscript": () => WASM,
  "process-node": () => ({ kind: "process", process: { command: "node", args: ["main.mjs"] } }),
  "process-python": () => ({ kind: "process", process: { command: "python3", args: ["main.py"] } }),
  "ffi-c": (tool) => ({ kind: "ffi", ffi: { library: "plugin.so", sha256: NO_DIGEST, symbol: tool } }),
};

/**
 * Writes the files of a new plugin, which can be built, tested and packaged as its README says.
 * @param options.folder absolute path of the folder to make, which must not be there
 * @throws {ExtensionError} `manifest_invalid` for an id that no plugin can have, `tool_name_taken`, `plugin_conflict` for a folder that is there
 */
export async function writeScaffold(
  { id, kind, folder }: { readonly id: string; readonly kind: ScaffoldKind; readonly folder: string },
): Promise<void> {
  const files = await scaffoldFiles(id, kind);
  try {
    await mkdir(folder);
  } catch (cause) {
    const reason = isCode(cause, "EEXIST") ? "it is there already; remove it, or choose another id" : String(cause);
    throw new ExtensionError("plugin_conflict", `Cannot make the folder ${JSON.stringify(folder)}: ${reason}`, {
      cause,
    });
  }
  try {
    for (const [path, text] of files) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), text, { flag: "wx" });
    }
  } catch (error) {
    // Half a plugin helps nobody
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Returns the texts of the files of a new plugin by their paths in its folder. @throws {ExtensionError} as `writeScaffold` */
async function scaffoldFiles(id: string, kind: ScaffoldKind): Promise<ReadonlyMap<string, string>> {
  const plain = id.replaceAll("-", "_");
  const tool = /^[a-z]/.test(plain) ? plain : `tool_${plain}`;
  if (isTakenToolName(tool)) {
    const message = `Cannot make the plugin "${id}": "${tool}" is the name of a built-in tool; choose another id`;
    throw new ExtensionError("tool_name_taken", message);
  }
  const manifest = scaffoldManifest(id, tool, MANIFEST_PARTS[kind](tool));
  parsePluginManifest(manifest);
  const files = new Map([[MANIFEST_NAME, manifest]]);
  const templates = join(FOLDER, kind);
  for (const entry of await readdir(templates, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith(ENDING)) continue;
    const path = join(entry.parentPath, entry.name);
    files.set(
      relative(templates, path).slice(0, -ENDING.length),
      fillTemplate(await readFile(path, "utf8"), { id, tool }),
    );
  }
  return files;
}

/** Returns the text of a manifest with one tool. */
function scaffoldManifest(id: string, tool: string, part: Readonly<Record<string, unknown>>): string {
  const document = {
    id,
    version: "0.1.0",
    description: "Says what it was given",
    ...part,
    tools: [{
      name: tool,
      description: "Returns the text in capital letters.",
      input_schema: {
        type: "object",
        properties: { text: { type: "string", description: "Text to write in capital letters" } },
        required: ["text"],
        additionalProperties: false,
      },
    }],
    capabilities: { workspace: "none", hosts: [] },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** Returns a template with its values, each in place of `{{name}}`. @throws {Error} a name without a value */
export function fillTemplate(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{\{([^{}]*)\}\}/g, (placeholder, name: string) => {
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    if (value === undefined) {
      throw new Error(
        `Cannot fill a template: no value is named ${placeholder}; known are ${Object.keys(values).join(", ")}`,
      );
    }
    return value;
  });
}

function isCode(error: unknown, code: string): boolean {
  return systemCodeOf(error) === code;
}

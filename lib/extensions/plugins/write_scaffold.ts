import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { assemblyscriptScaffold } from "./assemblyscript_scaffold.ts";
import { goScaffold } from "./go_scaffold.ts";
import { isTakenToolName, MANIFEST_NAME, parsePluginManifest } from "./manifest.ts";
import { PluginError } from "./plugin_error.ts";
import { PROGRAM_SCAFFOLDS } from "./program_scaffolds.ts";
import { rustScaffold } from "./rust_scaffold.ts";
import type { MakeScaffold, ScaffoldFiles, ScaffoldKind } from "./scaffold_files.ts";

/** Makers of new plugins by their kinds. */
const SCAFFOLDS: Readonly<Record<ScaffoldKind, MakeScaffold>> = {
  ...PROGRAM_SCAFFOLDS,
  "wasm-rust": rustScaffold,
  "wasm-go": goScaffold,
  "wasm-assemblyscript": assemblyscriptScaffold,
};

/**
 * Writes the files of a new plugin, which can be built, tested and packaged as its README says.
 * @param options.folder absolute path of the folder to make, which must not be there
 * @throws {PluginError} `manifest_invalid` for an id that no plugin can have, `tool_name_taken`, `plugin_conflict` for a folder that is there
 */
export async function writeScaffold(
  { id, kind, folder }: { readonly id: string; readonly kind: ScaffoldKind; readonly folder: string },
): Promise<void> {
  const files = scaffoldFiles(id, kind);
  try {
    await mkdir(folder);
  } catch (cause) {
    const reason = isCode(cause, "EEXIST") ? "it is there already; remove it, or choose another id" : String(cause);
    throw new PluginError("plugin_conflict", `Cannot make the folder ${JSON.stringify(folder)}: ${reason}`, { cause });
  }
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), text, { flag: "wx" });
    }
  } catch (error) {
    // Half a plugin helps nobody
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Returns the files of a new plugin. @throws {PluginError} as `writeScaffold` */
export function scaffoldFiles(id: string, kind: ScaffoldKind): ScaffoldFiles {
  const plain = id.replaceAll("-", "_");
  const tool = /^[a-z]/.test(plain) ? plain : `tool_${plain}`;
  if (isTakenToolName(tool)) {
    const message = `Cannot make the plugin "${id}": "${tool}" is the name of a built-in tool; choose another id`;
    throw new PluginError("tool_name_taken", message);
  }
  const files = SCAFFOLDS[kind]({ id, tool });
  parsePluginManifest(files[MANIFEST_NAME] ?? "");
  return files;
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

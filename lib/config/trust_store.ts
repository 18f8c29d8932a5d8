import { hash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { ConfigError, systemCodeOf } from "../base/errors.ts";
import { writeAtomically } from "../base/durable_files.ts";

const storeSchema = v.object({
  version: v.literal(1),
  trusted: v.array(v.object({ path: v.string(), sha256: v.string(), accepted_at: v.string() })),
});

/** `changed`: the path was accepted, but with another content. */
export type Trust = "trusted" | "changed" | "unknown";

/** Tells whether the user accepted this file, by its real path and the SHA-256 of its text. @throws {ConfigError} `trust_store` */
export async function readTrust(
  dataDir: string,
  file: { readonly path: string; readonly text: string },
): Promise<Trust> {
  const entry = (await readStore(dataDir)).trusted.find(({ path }) => path === file.path);
  if (entry === undefined) return "unknown";
  return entry.sha256 === digest(file.text) ? "trusted" : "changed";
}

/**
 * Accepts a file, in place of an earlier content of the same path.
 * @param options.now milliseconds since the epoch
 * @throws {ConfigError} `trust_store`
 */
export async function acceptFile(
  dataDir: string,
  file: { readonly path: string; readonly text: string },
  options: { readonly now: number },
): Promise<void> {
  const store = await readStore(dataDir);
  const entry = { path: file.path, sha256: digest(file.text), accepted_at: new Date(options.now).toISOString() };
  const trusted = [...store.trusted.filter(({ path }) => path !== file.path), entry];
  await writeAtomically(trustStorePath(dataDir), `${JSON.stringify({ version: 1, trusted }, null, 2)}\n`);
}

/** Returns the accepted files, the one accepted last at the end. @throws {ConfigError} `trust_store` */
export async function acceptedFiles(
  dataDir: string,
): Promise<readonly { readonly path: string; readonly sha256: string; readonly accepted_at: string }[]> {
  return (await readStore(dataDir)).trusted;
}

async function readStore(dataDir: string): Promise<v.InferOutput<typeof storeSchema>> {
  const path = trustStorePath(dataDir);
  try {
    return v.parse(storeSchema, JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    if (systemCodeOf(cause) === "ENOENT") return { version: 1, trusted: [] };
    const reason = "it cannot be read; remove it to accept the files again with postern trust";
    throw new ConfigError("trust_store", `Cannot use the list of accepted files "${path}": ${reason}`, {
      file: path,
      cause,
    });
  }
}

/** The list of accepted files. */
export function trustStorePath(dataDir: string): string {
  return join(dataDir, "trusted_configs.json");
}

function digest(text: string): string {
  return hash("sha256", text);
}

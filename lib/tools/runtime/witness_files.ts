import { hash } from "node:crypto";
import { basename, resolve } from "node:path";
import type { Files } from "../../system/files/files.ts";
import { isInstructionFile } from "../../system/files/forbidden_paths.ts";

/** Digests of the files that instruct agents, as one call was given them: SHA-256, hexadecimal, by absolute path. */
export type WitnessedFiles = Map<string, string>;

/** Stands for a file that was given in two versions: nobody trusts it. */
const TWO_VERSIONS = "two versions";

/**
 * Returns the files service for one call, which notes the digests of the files that instruct agents. Such a file is read once, as a whole:
 * the digest is that of the bytes that the call is given, whatever somebody writes meanwhile. One that is too large to be trusted is not
 * noted.
 */
export function witnessFiles(files: Files, seen: WitnessedFiles): Files {
  return {
    ...files,
    async open(path, scope) {
      const file = await files.open(path, scope);
      if (!isInstructionFile(basename(path))) return file;
      const { MAX_TRUSTED_TEXT } = await import("../../guard/trusted_documents.ts");
      const buffer = new Uint8Array(MAX_TRUSTED_TEXT + 1);
      try {
        const size = await file.read(buffer, 0);
        if (size > MAX_TRUSTED_TEXT) return file;
        const bytes = buffer.subarray(0, size);
        const digest = hash("sha256", bytes);
        const place = resolve(scope.workspaceRoot, scope.allowedRoot, path);
        seen.set(place, (seen.get(place) ?? digest) === digest ? digest : TWO_VERSIONS);
        return {
          ...file,
          size,
          read(into, position) {
            const part = bytes.subarray(position, position + into.length);
            into.set(part);
            return Promise.resolve(part.length);
          },
        };
      } catch (error) {
        await file.close();
        throw error;
      }
    },
  };
}

import { createHash, hash } from "node:crypto";
import { basename, relative, resolve, sep } from "node:path";
import type { WrittenFile } from "../../base/records/agent_event.ts";
import type { ContentSource, FileChange, Files } from "../../system/files/files.ts";
import { isInstructionFile } from "../../system/files/forbidden_paths.ts";

/** Digests of the files that instruct agents, as one call was given them: SHA-256, hexadecimal, by absolute path. */
export type WitnessedFiles = Map<string, string>;

/** Stands for a file that was given in two versions: nobody trusts it. */
const TWO_VERSIONS = "two versions";

/**
 * Returns the files service for one call, which notes the digests of the files that instruct agents. Such a file is read once, as a whole:
 * the digest is that of the bytes that the call is given, whatever somebody writes meanwhile. One that is too large to be trusted is not
 * noted.
 * @param onWritten is told of each file that the call has changed, by the very bytes
 */
export function witnessFiles(
  files: Files,
  seen: WitnessedFiles,
  onWritten: ((file: WrittenFile) => void) | undefined,
): Files {
  return {
    ...files,
    async change(changes, scope, options) {
      if (onWritten === undefined) return await files.change(changes, scope, options);
      const measured = changes.map(measure);
      await files.change(measured.map(({ change }) => change), scope, options);
      for (const { change: { path }, state } of measured) {
        const place = relative(scope.workspaceRoot, resolve(scope.workspaceRoot, scope.allowedRoot, path));
        onWritten({ path: place.replaceAll(sep, "/"), ...state() });
      }
    },
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

/** Returns a change that counts and digests the bytes on their way to the disk, and what it has made once they are there. */
function measure(change: FileChange): { readonly change: FileChange; readonly state: () => Omit<WrittenFile, "path"> } {
  if (change.kind === "remove") return { change, state: () => ({ bytes: null, sha256: null }) };
  const { content } = change;
  if (typeof content !== "function") {
    return { change, state: () => ({ bytes: content.length, sha256: hash("sha256", content) }) };
  }
  let bytes = 0;
  const digest = createHash("sha256");
  const source: ContentSource = (write) =>
    content((part) => {
      bytes += part.length;
      digest.update(part);
      return write(part);
    });
  return { change: { ...change, content: source }, state: () => ({ bytes, sha256: digest.digest("hex") }) };
}

import { Buffer } from "node:buffer";
import { hash } from "node:crypto";
import { relative, resolve } from "node:path";
import { messageOf, refuse, ToolError } from "../../base/errors.ts";
import type { WrittenFile } from "../../base/records/agent_event.ts";
import type { KnownSecrets } from "../../base/redact.ts";
import type { Config } from "../../config/config.ts";
import type { Files } from "../../system/files/files.ts";
import type { ToolExecutor } from "../runtime/tool_executor.ts";
import { readScope } from "./file_scope.ts";
import { readFile } from "./read_file.ts";

/** Bytes of a file that are given at most: they are held in memory until their digest is known */
const MAX_GIVEN_BYTES = 67_108_864;

/** Door of the tools that read files. */
export interface ReadWrittenOptions {
  readonly tools: Pick<ToolExecutor, "explain">;
  readonly files: Files;
  readonly config: () => Config;
  readonly redactor: KnownSecrets;
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  /** This gateway among those of its database. Undefined: it is alone */
  readonly gateway: { readonly id: string; readonly workspace: string | undefined } | undefined;
  /** Id of the workspace that the run was bound to. Undefined: to none, as at a gateway alone */
  readonly workspace: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Reads the bytes that a call of a run wrote. What `read_file` may not read now is refused, and so is whatever else lies under the name.
 * @throws {HttpError} 404 `not_found` for a file that is not there; 409 `conflict`; 413 `payload_too_large`
 */
export async function readWritten(
  { path, bytes: size, sha256 }: WrittenFile,
  { tools, files, config, redactor, workspaceRoot, gateway, workspace, signal }: ReadWrittenOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const action = `Cannot give "${path}"${gateway === undefined ? "" : ` at the gateway ${gateway.id}`}`;
  if (size === null) throw refuse("not_found", `${action}: the call removed the file`);
  // A file of the same name on this disk is another one
  if (gateway !== undefined && workspace !== undefined && workspace !== gateway.workspace) {
    const here = `this gateway has ${gateway.workspace ?? "none"}`;
    throw refuse(
      "not_found",
      `${action}: the run worked in the workspace ${workspace}, and ${here}; ask a gateway of that one`,
    );
  }
  if (size > MAX_GIVEN_BYTES) {
    throw refuse(
      "payload_too_large",
      `${action}: it has more than ${MAX_GIVEN_BYTES} bytes; copy it from the workspace`,
    );
  }
  const now = config();
  const below = relative(resolve(workspaceRoot, now.security.read_file.allowed_root), resolve(workspaceRoot, path));
  const judged = await tools.explain(readFile.name, JSON.stringify({ path: below }), { signal });
  if (judged?.kind !== "judged" || judged.decision.kind !== "allow") {
    const reason = judged?.kind === "judged" ? judged.decision.reason : messageOf(judged?.error);
    throw refuse("conflict", `${action}, since read_file may not read it now: ${reason}`);
  }
  try {
    const { allow_sensitive_file_reads: allowSensitiveFileReads } = now.autonomy;
    const file = await files.open(below, readScope({ workspaceRoot, config: now, allowSensitiveFileReads }));
    try {
      const bytes = new Uint8Array(size);
      // Attack: the name leads to another file by now, so the bytes that were read are compared, and they alone are given
      const isSame = file.size === size && await file.read(bytes, 0) === size && hash("sha256", bytes) === sha256;
      if (!isSame) {
        const wayOut =
          "the file of a later call is in this list under its own id, and others are read in the workspace";
        throw refuse("conflict", `${action}: it was changed since the run wrote it; ${wayOut}`);
      }
      if (Buffer.compare(redactor.part.redact(bytes, { from: 0, to: size }), bytes) !== 0) {
        throw refuse("conflict", `${action}: it holds a secret that the gateway knows; read it in the workspace`);
      }
      return bytes;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    if (error.code !== "not_found") throw refuse("conflict", `${action}: ${error.message}`);
    const elsewhere = gateway === undefined ? "" : ", or the run worked on the disk of another gateway: ask that one";
    throw refuse("not_found", `${action}: it was deleted or moved since${elsewhere}`);
  }
}

import { hash } from "node:crypto";
import { join } from "node:path";
import { type HttpError, refuse, ToolError } from "../../base/errors.ts";
import type { Actor } from "../../base/records/caller.ts";
import type { InstructionsInfo } from "../../base/records/extension_views.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { firstBytes } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import { withoutMark } from "../../config/toml.ts";
import { MAX_TRUSTED_TEXT, type PresentDocument, type TrustedDocuments } from "../../guard/trusted_documents.ts";
import type { Files } from "../../system/files/files.ts";
import { INSTRUCTION_FILES } from "../../system/files/forbidden_paths.ts";
import { decodeText } from "../../tools/files/read_text.ts";

/** Bytes of UTF-8 of the instructions that a system prompt has. */
export const MAX_INSTRUCTIONS = 8_192;

/** Services and places of the instructions. */
export interface InstructionsOptions {
  /** The newest configuration. */
  readonly config: () => Pick<Config, "agent" | "autonomy">;
  /** Absolute path of the workspace. */
  readonly workspaceRoot: string;
  readonly files: Files;
  readonly log: Logger;
  readonly trustedDocuments: TrustedDocuments;
}

/** File as it was read, once: its digest, what a person is shown and what a model is told are of the same bytes. */
type FoundFile =
  | { readonly file: string; readonly document: PresentDocument; readonly bytes: number }
  | { readonly file: string; readonly problem: string };

/** The instructions of one workspace (docs/design/policy.md "Workspace instructions"). Reads nothing before its first use. */
export class WorkspaceInstructions {
  readonly #options: InstructionsOptions;
  /** Reason why the last run was not told of the file, so that each is logged once */
  #logged: string | undefined;

  constructor(options: InstructionsOptions) {
    this.#options = options;
  }

  /** Returns the part of the system prompt for a run that begins now, read again; empty: none. Never throws. */
  async offer(): Promise<string> {
    const { config, log, trustedDocuments } = this.#options;
    if (!config().agent.workspace_instructions) return "";
    try {
      const found = await this.#find();
      const isTrusted = found !== undefined && "document" in found && await trustedDocuments.isTrusted(found.document);
      if (isTrusted) return toPrompt(found.file, found.document.text);
      if (found !== undefined) this.#logOnce(found);
    } catch (error) {
      // A run without instructions is better than none
      log.error("The instructions of the workspace cannot be read", { error });
    }
    return "";
  }

  /** Reads the file and compares it with what is trusted. */
  async show(): Promise<InstructionsInfo> {
    const found = await this.#find();
    const { workspace_instructions: enabled } = this.#options.config().agent;
    if (found === undefined) return { ...NONE, enabled, reason: reasonOff({ ...NONE, enabled }) };
    const { file } = found;
    const path = join(this.#options.workspaceRoot, file);
    if ("problem" in found) {
      const reason = `${found.problem}; mend the file`;
      return { ...NONE, state: "unusable", enabled, reason, file, path };
    }
    const { document, bytes } = found;
    const { state, trusted, difference } = await this.#options.trustedDocuments.examine(document);
    const known = state === "unknown" ? "untrusted" : state;
    const info = {
      ...NONE,
      ...{
        state: known,
        enabled,
        file,
        path,
        digest: document.digest,
        bytes,
        text: document.text,
        difference,
      } as const,
      used_bytes: Math.min(bytes, MAX_INSTRUCTIONS),
      trusted_digest: trusted?.digest ?? null,
    };
    const reason = reasonOff(info);
    return { ...info, reason, on: reason === null };
  }

  /**
   * Trusts exactly this content.
   * @throws {HttpError} 404 `not_found` without a file that can be trusted; 409 `conflict` for another digest, and where another content was trusted
   * since `before`
   */
  async trust(
    { digest, before, by }: {
      readonly digest: string;
      readonly before?: string | null | undefined;
      readonly by: Actor;
    },
  ): Promise<InstructionsInfo> {
    const found = await this.#find();
    if (found === undefined || "problem" in found) throw refused("not_found", found?.problem ?? NO_FILE);
    if (found.document.digest !== digest) {
      const reason =
        `${found.file} has another content now, with the digest ${found.document.digest}; look at it again`;
      throw refused("conflict", reason);
    }
    await this.#options.trustedDocuments.trust(found.document, { by, before });
    return await this.show();
  }

  /** Takes the trust back. @throws {HttpError} 404 `not_found` where there is none */
  async untrust({ by }: { readonly by: Actor }): Promise<InstructionsInfo> {
    const { workspaceRoot, trustedDocuments } = this.#options;
    let isTaken = false;
    // The file may be gone, or another one than the one that was trusted
    for (const file of INSTRUCTION_FILES) {
      isTaken = await trustedDocuments.untrust(join(workspaceRoot, file), { by }) || isTaken;
    }
    if (!isTaken) throw refused("not_found", "nobody trusts them");
    return await this.show();
  }

  /** Reads the first file that is there. Undefined: there is none. */
  async #find(): Promise<FoundFile | undefined> {
    for (const file of INSTRUCTION_FILES) {
      const found = await this.#read(file);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  async #read(file: string): Promise<FoundFile | undefined> {
    try {
      const bytes = await this.#readBytes(file);
      const text = decodeText(bytes);
      if (text === undefined) return { file, problem: `${file} is not UTF-8 text` };
      const digest = hash("sha256", bytes);
      const path = join(this.#options.workspaceRoot, file);
      const document: PresentDocument = { kind: "workspace_instructions", path, digest, text: withoutMark(text) };
      return { file, document, bytes: bytes.length };
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      return error.code === "not_found" ? undefined : { file, problem: error.message };
    }
  }

  /** Reads a file through the door of the file tools: no link leads it out of the workspace, or to credentials. */
  async #readBytes(file: string): Promise<Uint8Array> {
    const { files, workspaceRoot, config } = this.#options;
    const opened = await files.open(file, {
      workspaceRoot,
      allowedRoot: ".",
      forbiddenPaths: config().autonomy.forbidden_paths,
      allowSensitive: false,
    });
    try {
      const buffer = new Uint8Array(MAX_TRUSTED_TEXT + 1);
      const length = await opened.read(buffer, 0);
      if (length <= MAX_TRUSTED_TEXT) return buffer.subarray(0, length);
      throw new ToolError("file_too_large", `${file} is larger than ${MAX_TRUSTED_TEXT} bytes`);
    } finally {
      await opened.close();
    }
  }

  #logOnce(found: FoundFile): void {
    const reason = "problem" in found ? found.problem : found.document.digest;
    if (reason === this.#logged) return;
    this.#logged = reason;
    this.#options.log.warn("Runs are not told of the instructions of the workspace", {
      file: found.file,
      reason: "problem" in found ? found.problem : "nobody trusts this content; run postern instructions trust",
    });
  }
}

const NO_FILE = `there is neither ${INSTRUCTION_FILES.join(" nor ")} at the top of the workspace`;

const NONE: InstructionsInfo = {
  object: "workspace_instructions",
  state: "none",
  enabled: false,
  on: false,
  reason: null,
  file: null,
  path: null,
  digest: null,
  bytes: null,
  used_bytes: null,
  text: null,
  trusted_digest: null,
  difference: null,
};

function reasonOff({ state, enabled, file }: Pick<InstructionsInfo, "state" | "enabled" | "file">): string | null {
  if (!enabled) return "[agent] workspace_instructions is false; set it to true";
  if (state === "none") return NO_FILE;
  if (state === "untrusted") return `nobody trusts ${file}; run postern instructions trust`;
  return state === "changed" ? `${file} changed since it was trusted; run postern instructions trust` : null;
}

function toPrompt(file: string, text: string): string {
  const told = firstBytes(text, MAX_INSTRUCTIONS);
  const cut = told.length === text.length
    ? ""
    : `\n[Postern] Cut here: ${MAX_INSTRUCTIONS} bytes of ${file} are shown; read_file shows the rest`;
  return `The user trusts these instructions of the workspace (${file}):\n\n${told.trimEnd()}${cut}`;
}

function refused(code: "not_found" | "conflict", reason: string): HttpError {
  return refuse(code, `Cannot change the trust in the instructions of the workspace: ${reason}`);
}

import { basename, resolve } from "node:path";
import { joinTaints, type Taint, UNTAINTED } from "../../base/taint.ts";
import type { Config } from "../../config/config.ts";
import { changesFiles, type Effects } from "../../guard/policy.ts";
import type { TaintedFiles } from "../../guard/tainted_files.ts";
import { isInstructionFile } from "../../system/files/forbidden_paths.ts";
import type { PreparedCall, Tool } from "./tool.ts";
import type { ToolResult } from "./tool_call.ts";
import type { ToolCallRequest } from "./tool_executor.ts";
import type { WitnessedFiles } from "./witness_files.ts";

/** Files and places that the taint of calls is found by. */
export interface CallTaintOptions {
  /** Default: no file is known to be tainted */
  readonly taintedFiles?: TaintedFiles | undefined;
  /** Returns the newest configuration */
  readonly config: () => Config;
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  /** Tells whether a person trusts this content of a file that instructs agents. Default: nobody trusts any */
  readonly isTrustedFile?: ((file: { readonly path: string; readonly digest: string }) => Promise<boolean>) | undefined;
}

/** A call that may run, and the run that makes it. */
export interface TaintedCall {
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly request: ToolCallRequest;
  /** Files that instruct agents, as the call was given them. Default: none is known, so nobody trusts what it read of one */
  readonly seen?: WitnessedFiles | undefined;
}

/** Tools that change a part of a file: what they do depends on the rest of it, and their errors quote it. */
const EDITING: ReadonlySet<string> = new Set(["file_edit", "apply_patch"]);

/** Tools that write what anybody may have put before the user's eyes. */
const CAPTURING: ReadonlySet<string> = new Set(["screenshot"]);

/** Origin of the content of files whose marks could not be read. */
const UNREAD: Taint = ["files whose marks could not be read"];

/** The way of outside content through the calls of one executor (docs/design/policy.md "Content from outside"). */
export class CallTaint {
  readonly #options: CallTaintOptions;

  constructor(options: CallTaintOptions) {
    this.#options = options;
  }

  /** Returns the outside content that a call is about to run, copy or change: of the files that a command names, or that an edit changes. */
  async ahead({ tool, prepared }: Pick<TaintedCall, "tool" | "prepared">): Promise<Taint> {
    const { effects } = prepared;
    if (effects.command !== undefined) return await this.#readByCommand(effects);
    if (!EDITING.has(tool.name)) return UNTAINTED;
    return await this.#options.taintedFiles?.of(this.#writtenBy(tool, prepared)) ?? UNTAINTED;
  }

  /**
   * Marks the files that a call is about to write, where its run has read outside content or the call itself brings some.
   * @returns as `ahead`, by now
   */
  async before({ tool, prepared, request }: TaintedCall): Promise<Taint> {
    const { taintedFiles, workspaceRoot: root } = this.#options;
    const read = await this.ahead({ tool, prepared });
    // A copy that a command makes has the taint of the files that the command reads
    if (prepared.effects.command !== undefined) request.scope.taint?.add(read);
    const written = this.#writtenBy(tool, prepared);
    const captured = CAPTURING.has(tool.name) ? [tool.name] : undefined;
    const taint = joinTaints(request.scope.taint?.origins, originOf(tool, prepared), read, captured);
    if (taint.length > 0) await taintedFiles?.mark(written, { taint, root });
    return read;
  }

  /** Returns the outside content in the output of a call that ran, and adds it to the taint of the run. @param result undefined: it was stopped */
  async after({ tool, prepared, request, seen }: TaintedCall, result: ToolResult | undefined): Promise<Taint> {
    const { taintedFiles } = this.#options;
    await taintedFiles?.written(this.#writtenBy(tool, prepared));
    const read = await this.#readBy({ tool, prepared, request, seen }, result);
    const taint = joinTaints(originOf(tool, prepared), result?.taint, read);
    request.scope.taint?.add(taint);
    return taint;
  }

  /** Does as `after` when the marks of files cannot be read: the files of the call count as marked. */
  unknown({ tool, prepared, request }: TaintedCall, result: ToolResult | undefined): Taint {
    const taint = joinTaints(originOf(tool, prepared), result?.taint, UNREAD);
    request.scope.taint?.add(taint);
    return taint;
  }

  /** Returns the files that a call writes by name. What a command or git wrote is told afterwards (`onTainted` of the processes). */
  #writtenBy({ needs }: Tool, prepared: PreparedCall): readonly string[] {
    const { effects, input } = prepared;
    const isDry = typeof input === "object" && input !== null && "dry_run" in input && input.dry_run === true;
    if (!changesFiles(prepared) || isDry || !needs.includes("files")) return [];
    return this.#resolved(effects.paths ?? [], effects.root);
  }

  /** Returns the outside content of the files whose content the output has or may have: those that a command names among them. */
  async #readBy({ tool, prepared, seen }: TaintedCall, result: ToolResult | undefined): Promise<Taint> {
    const { access, effects } = prepared;
    const command = effects.command ?? result?.command;
    if (command !== undefined) {
      const started = { ...effects, ...result?.line && { line: result.line }, command };
      return joinTaints(await this.#readByCommand(started), await this.#listedBy(started));
    }
    const listed = result?.lists === undefined
      ? UNTAINTED
      : await this.#named(this.#resolved(result.lists, effects.root));
    const isRead = access === "read" || result?.reads !== undefined || EDITING.has(tool.name);
    if (!isRead) return listed;
    return joinTaints(listed, await this.#of(this.#resolved(result?.reads ?? effects.paths ?? [], effects.root), seen));
  }

  async #listedBy({ command = [], line }: Effects): Promise<Taint> {
    const { listsOfCommand, pathsOfLine } = await import("../../system/process/command_reads.ts");
    const { workspaceRoot: root } = this.#options;
    return await this.#named(
      line === undefined ? listsOfCommand(command, root) : pathsOfLine(line, root, listsOfCommand),
    );
  }

  /** Returns the outside content in the names of files, and of those below. */
  async #named(paths: readonly string[]): Promise<Taint> {
    const { taintedFiles, workspaceRoot } = this.#options;
    return paths.length === 0 ? UNTAINTED : await taintedFiles?.namesIn(paths, workspaceRoot) ?? UNTAINTED;
  }

  async #readByCommand({ command = [], line }: Effects): Promise<Taint> {
    const { readsOfCommand, pathsOfLine } = await import("../../system/process/command_reads.ts");
    const { workspaceRoot: root } = this.#options;
    return await this.#of(line === undefined ? readsOfCommand(command, root) : pathsOfLine(line, root, readsOfCommand));
  }

  async #of(paths: readonly string[], seen?: WitnessedFiles): Promise<Taint> {
    const { taintedFiles, isTrustedFile } = this.#options;
    const known = await taintedFiles?.of(paths) ?? UNTAINTED;
    const instructions: string[] = [];
    // Whoever wrote the file wrote it for the agent to follow
    for (const path of paths.filter((each) => isInstructionFile(basename(each)))) {
      // Bytes that a command, a thread or git read are not known: only those that were looked at are trusted
      const digest = seen?.get(path);
      const isTrusted = digest !== undefined && await isTrustedFile?.({ path, digest }) === true;
      if (!isTrusted) instructions.push(`instructions ${basename(path)}`);
    }
    return instructions.length === 0 ? known : joinTaints(known, instructions);
  }

  #resolved(paths: readonly string[], root: "read_file" | "write_file" | undefined): readonly string[] {
    const { config, workspaceRoot } = this.#options;
    const folder = root === undefined ? "." : config().security[root].allowed_root;
    return paths.map((path) => resolve(workspaceRoot, folder, path));
  }
}

/** Returns the origin of what a call brings from outside: another program's answer, or what the network said. */
function originOf({ name, source, outside = false }: Tool, { access, effects }: PreparedCall): Taint {
  // A program says itself whether its text is its own
  const isTold = source === "builtin" || source === "program";
  if (isTold && access !== "network" && !outside) return UNTAINTED;
  const [url = ""] = effects.urls ?? [];
  const host = URL.parse(url)?.host;
  return [host === undefined ? name : `${name} ${host}`];
}

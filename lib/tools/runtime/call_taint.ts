import { basename, resolve } from "node:path";
import { joinTaints, type Taint, UNTAINTED } from "../../base/taint.ts";
import type { Config } from "../../config/config.ts";
import { changesFiles } from "../../guard/policy.ts";
import type { TaintedFiles } from "../../guard/tainted_files.ts";
import { isInstructionFile } from "../../system/files/forbidden_paths.ts";
import type { PreparedCall, Tool } from "./tool.ts";
import type { ToolResult } from "./tool_call.ts";
import { taintOf, type ToolCallRequest } from "./tool_executor.ts";

/** Files and places that the taint of calls is found by. */
export interface CallTaintOptions {
  /** Default: no file is known to be tainted */
  readonly taintedFiles?: TaintedFiles | undefined;
  /** Returns the newest configuration */
  readonly config: () => Config;
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  /** Tells whether a person trusts a file that instructs agents, as it is now. Default: nobody trusts any */
  readonly isTrustedFile?: ((path: string) => Promise<boolean>) | undefined;
}

/** A call that may run, and the run that makes it. */
export interface TaintedCall {
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly request: ToolCallRequest;
}

/** The way of outside content through calls (docs/design/policy.md "Content from outside"). */
export interface CallTaint {
  /** Marks the files that a call is about to write, where its run has read outside content or the call itself brings some. */
  before(call: TaintedCall): Promise<void>;
  /** Returns the outside content in the output of a call that ran, and adds it to the taint of the run. @param result undefined: it was stopped */
  after(call: TaintedCall, result: ToolResult | undefined): Promise<Taint>;
  /** Does as `after` when the marks of files cannot be read: the files of the call count as marked. */
  unknown(call: TaintedCall, result: ToolResult | undefined): Taint;
}

/** Tools that change a part of a file: what they do depends on the rest of it, and their errors quote it. */
const EDITING: ReadonlySet<string> = new Set(["file_edit", "apply_patch"]);

/** Tools that write what anybody may have put before the user's eyes. */
const CAPTURING: ReadonlySet<string> = new Set(["screenshot"]);

/** Origin of the content of files whose marks could not be read. */
const UNREAD: Taint = ["files whose marks could not be read"];

/** Creates the way of outside content through the calls of one executor. */
export function createCallTaint(options: CallTaintOptions): CallTaint {
  return new ExecutorTaint(options);
}

class ExecutorTaint implements CallTaint {
  readonly #options: CallTaintOptions;

  constructor(options: CallTaintOptions) {
    this.#options = options;
  }

  async before({ tool, prepared, request }: TaintedCall): Promise<void> {
    const { taintedFiles, workspaceRoot: root } = this.#options;
    const { command } = prepared.effects;
    // A copy that a command makes has the taint of the files that the command reads
    if (command !== undefined) request.taint?.add(await this.#readByCommand(command));
    const written = this.#writtenBy(tool, prepared);
    const edited = EDITING.has(tool.name) ? await taintedFiles?.of(written) : undefined;
    const captured = CAPTURING.has(tool.name) ? [tool.name] : undefined;
    const taint = joinTaints(taintOf(request), originOf(tool, prepared), edited, captured);
    if (taint.length > 0) await taintedFiles?.mark(written, { taint, root });
  }

  async after({ tool, prepared, request }: TaintedCall, result: ToolResult | undefined): Promise<Taint> {
    const { taintedFiles } = this.#options;
    await taintedFiles?.written(this.#writtenBy(tool, prepared));
    const read = await this.#readBy({ tool, prepared, request }, result);
    const taint = joinTaints(originOf(tool, prepared), result?.taint, read);
    request.taint?.add(taint);
    return taint;
  }

  unknown({ tool, prepared, request }: TaintedCall, result: ToolResult | undefined): Taint {
    const taint = joinTaints(originOf(tool, prepared), result?.taint, UNREAD);
    request.taint?.add(taint);
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
  async #readBy({ tool, prepared }: TaintedCall, result: ToolResult | undefined): Promise<Taint> {
    const { access, effects } = prepared;
    const command = effects.command ?? result?.command;
    if (command !== undefined) return await this.#readByCommand(command);
    const isRead = access === "read" || result?.reads !== undefined || EDITING.has(tool.name);
    return isRead ? await this.#of(this.#resolved(result?.reads ?? effects.paths ?? [], effects.root)) : UNTAINTED;
  }

  async #readByCommand(command: readonly string[]): Promise<Taint> {
    const { readsOfCommand } = await import("../../system/process/command_reads.ts");
    return await this.#of(readsOfCommand(command, this.#options.workspaceRoot));
  }

  async #of(paths: readonly string[]): Promise<Taint> {
    const { taintedFiles, isTrustedFile } = this.#options;
    const known = await taintedFiles?.of(paths) ?? UNTAINTED;
    const instructions: string[] = [];
    // Whoever wrote the file wrote it for the agent to follow
    for (const path of paths.filter((each) => isInstructionFile(basename(each)))) {
      if (await isTrustedFile?.(path) !== true) instructions.push(`instructions ${basename(path)}`);
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

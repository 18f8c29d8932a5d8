import type { ToolResult } from "../runtime/tool_call.ts";
import type { GitCall } from "./git_call.ts";
import type { GitOp } from "./git_input.ts";
import { branch, diff, log, show, status } from "./read_operations.ts";
import { pull, push } from "./remote_operations.ts";
import { add, checkout, commit, stash } from "./write_operations.ts";

const RUN: Readonly<Record<GitOp, (call: GitCall) => Promise<ToolResult>>> = {
  status,
  diff,
  log,
  show,
  branch,
  add,
  commit,
  checkout,
  stash,
  push,
  pull,
};

/** Runs an operation on a checked repository. @throws {ToolError} as the operation does */
export function runOperation(op: GitOp, call: GitCall): Promise<ToolResult> {
  return RUN[op](call);
}

import { WasmRefusal } from "./module_bytes.ts";

/**
 * Reason why a module gave no answer. `cancelled` and `timeout`: it was told to stop. `out_of_fuel`: it used what it had. `failed`: it
 * trapped, said an error or broke a rule. `exited`: it ended itself as done. Others come from the gateway's own checks, such as `module_import` or `url_not_allowed`.
 */
export type ModuleFailureCode =
  | "cancelled"
  | "timeout"
  | "out_of_fuel"
  | "failed"
  | "exited"
  | (string & Record<never, never>);

/** Failure of a module, thrown through its code: modules cannot catch. The message is the end of a sentence. */
export class ModuleFailure extends Error {
  override readonly name = "ModuleFailure";
  readonly code: ModuleFailureCode;
  constructor(code: ModuleFailureCode, reason: string) {
    super(reason);
    this.code = code;
  }
}

/** Returns why a module gave no answer, from whatever was thrown while it was loaded or ran. */
export function failureOf(error: unknown): { readonly code: ModuleFailureCode; readonly reason: string } {
  if (error instanceof ModuleFailure) return { code: error.code, reason: error.message };
  if (error instanceof WasmRefusal) return { code: error.code, reason: error.reason };
  if (!(error instanceof Error)) return { code: "failed", reason: `it threw ${String(error).slice(0, 200)}` };
  const reason = error.message.slice(0, MAX_REASON);
  switch (error.name) {
    case "CompileError":
    case "LinkError":
      return { code: "module_invalid", reason: `the runtime refuses it: ${reason}` };
    case "RuntimeError":
      return { code: "failed", reason: `it trapped: ${reason}` };
    case "RangeError":
      return { code: "failed", reason: /stack/i.test(reason) ? "it used up its stack" : `it broke a bound: ${reason}` };
    default:
      return { code: "failed", reason };
  }
}

const MAX_REASON = 500;

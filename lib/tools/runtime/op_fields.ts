import { ToolError } from "../../base/errors.ts";

/**
 * Checks that the fields an operation needs are there: the schema of a tool with several has no union at its top.
 * @param needed fields by operation
 * @throws {ToolError} `invalid_input` naming the first one that is missing
 */
export function requireOpFields(
  tool: string,
  input: { readonly op: string } & Readonly<Record<string, unknown>>,
  needed: Readonly<Record<string, readonly string[]>>,
): void {
  const missing = needed[input.op]?.find((field) => input[field] === undefined);
  if (missing === undefined) return;
  throw new ToolError("invalid_input", `Cannot call "${tool}": "${missing}" is missing, which op "${input.op}" needs`);
}

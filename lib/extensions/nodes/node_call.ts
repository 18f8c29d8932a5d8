import * as v from "valibot";
import type { ToolError } from "../../base/errors.ts";
import type { InvokeFrame } from "./protocol.ts";

/** Call of a tool of a node, with the digest of the offer that it was prepared for. */
export interface NodeCall extends Omit<InvokeFrame, "type" | "id"> {
  readonly digest: string;
}

/** Answer of a node to a call. */
export type NodeAnswer = Pick<v.InferOutput<typeof nodeAnswerSchema>, "output" | "is_error" | "data">;

/** Codes of errors that another gateway may answer with. */
const CODES = ["node_lost", "node_overloaded", "node_timeout", "node_changed", "input_too_large"] as const;
const MAX_MESSAGE = 2_000;
/** Schema of the answer of a node to a call of another gateway. */
export const nodeAnswerSchema = v.object({
  output: v.string(),
  is_error: v.boolean(),
  data: v.optional(v.unknown()),
});
/** Schema of the error that another gateway is told. */
export const nodeFailureSchema = v.object({
  code: v.picklist(CODES),
  message: v.pipe(v.string(), v.maxLength(MAX_MESSAGE)),
});

/** Error of a node's call that another gateway is told. */
export type NodeFailure = v.InferOutput<typeof nodeFailureSchema>;

/** Returns what a gateway answers another one for an error of a node's call. Undefined for any other error. */
export function toNodeFailure(error: ToolError): NodeFailure | undefined {
  const code = CODES.find((known) => known === error.code);
  return code === undefined ? undefined : { code, message: error.message.slice(0, MAX_MESSAGE) };
}

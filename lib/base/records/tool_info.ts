import * as v from "valibot";
import type { DeepReadonly, ObjectJsonSchema } from "../json.ts";
import { accessSchema } from "./approval.ts";

/**
 * Kinds of questions that a client of MCP may answer: a form that its user fills in, an address that its user opens, a request to its
 * model, and the list of its folders.
 */
export const CLIENT_ABILITIES = ["form", "url", "sample", "roots"] as const;
/** Kind of question that a client of MCP may answer. */
export type ClientAbility = (typeof CLIENT_ABILITIES)[number];

/** A tool, as `/v1/tools` and `postern tools` show it. */
export const toolInfoSchema = v.object({
  name: v.string(),
  description: v.string(),
  access: accessSchema,
  enabled: v.boolean(),
  /** Why the tool is off, with the setting that turns it on; null while it is on */
  reason: v.nullable(v.string()),
  /** Key that turns it on where this gateway can write its configuration; null: there is none, or it is on */
  turn_on: v.nullable(v.object({ key: v.string(), value: v.union([v.boolean(), v.string()]) })),
  /** Origin of the tool. `program`: the program that mounts the gateway */
  source: v.picklist(["builtin", "wasm", "process", "ffi", "mcp", "node", "program"]),
  /** Owner of the tool, such as `plugin words 1.0.0`; null for Postern's own */
  origin: v.nullable(v.string()),
  input_schema: v.optional(v.record(v.string(), v.unknown())),
  /** Kinds of questions that a client of MCP must answer to call it; absent: none */
  client_needs: v.optional(v.array(v.picklist(CLIENT_ABILITIES))),
});
/** A tool, as `/v1/tools` and `postern tools` show it. */
export type ToolInfo = DeepReadonly<Omit<v.InferOutput<typeof toolInfoSchema>, "input_schema">> & {
  readonly input_schema: ObjectJsonSchema | undefined;
};

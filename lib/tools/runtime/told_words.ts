import type { JsonSchema } from "../../base/json.ts";
import { neutralize, neutralText } from "../../base/neutral_text.ts";
import type { Tool } from "./tool.ts";

/** UTF-16 units of the description of somebody else's tool */
const MAX_FOREIGN_DESCRIPTION = 4_000;

/** Words about a tool that a model or a client of MCP is given. */
export interface ToldWords<Schema> {
  readonly description: string;
  readonly schema: Schema | undefined;
}

/** Returns the words about a tool. Those of others are bounded, and hold neither control tokens nor text that nobody sees. */
export function toldWords<Schema extends JsonSchema>(
  source: Tool["source"],
  { description, schema }: ToldWords<Schema>,
): ToldWords<Schema> {
  if (source === "builtin" || source === "program") return { description, schema };
  return { description: neutralText(description, MAX_FOREIGN_DESCRIPTION), schema: schema && neutralSchema(schema) };
}

/** Returns a schema whose texts hold no control tokens: itself where it has none. */
function neutralSchema<Schema extends JsonSchema>(schema: Schema): Schema {
  const text = JSON.stringify(schema);
  const neutral = neutralize(text);
  // Neither hidden text nor a control token has a character of JSON's own form
  return neutral === text ? schema : JSON.parse(neutral);
}

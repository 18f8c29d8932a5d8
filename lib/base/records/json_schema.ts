/** A JSON Schema of draft 2020-12, as sent to models and clients. */
export interface JsonSchema {
  readonly [keyword: string]: unknown;
}

/** Input schema of a tool: an object schema without a top-level union (OpenAI and Anthropic accept no other). */
export interface ObjectJsonSchema extends JsonSchema {
  readonly type: "object";
  readonly properties: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties: false;
}

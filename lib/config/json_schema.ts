import { toJsonSchema } from "@valibot/to-json-schema";
import type { JsonSchema } from "../base/records/json_schema.ts";
import { configSchema } from "./config.ts";

/** JSON Schema (2020-12) of `postern.toml`, for editors. Where more than one spelling is read, it names the one that is kept. */
export function configJsonSchema(): JsonSchema {
  return { ...toJsonSchema(configSchema, { target: "draft-2020-12", typeMode: "input" }), title: "postern.toml" };
}

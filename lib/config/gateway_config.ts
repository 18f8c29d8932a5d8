import type * as v from "valibot";
import type { configSchema, DeepReadonly } from "./config.ts";

/**
 * The tables and keys of `postern.toml` as an object: what the schema takes, before its defaults. In the package its type is written out
 * (scripts/config_types.ts), since the declarations of the schemas are long.
 */
export type GatewayConfig = DeepReadonly<v.InferInput<typeof configSchema>>;

import * as v from "valibot";
import type { DeepReadonly } from "../json.ts";
import { SCOPES } from "./caller.ts";

/** A token as lists show it: never the token itself. Times are ISO 8601. */
export const tokenSchema = v.object({
  id: v.string(),
  label: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
  /** Seconds without a use after which the token ends; null: it does not end from disuse */
  idle_ttl_seconds: v.nullable(v.number()),
  /** Tells whether completions with this token go to the model without the agent's own tools */
  plain: v.boolean(),
  /** Patterns of the tools that it may call; null: all */
  tools: v.nullable(v.array(v.string())),
  last_used_at: v.nullable(v.string()),
});
/** A token as lists show it. */
export type TokenRecord = DeepReadonly<v.InferOutput<typeof tokenSchema>>;

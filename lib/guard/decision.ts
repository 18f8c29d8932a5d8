/** What a call may change; `state` is the agent's own records in the data directory. */
export type Access = "read" | "state" | "write" | "network";

/** What a call is about to touch, for the policy, the approval and the audit. */
export interface Effects {
  /** As the tool was given them, relative to its root */
  readonly paths?: readonly string[];
  readonly urls?: readonly string[];
  readonly command?: readonly string[];
}

/**
 * What the policy says about one call. `reason` is a sentence with the smallest change that flips the decision; `rule` names
 * the rule that decided, as `always_ask:shell` or `level:read_only/write`.
 */
export type Decision =
  | { readonly kind: "allow" }
  | { readonly kind: "ask"; readonly reason: string; readonly rule: string }
  | { readonly kind: "deny"; readonly reason: string; readonly rule: string };

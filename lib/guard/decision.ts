/** What a call may change; `state` is the agent's own records in the data directory. */
export type Access = "read" | "state" | "write" | "network";

/** What a call is about to touch, for the policy, the approval and the audit. */
export interface Effects {
  /** As the tool was given them, relative to `root` */
  readonly paths?: readonly string[];
  /** Whose `allowed_root` the paths are relative to. Default: the workspace itself */
  readonly root?: "read_file" | "write_file";
  readonly urls?: readonly string[];
  readonly command?: readonly string[];
}

/** One rule that was looked at: what it says, or `pass` when it has nothing to say about this call. */
export interface RuleStep {
  /** As `always_ask:shell` or `level:read_only/write` */
  readonly rule: string;
  readonly says: "allow" | "ask" | "deny" | "pass";
}

/** What the policy says about one call, and why. */
export interface Decision {
  readonly kind: "allow" | "ask" | "deny";
  /** One sentence with the smallest change that flips the decision */
  readonly reason: string;
  /** The rule that decided, the last of `path` that does not pass */
  readonly rule: string;
  /** Every rule that was looked at, in order */
  readonly path: readonly RuleStep[];
  /**
   * The smallest change of the configuration that flips the decision: a deny into an ask or an allow, an ask into an allow, an
   * allow into an ask. Each is one edit, as `add "shell" to [autonomy] auto_approve`, and all of them together are needed.
   * Empty when no configuration flips it.
   */
  readonly change: readonly string[];
}

/** Whether a rule asks each time, by `always_ask` or as a procedure's step: its answer then stands for one call alone. */
export function asksAlways(rule: string): boolean {
  return rule.startsWith("always_ask:") || rule.startsWith("sop:");
}

/** What `access` does, for a sentence. */
export const DOES: Readonly<Record<Access, string>> = {
  read: "only reads",
  state: "changes the agent's own records",
  write: "can change files or run programs",
  network: "reaches the network",
};

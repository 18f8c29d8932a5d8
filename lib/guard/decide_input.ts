import type { Access, Effects } from "./decision.ts";

/** The part of `[autonomy]` that decides. */
export interface AutonomyRules {
  /** read_only, supervised or full, read without case, `-` and `_` */
  readonly level: string;
  readonly forbidden_paths: readonly string[];
  /** Tool names: an ask becomes an allow */
  readonly auto_approve: readonly string[];
  /** Tool names: an allow becomes an ask; wins over auto_approve */
  readonly always_ask: readonly string[];
}

/** Where the call would happen. All paths are absolute. */
export interface DecideWorkspace {
  readonly root: string;
  /** The folder that the call's paths are relative to */
  readonly fileRoot: string;
  readonly home: string;
  /** Postern's own data directory and configuration file */
  readonly ownPaths: readonly string[];
}

export interface DecideInput {
  readonly tool: string;
  /** Of this call, computed by the tool */
  readonly access: Access;
  readonly effects: Effects;
  /** What to set to turn the tool on, as `[security.write_file] enabled = true`; undefined when it is on */
  readonly offUntil: string | undefined;
  readonly autonomy: AutonomyRules;
  readonly workspace: DecideWorkspace;
}

import { resolve } from "node:path";
import { createForbiddenBy, expandForbidden, FORBIDDEN_PATHS } from "../system/files/forbidden_paths.ts";
import type { Access, Decision, Effects } from "./decision.ts";
import { type Level, LEVEL_TABLE, parseLevel } from "./level.ts";

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
  readonly autonomy: AutonomyRules;
  readonly workspace: DecideWorkspace;
}

/** The specification's names for three tools, accepted in the lists. */
const ALIASES: Readonly<Record<string, string>> = {
  glob: "glob_search",
  search: "content_search",
  memory_read: "memory_recall",
};

/** What `access` does, for a sentence. */
const DOES: Readonly<Record<Access, string>> = {
  read: "only reads",
  state: "changes the agent's own records",
  write: "can change files or run programs",
  network: "reaches the network",
};

/**
 * Whether a call may run. Pure: no disk, no clock.
 *
 * Forbidden paths come first, then the level; `auto_approve` turns an ask into an allow, `always_ask` an allow into an ask and
 * wins; nothing beats a deny. An unknown level denies everything.
 * Source: DESIGN.md section 7, "Autonomy"
 */
export function decide({ tool, access, effects, autonomy, workspace }: DecideInput): Decision {
  const level = parseLevel(autonomy.level);
  if (level === undefined) {
    const reason =
      `"${tool}" is denied: "${autonomy.level}" is no level; set [autonomy] level to read_only, supervised or full`;
    return { kind: "deny", reason, rule: "level:unknown" };
  }
  const forbidden = forbiddenPath(effects, autonomy, workspace);
  if (forbidden !== undefined) return forbidden;

  const rule = `level:${level}/${access}`;
  const says = LEVEL_TABLE[level][access];
  if (says === "deny") {
    const reason = `"${tool}" is denied: it ${
      DOES[access]
    }, which level "${level}" never allows; set [autonomy] level = "${wider(level, access)}"`;
    return { kind: "deny", reason, rule };
  }
  if (isListed(autonomy.always_ask, tool)) {
    const reason =
      `"${tool}" needs approval: [autonomy] always_ask names it; remove it there to use the level's own answer`;
    return { kind: "ask", reason, rule: `always_ask:${tool}` };
  }
  if (says === "allow" || isListed(autonomy.auto_approve, tool)) return { kind: "allow" };
  const reason = `"${tool}" needs approval: it ${
    DOES[access]
  }; add "${tool}" to [autonomy] auto_approve to allow it without asking`;
  return { kind: "ask", reason, rule };
}

function forbiddenPath(effects: Effects, autonomy: AutonomyRules, workspace: DecideWorkspace): Decision | undefined {
  if (effects.paths === undefined) return undefined;
  const expand = (path: string) => expandForbidden(path, { home: workspace.home, workspaceRoot: workspace.root });
  const fixed = [...FORBIDDEN_PATHS.map(expand), ...workspace.ownPaths];
  const forbidden = [...fixed, ...autonomy.forbidden_paths.map(expand)];
  const forbiddenBy = createForbiddenBy({ workspaceRoot: workspace.root, forbidden });
  for (const path of effects.paths) {
    const by = forbiddenBy(resolve(workspace.fileRoot, path));
    if (by === undefined) continue;
    const change = fixed.includes(by)
      ? "only a workspace inside it makes files there usable"
      : "remove it from [autonomy] forbidden_paths";
    return {
      kind: "deny",
      reason: `${JSON.stringify(path)} is denied: it lies in the forbidden path "${by}"; ${change}`,
      rule: `forbidden_path:${by}`,
    };
  }
  return undefined;
}

function isListed(names: readonly string[], tool: string): boolean {
  return names.some((name) => name === tool || ALIASES[name] === tool);
}

/** The next level that does not deny. */
function wider(level: Level, access: Access): Level {
  return level === "read_only" && LEVEL_TABLE.supervised[access] !== "deny" ? "supervised" : "full";
}

import { resolve } from "node:path";
import { createForbiddenBy, expandForbidden, FORBIDDEN_PATHS } from "../system/files/forbidden_paths.ts";
import type { DecideInput } from "./decide_input.ts";
import { DOES } from "./decision.ts";
import { type Level, LEVEL_TABLE, LEVELS, parseLevel } from "./level.ts";

/** The rule of a tool that is off. */
export const RULE_ENABLED = "enabled";
/** The rule of a level that does not deny. */
export const RULE_LEVEL = "level";

/** Longer paths are shortened in a sentence */
const MAX_PATH_SHOWN = 200;

/** Something that can deny whatever the lists say. */
export interface Barrier {
  /** Why it denies; undefined: it does not */
  readonly reason: string | undefined;
  readonly rule: string;
  /** Edits that lift it; none where no configuration does */
  readonly change: readonly string[];
  /** What helps where no edit does; undefined where one does */
  readonly wayOut?: string;
}

/** What can deny this call, in the order it counts; those that do have a reason. Pure: no disk, no clock. */
export function barriersTo(input: DecideInput): readonly Barrier[] {
  return [offBarrier(input), forbiddenBarrier(input), levelBarrier(input)];
}

/** Whether it denies this call. */
export function stands({ reason }: Barrier): boolean {
  return reason !== undefined;
}

function offBarrier({ offUntil }: DecideInput): Barrier {
  if (offUntil === undefined) return passing(RULE_ENABLED);
  return { reason: "it is off", rule: RULE_ENABLED, change: [`set ${offUntil}`] };
}

function levelBarrier({ access, autonomy }: DecideInput): Barrier {
  const level = parseLevel(autonomy.level);
  if (level !== undefined && LEVEL_TABLE[level][access] !== "deny") return passing(RULE_LEVEL);
  // There is one: the widest level allows everything
  const wider = LEVELS.find((each) => LEVEL_TABLE[each][access] !== "deny") as Level;
  return {
    reason: level === undefined
      ? `"${autonomy.level}" is no level, which are read_only, supervised and full`
      : `it ${DOES[access]}, which level "${level}" never allows`,
    rule: level === undefined ? "level:unknown" : `level:${level}/${access}`,
    change: [`set [autonomy] level = "${wider}"`],
  };
}

function forbiddenBarrier({ effects, autonomy, workspace }: DecideInput): Barrier {
  const rule = "forbidden_path";
  const paths = (effects.paths ?? []).map((path) => ({ given: path, full: resolve(workspace.fileRoot, path) }));
  if (paths.length === 0) return passing(rule);
  const { root: workspaceRoot, home } = workspace;
  const expand = (path: string) => expandForbidden(path, { home, workspaceRoot });
  const fixed = [...FORBIDDEN_PATHS.map(expand), ...workspace.ownPaths];
  const chosen = [...new Set(autonomy.forbidden_paths)].map((name) => ({ name, path: expand(name) }));
  const firstHit = (forbidden: readonly string[]) => {
    const forbiddenBy = createForbiddenBy({ workspaceRoot, forbidden });
    for (const { given, full } of paths) {
      const by = forbiddenBy(full);
      if (by !== undefined) return { given, by };
    }
    return undefined;
  };
  const hit = firstHit([...fixed, ...chosen.map(({ path }) => path)]);
  if (hit === undefined) return passing(rule);
  const reason = `${shown(hit.given)} lies in the forbidden path "${hit.by}"`;
  const found = { reason, rule: `${rule}:${hit.by}` };
  const lasting = firstHit(fixed);
  if (lasting !== undefined) {
    const wayOut = `no setting allows "${lasting.by}", only a workspace inside it makes files there usable`;
    return { ...found, change: [], wayOut };
  }
  // Each of the user's entries that denies a path by itself
  const removed = chosen.filter(({ path }) => firstHit([path]) !== undefined).map(({ name }) => name);
  return { ...found, change: removed.map((name) => `remove "${name}" from [autonomy] forbidden_paths`) };
}

function passing(rule: string): Barrier {
  return { reason: undefined, rule, change: [] };
}

function shown(path: string): string {
  return JSON.stringify(path.length > MAX_PATH_SHOWN ? `${path.slice(0, MAX_PATH_SHOWN)}...` : path);
}

import { ToolError } from "../../base/errors.ts";
import { type Caller, mayReach } from "../../base/records/caller.ts";

/** How one kind of thing is named to a caller that may not reach it. */
interface OwnedThing {
  readonly one: string;
  readonly many: string;
  /** Way out for a caller without the scope `runs` */
  readonly instead: string;
}

/**
 * Things that go on after the call that began them. Every tool that lists, shows or changes one checks its owner here.
 * Source: docs/design/access.md "Scopes"
 */
const OWNED_THINGS = {
  schedule: { one: "schedule", many: "schedules", instead: "cron_list shows yours; a new one needs an id of its own" },
  execution: { one: "execution", many: "executions", instead: "sop_list shows yours" },
  process: { one: "process", many: "processes", instead: 'process_tool with "op": "list" shows yours' },
  sub_agent: { one: "sub-agent", many: "sub-agents", instead: "subagent_list shows yours" },
} as const satisfies Readonly<Record<string, OwnedThing>>;

/** A kind of thing that belongs to the token that began it. */
export type OwnedKind = keyof typeof OWNED_THINGS;

/** Code of the ToolError for a thing that another token began. */
export const INSUFFICIENT_SCOPE = "insufficient_scope";

/** The part of a call's caller that decides what it reaches. */
export type ScopedCaller = Pick<Caller, "tokenId" | "scopes">;

/** Things of a list that the caller may reach, and the number of those left out. */
export interface ReachedThings<T> {
  readonly reached: readonly T[];
  readonly hidden: number;
}

/**
 * Checks that a caller may act on one thing: its own token began the thing, or it has the scope `runs`.
 * @param what the action and the thing's id, for the message
 * @param owner id of the token that began it; null: nobody's token; undefined: nobody knows
 * @throws {ToolError} `insufficient_scope`
 */
export function checkOwner(
  kind: OwnedKind,
  what: { readonly action: string; readonly id: string },
  { owner, caller }: { readonly owner: string | null | undefined; readonly caller: ScopedCaller },
): void {
  if (mayReach(caller, toOwner(owner))) return;
  const { one, instead } = OWNED_THINGS[kind];
  const who = owner === undefined ? "nobody knows who began it" : "another token began it";
  throw new ToolError(
    INSUFFICIENT_SCOPE,
    `Cannot ${what.action} the ${one} ${
      JSON.stringify(what.id.slice(0, 80))
    }: ${who}, and your token lacks the scope ` +
      `"runs"; ${instead}`,
  );
}

/** Leaves out of a list what the caller may not reach. @param ownerOf as `owner` of `checkOwner` */
export function onlyReached<T>(
  things: readonly T[],
  caller: ScopedCaller,
  ownerOf: (thing: T) => string | null | undefined,
): ReachedThings<T> {
  const reached = things.filter((thing) => mayReach(caller, toOwner(ownerOf(thing))));
  return { reached, hidden: things.length - reached.length };
}

/** Returns the line of a list that says how much is left out; no line where nothing is. */
export function hiddenLines(kind: OwnedKind, hidden: number): readonly string[] {
  if (hidden === 0) return [];
  const { one, many } = OWNED_THINGS[kind];
  return [`[${hidden} ${hidden === 1 ? one : many} of others left out: your token lacks the scope "runs"]`];
}

function toOwner(owner: string | null | undefined): Pick<Caller, "tokenId"> | undefined {
  return owner === undefined ? undefined : { tokenId: owner };
}

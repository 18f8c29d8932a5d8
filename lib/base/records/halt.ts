import * as v from "valibot";

/** Kinds of halts, the widest first. */
export const HALT_KINDS = ["all", "network", "writes", "tool", "run"] as const;

/** Form of the name of a tool, or of the id of a run, that a halt names. */
export const HALT_NAME = /^[\w.-]{1,200}$/;
/** Form of the id of a halt: its kind, with the name of a tool or the id of a run behind a colon. */
export const HALT_ID = /^(?:all|network|writes|(?:tool|run):[\w.-]{1,200})$/;

/** Halt: work that a person has stopped at once, until a person lets it go on. */
export const haltSchema = v.object({
  /** `all`, `network`, `writes`, `tool:<name>` or `run:<id>` */
  id: v.pipe(v.string(), v.regex(HALT_ID)),
  /**
   * `all`: everything. `network`: calls that reach the network. `writes`: these, and all others that change something outside the agent's
   * own records. `tool`: calls of one tool. `run`: one run
   */
  kind: v.picklist(HALT_KINDS),
  /** Name of the tool, or id of the run; null for the other kinds */
  name: v.nullable(v.pipe(v.string(), v.regex(HALT_NAME))),
  /** ISO 8601 */
  halted_at: v.string(),
  /** Door of the person who halted it, with the id of the token */
  by: v.object({ via: v.string(), token_id: v.nullable(v.string()) }),
});
/** See `haltSchema`. */
export type Halt = v.InferOutput<typeof haltSchema>;

/** Returns what is halted, as a part of a sentence. */
export function haltedPart({ kind, name }: Pick<Halt, "kind" | "name">): string {
  switch (kind) {
    case "all":
      return "all work";
    case "network":
      return "every call that reaches the network";
    case "writes":
      return "every call that changes something";
    case "tool":
      return `the tool "${name}"`;
    case "run":
      return `the run ${name}`;
  }
}

/** Returns the flags of `postern halt` and `postern resume` for one halt, with a space before them. */
export function haltFlags({ kind, name }: Pick<Halt, "kind" | "name">): string {
  return ` --${kind}${name === null ? "" : ` ${name}`}`;
}

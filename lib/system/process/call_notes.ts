import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { messageOf, ToolError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { removeUnfinished, writeAtomically } from "../../base/durable_files.ts";

const SUFFIX = ".json";

const noteSchema = v.object({
  v: v.literal(1),
  /** Real, absolute path of the workspace */
  workspace: v.string(),
  /** As in SurveyRequest */
  skip: v.array(v.string()),
  /** Identities of the protected names that were there before the command */
  known: v.array(v.string()),
  /** Files that changed since then, in ms since the epoch, are made from outside content. Absent: none are */
  changes: v.optional(v.object({ since: v.number(), taint: v.array(v.string()) })),
  /** Real paths of the parts of the workspace that it may write. Absent: all of it */
  within: v.optional(v.array(v.string())),
  /** False for a command of Postern itself, which makes no protected name. Absent: true */
  guards: v.optional(v.boolean()),
});

/** State of a workspace before a command that runs: by it the next start tells what the command made, where the gateway is killed. */
export type CallNote = Readonly<Omit<v.InferOutput<typeof noteSchema>, "v">>;

/** Notes of the commands that run, each in a file of its own. */
export interface CallNotes {
  /**
   * Writes a note, on the disk when it resolves.
   * @returns removes the note again
   * @throws {ToolError} `command_not_noted`
   */
  write(note: CallNote): Promise<() => Promise<void>>;
}

/** Creates the notes of one data directory. @param folder absolute; made with the first note */
export function createCallNotes({ folder, random }: { readonly folder: string; readonly random: Random }): CallNotes {
  return {
    async write(note) {
      const path = join(folder, `${random.id("")}${SUFFIX}`);
      try {
        await writeAtomically(path, JSON.stringify({ v: 1, ...note }));
      } catch (cause) {
        const reason = messageOf(cause);
        throw new ToolError(
          "command_not_noted",
          `Cannot run the command: a note of it cannot be written, and without one nobody would look for what it makes under a ` +
            `protected name if the gateway were killed (${reason})`,
          { cause },
        );
      }
      return async () => await rm(path, { force: true });
    },
  };
}

/** Note that a killed gateway left. */
export interface LeftNote {
  /** undefined: the file is damaged, as no gateway writes it */
  readonly note: CallNote | undefined;
  remove(): Promise<void>;
}

/** Reads what an earlier gateway left. Only for the one that holds the data directory's lock, before its first command. */
export async function leftNotes(folder: string): Promise<readonly LeftNote[]> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(SUFFIX));
  await removeUnfinished(folder);
  return await Promise.all(names.map(async (name) => {
    const path = join(folder, name);
    return { note: await readNote(path), remove: async () => await rm(path, { force: true }) };
  }));
}

async function readNote(path: string): Promise<CallNote | undefined> {
  try {
    return v.parse(noteSchema, JSON.parse(await readFile(path, "utf8")));
  } catch {
    return undefined;
  }
}

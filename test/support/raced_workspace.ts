/** A workspace whose folder `notes` an attacker exchanges, with secrets in every place that no tool may show or change. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeDocx, paragraph } from "../tools/documents/make_docx.ts";
import { bytesBelow } from "./canaries.ts";
import type { Workspace } from "./workspace.ts";

/** Secrets by the place where they lie. None of them may reach a result. */
export const RACED_CANARIES = {
  outside: "canary-outside-53b1c07e",
  sensitive: "canary-sensitive-90ad44f2",
  forbidden: "canary-forbidden-7be0615c",
};
const PLACES: Readonly<Record<keyof typeof RACED_CANARIES, string>> = {
  outside: "../outside",
  sensitive: ".ssh",
  forbidden: "private",
};
/** Files of `notes`, and of every place of secrets */
const NAMES = ["a.txt", "b.txt", "a.docx"];

/** Puts secrets in their places, and files in the repository, which no tool may change. */
export function plantSecrets({ path }: Workspace): void {
  for (const [kind, place] of Object.entries(PLACES)) {
    fill(path(place), RACED_CANARIES[kind as keyof typeof RACED_CANARIES]);
  }
  fill(path(".git/notes"), "repository");
  mkdirSync(path(".git/hooks"), { recursive: true });
}

/** Makes `notes` again, and `decoy`, which looks as `notes` does, and leads outside. */
export function layOutNotes({ path }: Workspace): void {
  for (const name of ["notes", "decoy"]) rmSync(path(name), { recursive: true, force: true });
  fill(path("notes"), "inside");
  mkdirSync(path("decoy"));
  for (const name of NAMES) symlinkSync(`../../outside/${name}`, path("decoy", name));
}

/** Returns the bytes of all files that no tool may change. */
export function protectedBytes({ path }: Workspace): readonly string[] {
  // git itself keeps an index and objects beside them
  return [...Object.values(PLACES), ".git/notes", ".git/hooks"].map((place) => bytesBelow(path(place)));
}

function fill(folder: string, text: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "a.txt"), `one ${text}\n`);
  writeFileSync(join(folder, "b.txt"), `two ${text}\n`);
  writeFileSync(join(folder, "a.docx"), makeDocx({ body: paragraph(text) }));
}

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Contents of a folder, by path: the content of a file, `undefined` for a folder; parents come before what is in them. */
export type FileTree = ReadonlyMap<string, Uint8Array | undefined>;

/** A folder as it is, kept in memory so that it can be written again and again. Links are not followed and not kept. */
export function readTree(folder: string): FileTree {
  const entries = readdirSync(folder, { withFileTypes: true });
  return new Map(entries.flatMap((entry): (readonly [string, Uint8Array | undefined])[] => {
    const path = join(folder, entry.name);
    if (entry.isFile()) return [[entry.name, readFileSync(path)]];
    if (!entry.isDirectory()) return [];
    return [
      [entry.name, undefined],
      ...[...readTree(path)].map(([name, content]) => [join(entry.name, name), content] as const),
    ];
  }));
}

/** Writes it into a folder, which is made where it is missing. */
export function writeTree(folder: string, tree: FileTree): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of tree) {
    if (content === undefined) mkdirSync(join(folder, name), { recursive: true });
    else writeFileSync(join(folder, name), content);
  }
}

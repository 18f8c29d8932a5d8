import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { removeFolder } from "./remove_folder.ts";

/** A folder with files, and one beside it that nothing may read. */
export interface Workspace {
  /** Real, absolute path of the folder the agent works in */
  readonly root: string;
  /** A folder outside it, with `secret.txt` of the text OUTSIDE */
  readonly outside: string;
  /** Absolute path of one below the root */
  path(...names: string[]): string;
  /** Parent folders are made */
  write(path: string, content: string | Uint8Array): void;
}

/** Text that must never be read. */
export const OUTSIDE = "outside: this must never be read\n";

/**
 * Runs `use` with a fresh workspace, which is removed afterwards.
 * @param files content by path, relative to the root
 */
export async function withWorkspace(
  files: Readonly<Record<string, string | Uint8Array>>,
  use: (workspace: Workspace) => Promise<void> | void,
): Promise<void> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "postern-workspace-")));
  const root = join(folder, "root");
  const outside = join(folder, "outside");
  const workspace: Workspace = {
    root,
    outside,
    path: (...names) => join(root, ...names),
    write(path, content) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), content);
    },
  };
  try {
    mkdirSync(root);
    mkdirSync(outside);
    writeFileSync(join(outside, "secret.txt"), OUTSIDE);
    for (const [path, content] of Object.entries(files)) workspace.write(path, content);
    await use(workspace);
  } finally {
    await removeFolder(folder);
  }
}

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { removeFolder } from "./remove_folder.ts";

/** Runs `use` with a fresh folder, which is removed afterwards. */
export async function withTemporaryFolder(use: (folder: string) => Promise<void> | void): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "postern-test-"));
  try {
    await use(folder);
  } finally {
    await removeFolder(folder);
  }
}

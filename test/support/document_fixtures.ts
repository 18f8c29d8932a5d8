import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_ROOT } from "./source_files.ts";

/** A document of `fixtures/documents/`, in bytes of its own. */
export function documentFixture(path: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(join(PROJECT_ROOT, "fixtures/documents", path)));
}

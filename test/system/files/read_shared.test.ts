import assert from "node:assert/strict";
import { appendFileSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { readShared } from "../../../lib/system/files/read_shared.ts";
import { withWorkspace } from "../../support/workspace.ts";

const MEBIBYTE = 1_048_576;
const { signal } = new AbortController();

/** Reads a file of 2.5 MiB, of which each byte is its place, and changes it after the first part. */
async function readWhile(change: (file: string) => void): Promise<{ read: Uint8Array; parts: number[] }> {
  const bytes = Uint8Array.from({ length: 2.5 * MEBIBYTE }, (_, place) => place);
  const parts: number[] = [];
  let read = new Uint8Array();
  await withWorkspace({ "large.bin": bytes }, async ({ root }) => {
    const files = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] });
    const scope = { workspaceRoot: root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false };
    const file = await files.open("large.bin", scope);
    try {
      const shared = await readShared(file, {
        path: "large.bin",
        signal,
        onPart(part) {
          if (parts.length === 0) change(join(root, "large.bin"));
          parts.push(part.length);
        },
      });
      read = Uint8Array.from(new Uint8Array(shared));
    } finally {
      await file.close();
    }
  });
  return { read, parts };
}

test("a file is read as long as it was when it was opened, part by part", async () => {
  const { read, parts } = await readWhile((file) => appendFileSync(file, "more"));
  assert.deepEqual(parts, [MEBIBYTE, MEBIBYTE, MEBIBYTE / 2]);
  assert.equal(read.length, 2.5 * MEBIBYTE);
  assert.ok(read.every((byte, place) => byte === place % 256));
});

test("a file that becomes shorter while it is read is refused, not filled up with zeros", async () => {
  for (const length of [0, MEBIBYTE, MEBIBYTE + 1, 2.5 * MEBIBYTE - 1]) {
    await assert.rejects(readWhile((file) => truncateSync(file, length)), {
      code: "path_changed",
      message: 'Cannot read "large.bin": it became shorter while it was read; try again',
    });
  }
});

test("a read whose call ends stops", async () => {
  const controller = new AbortController();
  controller.abort();
  const file = {
    size: 1,
    isVersion: () => true,
    read: () => assert.fail("nothing is read"),
    close: () => Promise.resolve(),
  };
  await assert.rejects(readShared(file, { path: "a", signal: controller.signal }), { name: "CancelError" });
});

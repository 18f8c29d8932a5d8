import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import type { HttpError } from "../../../lib/base/errors.ts";
import { createRedactor } from "../../../lib/base/redact.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { readWritten } from "../../../lib/tools/files/read_written.ts";
import { withWorkspace } from "../../support/workspace.ts";

const decision = { kind: "allow", reason: "", rule: "read", path: [], change: [] } as const;

test("readWritten() names the gateway of a cluster that lacks the file, and takes no file into memory that is too large", () =>
  withWorkspace({ "here.txt": "here" }, async (workspace) => {
    const signal = new AbortController().signal;
    const door = {
      tools: {
        explain: () => Promise.resolve({ kind: "judged", decision, access: "read", prepared: undefined } as const),
      },
      files: createFiles({ clock: systemClock, home: workspace.outside, ownPaths: [] }),
      config: defaultConfig,
      redactor: createRedactor(),
      ...{ workspaceRoot: workspace.root, gateway: { id: "gw_1", workspace: "office" }, workspace: "office", signal },
    };
    const here = { path: "here.txt", bytes: 4, sha256: hash("sha256", "here") };
    assert.equal(new TextDecoder().decode(await readWritten(here, door)), "here");
    for (
      const [file, code, why] of [
        [
          { ...here, path: "there.txt" },
          "not_found",
          /^Cannot give "there.txt" at the gateway gw_1: .* another gateway/,
        ],
        [{ ...here, path: "../outside/secret.txt" }, "conflict", /outside/],
        [{ ...here, sha256: hash("sha256", "there") }, "conflict", /changed since/],
        [{ ...here, bytes: 67_108_865 }, "payload_too_large", /more than 67108864 bytes/],
      ] as const
    ) {
      await assert.rejects(
        readWritten(file, door),
        (error: HttpError) => error.code === code && why.test(error.message),
      );
    }
  }));

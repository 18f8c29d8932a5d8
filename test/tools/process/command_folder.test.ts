import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import { defaultConfig } from "../../../lib/config/config.ts";
import { createCommandFolders } from "../../../lib/memory/command_folders.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { keepFolder } from "../../../lib/tools/process/command_folder.ts";
import { withWorkspace } from "../../support/workspace.ts";

test("of lines that end at once the first one moves the conversation, and each is told where it is", () =>
  withWorkspace({}, async ({ root, path }) => {
    for (const name of ["a", "b", "c"]) mkdirSync(path(name));
    const config = defaultConfig();
    const commandFolders = createCommandFolders({ store: createMemoryStore() });
    const context = {
      workspaceRoot: root,
      conversationId: "here",
      config: {
        ...config,
        security: { ...config.security, shell: { ...config.security.shell, syntax: "contained" as const } },
      },
      services: { commandFolders },
    };
    const told = await Promise.all(["cd a", "cd b", "cd c", "ls"].map((line) => keepFolder(line, context)));
    assert.deepEqual(told, ["a", "a", "a", "a"]);
    assert.equal(await commandFolders.get("here"), "a");
    assert.equal(await keepFolder("cd './a' || exit\ncd ../b", context), "b");
  }));

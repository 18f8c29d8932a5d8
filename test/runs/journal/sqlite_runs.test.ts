import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { ask, readAll, supervised, textIn } from "../../support/supervised.ts";

test("runs and conversations outlive the process in the database", async () => {
  const folder = await mkdtemp(join(tmpdir(), "postern-runs-"));
  const path = join(folder, "postern.db");
  try {
    const first = await openSqliteStore({ path, clock: createFakeClock() });
    const before = supervised([{ text: ["Hel", "lo"], toolCalls: [{ name: "note" }] }, "Noted"], {
      store: first,
      tools: [{ name: "note", access: "state" }],
    });
    const handle = await before.runs.start(ask("Hi", { durable: true, conversationId: "talk" }));
    const live = await readAll(handle);
    await first.close();

    const second = await openSqliteStore({ path, clock: createFakeClock() });
    const after = supervised(["You said hi"], { store: second, seed: 2 });
    await after.runs.recover();
    assert.equal((await after.runs.get(handle.id))?.result, textIn(live));
    const replayed = [];
    for await (const batch of new RunStore(second).replay(handle.id, 0)) replayed.push(...batch);
    assert.deepEqual(replayed, live);
    await readAll(await after.runs.start(ask("What did I say?", { conversationId: "talk" })));
    const roles = after.provider.requests[0]?.messages.map((message) => message.role);
    assert.deepEqual(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    await second.close();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

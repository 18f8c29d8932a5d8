import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../../fixtures/scripted_provider.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createServices } from "../../../lib/gateway.ts";
import { toConfig } from "../../support/config_edits.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const HOUR = 3_600_000;

test("in a gateway a schedule fires under the policy: its question waits for a person, and its run goes on then", () =>
  withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const workspaceRoot = join(folder, "work");
    mkdirSync(workspaceRoot);
    const providers = createScriptedProviders(createScriptedProvider(["The gate is shut"], { clock }));
    const config = toConfig({
      storage: { driver: "memory" },
      cron: { enabled: true, timezone: "UTC" },
      security: { write_file: { enabled: true } },
    });
    const services = await createServices({
      config,
      dataDir: join(folder, "data"),
      workspaceRoot,
      home: folder,
      environment: {},
      version: "0.0.0-test",
      logSink: () => {},
      clock,
      providers,
    });
    try {
      const call = (name: string, input: unknown) =>
        services.tools.call({
          name,
          input: JSON.stringify(input),
          runId: "run_0",
          callId: "call_0",
          caller: { via: "cli", tokenId: null, scopes: ["admin"] },
          depth: 0,
          signal: new AbortController().signal,
          approver: ({ reason }) => Promise.resolve({ decision: "deny", reason }),
        });
      const until = async (status: string, id: string) => {
        // The file is written on a real disk, which keeps its own time
        for (let tries = 0; tries < 2000; tries++) {
          const run_status = (await services.cron.get(id))?.last?.run_status;
          if (run_status === status) return;
          // What took longer than one turn of the event loop has set its timer only now
          await clock.advance(0);
          await systemClock.sleep(5);
        }
        assert.fail(`it is not ${status}`);
      };
      await call("cron_add", { id: "ask", schedule: "hourly", prompt: "Is the gate shut?" });
      const input = { path: "gate.txt", content: "shut" };
      await call("schedule", { id: "write", in: "1h", tool: "write_file", input });
      await clock.advance(HOUR);
      await until("completed", "ask");
      const [asked] = (await services.cron.history("ask", { limit: 1 }))?.firings ?? [];
      assert.equal((await services.agent?.runs.get(asked?.run_id ?? ""))?.result, "The gate is shut");
      await until("waiting_for_approval", "write");
      const { approvals } = await services.approvals.list({ status: "pending", limit: 10 });
      assert.deepEqual(approvals.map((asked) => [asked.tool, asked.input]), [["write_file", input]]);
      await services.approvals.answer(approvals[0]?.id ?? "", {
        decision: "approve",
        by: { via: "cli", tokenId: null },
      });
      await until("completed", "write");
      assert.equal(readFileSync(join(workspaceRoot, "gate.txt"), "utf8"), "shut");
      await services.drain(1000);
      await clock.advance(5 * HOUR);
      assert.equal(
        (await services.cron.history("ask", { limit: 10 }))?.firings.length,
        1,
        "a drained gateway fires nothing",
      );
    } finally {
      await services.close();
    }
  }));

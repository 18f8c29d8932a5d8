import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../../fixtures/scripted_provider.ts";
import { createServices } from "../../../lib/gateway.ts";
import type { GatewayServices } from "../../../lib/services.ts";
import type { ToolResult } from "../../../lib/tools/runtime/tool_call.ts";
import type { SopExecutionView } from "../../../lib/tools/sops/sops.ts";
import { toConfig } from "../../support/config_edits.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";
import { toToolCall } from "../../support/tool_call.ts";

const HOUR = 3_600_000;

interface Bench {
  readonly services: GatewayServices;
  readonly clock: FakeClock;
  readonly workspaceRoot: string;
  call(tool: string, input: unknown): Promise<ToolResult>;
  /** Waits until the last run of a schedule has this status */
  ran(id: string, status: string): Promise<void>;
}

/** A gateway whose model says that the gate is shut. */
function withGateway(use: (bench: Bench) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const workspaceRoot = join(folder, "work");
    mkdirSync(workspaceRoot);
    const providers = createScriptedProviders(createScriptedProvider(["The gate is shut"], { clock }));
    const config = toConfig({
      storage: { driver: "memory" },
      cron: { enabled: true, timezone: "UTC" },
      security: { write_file: { enabled: true } },
      sops: { dirs: [join(folder, "sops")] },
    });
    const services = await createServices({
      config,
      folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
      environment: {},
      about: { version: "0.0.0-test" },
      log: { sink: () => {} },
      kit: { clock },
      models: { providers },
    });
    try {
      await use({
        services,
        clock,
        workspaceRoot,
        async call(name, input) {
          const { result } = await services.tools.call(toToolCall(name, JSON.stringify(input), {
            runId: "run_0",
            callId: "call_0",
            caller: { via: "cli", tokenId: null, scopes: ["admin"] },
          }));
          return result;
        },
        // The file is written on a real disk, which keeps its own time
        ran: (id, status) =>
          until(async () => {
            if ((await services.cron.get(id))?.last?.run_status === status) return true;
            // Work that took longer than one turn of the event loop has set its timer only now
            await clock.advance(0);
            return false;
          }, `it is not ${status}`),
      });
    } finally {
      await services.close();
    }
  });
}

test("in a gateway a schedule fires under the policy: its approval waits for a person, and its run goes on then", () =>
  withGateway(async ({ services, clock, workspaceRoot, call, ran }) => {
    await call("cron_add", { id: "ask", schedule: "hourly", prompt: "Is the gate shut?" });
    services.approvals.askers.add({ name: "a rule of [[notify]]", isOpen: () => true });
    const input = { path: "gate.txt", content: "shut" };
    await call("schedule", { id: "write", in: "1h", tool: "write_file", input });
    await clock.advance(HOUR);
    await ran("ask", "completed");
    const [asked] = (await services.cron.history("ask", { limit: 1 }))?.firings ?? [];
    assert.equal((await services.agent?.runs.get(asked?.run_id ?? ""))?.result, "The gate is shut");
    await ran("write", "waiting_for_approval");
    const { approvals } = await services.approvals.list({ status: "pending", limit: 10 });
    assert.deepEqual(approvals.map((asked) => [asked.tool, asked.input]), [["write_file", input]]);
    await services.approvals.answer(approvals[0]?.id ?? "", {
      decision: "approve",
      by: { via: "cli", tokenId: null },
    });
    await ran("write", "completed");
    assert.equal(readFileSync(join(workspaceRoot, "gate.txt"), "utf8"), "shut");
    await services.drain(1000);
    await clock.advance(5 * HOUR);
    assert.equal(
      (await services.cron.history("ask", { limit: 10 }))?.firings.length,
      1,
      "a drained gateway fires nothing",
    );
  }));

test("a schedule whose one tool is sop_execute starts a procedure whose steps have the tools of its maker", () =>
  withGateway(async ({ services, clock, workspaceRoot, call, ran }) => {
    writeFileSync(join(workspaceRoot, "gate.txt"), "shut");
    const sops = join(workspaceRoot, "../sops");
    mkdirSync(sops);
    writeFileSync(
      join(sops, "look.toml"),
      '[[steps]]\nid = "read"\ntool = "read_file"\ninput = { path = "gate.txt" }\n',
    );
    await call("schedule", { id: "look", in: "1h", tool: "sop_execute", input: { sop: "look" } });
    await clock.advance(HOUR);
    await ran("look", "completed");
    const { run_id } = (await services.cron.get("look"))?.last ?? assert.fail();
    const execution_id = /sop_\w+/.exec((await services.agent?.runs.get(run_id ?? ""))?.result ?? "")?.[0];
    const view = async () => (await call("sop_status", { execution_id })).data as SopExecutionView;
    await until(async () => ["completed", "failed"].includes((await view()).status));
    const { status, steps } = await view();
    assert.deepEqual([status, steps[0]?.output], ["completed", "shut"]);
  }));

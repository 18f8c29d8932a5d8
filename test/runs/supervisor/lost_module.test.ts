import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import process from "node:process";
import { test } from "node:test";
import { promisify } from "node:util";

/** Indented: whoever plans the tests reads imports at the begin of a line */
const SCRIPT = `
  import { registerHooks } from "node:module";
  import { SILENT } from "./lib/base/telemetry/log.ts";
  import { createMetrics } from "./lib/base/telemetry/metrics.ts";
  import { StoredApprovals } from "./lib/guard/stored_approvals.ts";
  import { createApprover } from "./lib/runs/supervisor/create_approver.ts";
  import { createMemoryStore } from "./lib/storage/create_memory_store.ts";
  import { createFakeAudit } from "./test/support/fake_audit.ts";
  import { createFakeClock } from "./test/support/fake_clock.ts";
  import { createSeededRandom } from "./test/support/seeded_random.ts";
  import { ask, readAll, supervised } from "./test/support/supervised.ts";

  registerHooks({
    resolve(specifier, context, next) {
      if (specifier.endsWith("/describe_approval.ts")) throw new Error("The file is gone");
      return next(specifier, context);
    },
  });
  const store = createMemoryStore();
  const clock = createFakeClock();
  const approvals = new StoredApprovals({
    ...{ store, clock, random: createSeededRandom(7), log: SILENT, metrics: createMetrics() },
    audit: createFakeAudit(store).append,
  });
  const elicitation = { message: "Who?", schema: { type: "object", properties: {}, required: [] }, url: null };
  const request = { elicitation, access: "read", input: {}, inputDigest: "d", workspaceRoot: "/w" };
  const run = (_input, { approver, callId, scope }) => approver.elicit({ ...request, tool: "asks", callId, scope }, scope.signal);
  const { runs } = supervised(
    ({ messages }) => (messages.at(-1).role === "tool" ? "Done" : { toolCalls: [{ name: "writes" }, { name: "asks" }] }),
    {
      ...{ store, clock, approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: 1000, durable: 1000 }) }) },
      tools: [
        { name: "writes", access: "write", decision: "ask", run: () => "written" },
        { name: "asks", access: "read", decision: "allow", run },
      ],
    },
  );
  const events = await readAll(await runs.start(ask("go", { canApprove: true })));
  const failed = events.filter(({ type, is_error }) => type === "tool_end" && is_error).map(({ tool }) => tool).sort();
  console.log(JSON.stringify({ failed, filed: (await approvals.list({ limit: 10 })).approvals.length }));
`;

// An upgrade in place takes files away that a gateway at work has not loaded yet
test("no approval is left waiting for a call that failed since its description cannot be loaded", {
  skip: "Deno" in globalThis && "Deno has no hooks of modules",
}, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", SCRIPT]);
  assert.deepEqual(JSON.parse(stdout), { failed: ["asks", "writes"], filed: 0 });
});

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { jsonOf, type RunningGateway, type RunningGatewayOptions, until, withWorld } from "../support/world.ts";

const FILES = { "notes.txt": "old\n" };
const CONFIG = { security: { write_file: { enabled: true } } };
const WRITE = { path: "notes.txt", content: "new\n", overwrite: true };

/** The model reads the file, writes it, reads it again and tells what it then holds. */
const READ_WRITE_READ: Script = [
  { toolCalls: [{ name: "read_file", arguments: { path: "notes.txt" } }] },
  { toolCalls: [{ name: "write_file", arguments: WRITE }] },
  { toolCalls: [{ name: "read_file", arguments: { path: "notes.txt" } }] },
  "Done",
];

const withGateway = (options: RunningGatewayOptions, use: (gateway: RunningGateway) => Promise<void>) =>
  withWorld(async (world) => {
    await use(await world.gateway({ files: FILES, ...options, config: { ...CONFIG, ...options.config } }));
  });

const notes = ({ workspace }: RunningGateway) => readFileSync(workspace.path("notes.txt"), "utf8");
/** The one question that waits, once it does. */
async function waitingId(gateway: RunningGateway): Promise<string> {
  let id: string | undefined;
  await until(async () => {
    const { data } = await jsonOf(gateway.call("/v1/approvals?status=pending"));
    return (id = data[0]?.id) !== undefined;
  });
  return String(id);
}

const answer = (gateway: RunningGateway, id: unknown, body: unknown) => gateway.call(`/v1/approvals/${id}`, { body });

test("a durable run that asks and is restarted goes on once it is approved", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const workspace = await world.workspace(FILES);
    const options = { workspace, dataDir: join(folder, "data") };
    let [id, runId] = ["", ""];
    await withGateway({ ...options, script: READ_WRITE_READ }, async (gateway) => {
      // Somebody looks at what waits before the agent asks
      await gateway.call("/v1/approvals");
      runId = (await jsonOf(gateway.call("/v1/webhook/default", { body: { message: "Change it" } }))).run_id;
      id = await waitingId(gateway);
    });
    await withGateway({ ...options, script: READ_WRITE_READ.slice(2) }, async (gateway) => {
      assert.equal(await waitingId(gateway), id, "the question is the same");
      const { run_status } = await jsonOf(answer(gateway, id, { decision: "approve" }));
      assert.equal(run_status, "waiting_for_approval", "the run that asked is there");
      const events = await (await gateway.call(`/v1/runs/${runId}/events`)).text();
      assert.match(events, /"type":"done"/);
      assert.equal(notes(gateway), "new\n");
      assert.equal((await jsonOf(gateway.call(`/v1/runs/${runId}`))).status, "completed");
      assert.equal(events.match(/"type":"approval_needed"/g)?.length, 1, "and was asked once");
      assert.equal(gateway.provider.requests.length, 2, "what was finished is not asked for again");
    });
  }));

test("an approved tool call over HTTP is the very call: a byte of difference is refused, and it runs once", () =>
  withGateway({}, async (gateway) => {
    const path = "/v1/tools/write_file/call";
    const call = (input: unknown, more: Readonly<Record<string, unknown>> = {}) =>
      jsonOf(gateway.call(path, { body: { input, ...more } }));
    const { approval_id, output } = await call(WRITE);
    assert.ok(output.includes(`then repeat this call with "approval_id": "${approval_id}"`), output);
    const early = await call(WRITE, { approval_id });
    assert.deepEqual([early.is_error, early.approval_id], [true, approval_id]);
    assert.equal((await answer(gateway, approval_id, { decision: "approve" })).status, 200);
    const other = await call({ ...WRITE, content: "neW\n" }, { approval_id });
    assert.match(other.output, /not the one that was approved/);
    writeFileSync(gateway.workspace.path("notes.txt"), "olD\n");
    assert.match((await call(WRITE, { approval_id })).output, /not the one that was approved/);
    writeFileSync(gateway.workspace.path("notes.txt"), FILES["notes.txt"]);
    const both = await Promise.all([call(WRITE, { approval_id }), call(WRITE, { approval_id })]);
    assert.equal(both.filter(({ is_error }) => !is_error).length, 1);
    assert.equal(notes(gateway), "new\n");
    assert.match((await call(WRITE, { approval_id: "apr_made_up" })).output, /never existed/);
    const granted = await call(WRITE, { approved: true });
    assert.equal(granted.is_error, false);
    const { data } = await jsonOf(gateway.call("/v1/approvals?status=approved"));
    assert.deepEqual(data.map(({ answered_by }: { answered_by: string }) => answered_by), ["env", "env"]);
  }));

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import {
  type ChatClient,
  jsonOf,
  type ReceivedFrame,
  type RunningGateway,
  type RunningGatewayOptions,
  until,
  withWorld,
} from "../support/world.ts";

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

async function openEvents(gateway: RunningGateway, token = gateway.token): Promise<ChatClient> {
  const client = await gateway.chat(token);
  client.send({ type: "hello", events: true });
  return client;
}

const isNeeded = ({ type }: ReceivedFrame) => type === "approval_needed";
const notes = ({ workspace }: RunningGateway) => readFileSync(workspace.path("notes.txt"), "utf8");
const outputs = (frames: readonly ReceivedFrame[]) =>
  frames.filter(({ type }) => type === "tool_end").map(({ output }) => output);
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

test("read, ask, approve, write, read back: over one socket", () =>
  withGateway({ script: READ_WRITE_READ }, async (gateway) => {
    const client = await openEvents(gateway);
    client.send("Change the notes");
    const asked = (await client.readUntil(isNeeded)).at(-1);
    assert.deepEqual([asked?.["tool"], asked?.["input"]], ["write_file", WRITE]);
    assert.equal(notes(gateway), "old\n");
    client.send({ type: "approve", approval_id: asked?.["approval_id"] });
    const rest = await client.readReply();
    assert.deepEqual(rest.filter(({ type }) => /approval|tool|done/.test(type)).map(({ type }) => type), [
      "approval_answered",
      "tool_start",
      "tool_end",
      "tool_start",
      "tool_end",
      "done",
    ]);
    assert.equal(outputs(rest).at(-1), "new\n");
    assert.equal(notes(gateway), "new\n");
    await client.leave();
  }));

test("asked over the socket, answered over HTTP: a denial reaches the model with its note", () =>
  withGateway({ script: READ_WRITE_READ }, async (gateway) => {
    const client = await openEvents(gateway);
    client.send("Change the notes");
    await client.readUntil(isNeeded);
    const { data: [waiting] } = await jsonOf(gateway.call("/v1/approvals?status=pending"));
    assert.equal((await answer(gateway, waiting.id, { decision: "deny", note: "keep the old" })).status, 200);
    const rest = await client.readReply();
    assert.deepEqual(outputs(rest), ['Cannot call "write_file": a person denied it: keep the old', "old\n"]);
    assert.match(String(gateway.provider.requests.at(-2)?.messages.at(-1)?.content), /keep the old/);
    assert.match(await (await gateway.call("/metrics")).text(), /postern_approvals_total\{decision="denied"\} 1\n/);
    await client.leave();
  }));

test("a client that leaves takes its question along", () =>
  withGateway({ script: READ_WRITE_READ }, async (gateway) => {
    const client = await openEvents(gateway);
    client.send("Change the notes");
    const asked = (await client.readUntil(isNeeded)).at(-1);
    await client.leave();
    const path = `/v1/approvals/${asked?.["approval_id"]}`;
    await until(async () => (await jsonOf(gateway.call(path))).status === "cancelled");
    assert.equal(notes(gateway), "old\n");
  }));

test("asked, restarted, approved, restarted: the repeated tool call runs, once", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const workspace = await world.workspace(FILES);
    const options = { workspace, dataDir: join(folder, "data") };
    const call = (gateway: RunningGateway, more: Readonly<Record<string, unknown>> = {}) =>
      jsonOf(gateway.call("/v1/tools/write_file/call", { body: { input: WRITE, ...more } }));
    let approval_id = "";
    await withGateway(options, async (gateway) => {
      const asked = await call(gateway);
      assert.match(asked.output, /then repeat this call with "approval_id": "apr_/);
      approval_id = asked.approval_id;
    });
    await withGateway(options, async (gateway) => {
      const approval = await jsonOf(gateway.call(`/v1/approvals/${approval_id}`));
      assert.deepEqual([approval.status, approval.input], ["pending", WRITE]);
      assert.equal((await answer(gateway, approval_id, { decision: "approve" })).status, 200);
    });
    await withGateway(options, async (gateway) => {
      assert.equal((await call(gateway, { approval_id })).is_error, false);
      assert.equal(notes(gateway), "new\n");
      assert.match((await call(gateway, { approval_id })).output, /has let its one call through/);
    });
  }));

test("asked, killed, approved, killed: the repeated tool call runs, once", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    writeFileSync(join(folder, "notes.txt"), FILES["notes.txt"]);
    const token = "token-of-the-killed-gateway-0123456789";
    const config = '[provider]\nkind = "offline"\n[security.write_file]\nenabled = true\n';
    // Each gateway ends by SIGKILL
    const post = async (path: string, body: unknown) => {
      let reply: unknown;
      await world.during(world.gatewayProcess({ folder, config, token }), async (gateway) => {
        reply = await jsonOf(gateway.call(path, { body }));
      });
      // deno-lint-ignore no-explicit-any -- replies are asserted, not used
      return reply as any;
    };
    const { approval_id } = await post("/v1/tools/write_file/call", { input: WRITE });
    assert.equal((await post(`/v1/approvals/${approval_id}`, { decision: "approve" })).status, "approved");
    assert.equal((await post("/v1/tools/write_file/call", { input: WRITE, approval_id })).is_error, false);
    assert.equal(readFileSync(join(folder, "notes.txt"), "utf8"), WRITE.content);
    assert.match((await post("/v1/tools/write_file/call", { input: WRITE, approval_id })).output, /its one call/);
  }));

for (const [decision, content] of [["approve", "new\n"], ["deny", "old\n"]] as const) {
  test(`a durable run that asks and is restarted goes on once it is answered: ${decision}`, () =>
    withWorld(async (world) => {
      const folder = await world.folder();
      const workspace = await world.workspace(FILES);
      const options = { workspace, dataDir: join(folder, "data") };
      let [id, runId] = ["", ""];
      await withGateway({ ...options, script: READ_WRITE_READ }, async (gateway) => {
        runId = (await jsonOf(gateway.call("/v1/webhook/default", { body: { message: "Change it" } }))).run_id;
        id = await waitingId(gateway);
      });
      await withGateway({ ...options, script: READ_WRITE_READ.slice(2) }, async (gateway) => {
        assert.equal(await waitingId(gateway), id, "the question is the same");
        const { run_status } = await jsonOf(answer(gateway, id, { decision }));
        assert.equal(run_status, "waiting_for_approval", "the run that asked is there");
        const events = await (await gateway.call(`/v1/runs/${runId}/events`)).text();
        assert.match(events, /"type":"done"/);
        assert.equal(notes(gateway), content);
        assert.equal((await jsonOf(gateway.call(`/v1/runs/${runId}`))).status, "completed");
        assert.equal(events.match(/"type":"approval_needed"/g)?.length, 1, "and was asked once");
        assert.equal(gateway.provider.requests.length, 2, "what was finished is not asked for again");
      });
    }));
}

test("an approved tool call over HTTP is the very call: a byte of difference is refused, and it runs once", () =>
  withGateway({}, async (gateway) => {
    const path = "/v1/tools/write_file/call";
    const call = (input: unknown, more: Readonly<Record<string, unknown>> = {}) =>
      jsonOf(gateway.call(path, { body: { input, ...more } }));
    const { approval_id } = await call(WRITE);
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

test("a durable run waits for a person, whom nobody's connection keeps", () =>
  withGateway({ script: READ_WRITE_READ }, async (gateway) => {
    const { run_id } = await jsonOf(gateway.call("/v1/webhook/default", { body: { message: "Change the notes" } }));
    const statusNow = async () => (await gateway.services.agent?.runs.get(run_id))?.status;
    const id = await waitingId(gateway);
    await until(async () => await statusNow() === "waiting_for_approval");
    await answer(gateway, id, { decision: "approve" });
    await until(async () => await statusNow() === "completed");
    assert.equal(notes(gateway), "new\n");
  }));

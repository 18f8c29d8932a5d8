import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { AuditRecord } from "../../lib/guard/audit/audit_chain.ts";
import { jsonOf, withWorld } from "../support/world.ts";

const WRITE = { path: "notes.txt", content: "new\n", overwrite: true };
const CONFIG = { security: { write_file: { enabled: true } } };

const shown = (record: AuditRecord) => {
  switch (record.type) {
    case "decision":
      return `${record.tool}: ${record.decision} by ${record.rule}`;
    case "call":
      return `${record.tool}: ${record.outcome}`;
    case "approval":
      return `${record.tool}: ${record.action} by ${record.by?.via ?? "nobody"}`;
    default:
      return record.type;
  }
};

test("a run with a read, a denied and an approved write is in the audit, in order, and nothing of a plain reply is", () =>
  withWorld(async (world) => {
    const script = [
      "A plain reply",
      { toolCalls: [{ name: "read_file", arguments: { path: "notes.txt" } }] },
      { toolCalls: [{ name: "write_file", arguments: { ...WRITE, content: "bad\n" } }] },
      { toolCalls: [{ name: "write_file", arguments: WRITE }] },
      "Done",
    ];
    const gateway = await world.gateway({ config: CONFIG, files: { "notes.txt": "old\n" }, script });
    const list = async () => {
      const { data } = await jsonOf(gateway.call("/v1/audit?limit=100"));
      return (data as AuditRecord[]).reverse();
    };
    await gateway.call("/v1/chat/completions", { body: { messages: [{ role: "user", content: "Hi" }] } });
    assert.deepEqual(await list(), []);

    const chat = await gateway.chat();
    chat.send({ type: "hello", events: true });
    chat.send("Write it");
    for (const decision of ["deny", "approve"]) {
      const needed = (await chat.readUntil(({ type }) => type === "approval_needed")).at(-1);
      await gateway.call(`/v1/approvals/${needed?.["approval_id"]}`, { body: { decision } });
    }
    await chat.readReply();
    chat.socket.close();

    const records = await list();
    assert.deepEqual(records.map(shown), [
      "read_file: allow by level:supervised/read",
      "read_file: ok",
      "write_file: ask by level:supervised/write",
      "write_file: asked by websocket",
      "write_file: denied by http",
      "write_file: deny by approval",
      "write_file: ask by level:supervised/write",
      "write_file: asked by websocket",
      "write_file: approved by http",
      "write_file: used by nobody",
      "write_file: allow by approval",
      "write_file: ok",
    ]);
    assert.equal(new Set(records.map((record) => "run_id" in record && record.run_id)).size, 1);
    assert.ok(!JSON.stringify(records).includes("new\\\\n"), "an input is not in the audit");
  }));

test("a record that another program changes under the running gateway is named by it", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ files: { "notes.txt": "old\n" } });
    const read = () => gateway.call("/v1/tools/read_file/call", { body: { input: { path: "notes.txt" } } });
    for (let count = 0; count < 3; count++) await read();
    assert.equal((await jsonOf(gateway.call("/v1/audit/verify"))).ok, true);
    const database = new DatabaseSync(join(gateway.dataDir, "postern.db"));
    database.exec(
      "UPDATE records SET body = replace(body, 'notes.txt', 'other.txt') WHERE collection = 'audit' AND key LIKE '%03'",
    );
    database.close();
    await read();
    const report = await jsonOf(gateway.call("/v1/audit/verify"));
    assert.equal(report.ok, false);
    assert.deepEqual(report.problems.map(({ seq, code }: { seq: number; code: string }) => [seq, code]), [[
      3,
      "altered",
    ]]);
    assert.equal(report.records, 8);
  }));

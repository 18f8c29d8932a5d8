import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { SOP_EXECUTIONS } from "../../lib/automation/sops/execution_record.ts";
import { endMember, startMember } from "../support/cluster_member.ts";
import { createSharedDatabase } from "../support/clustered.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { type CallChanges, toToolCall } from "../support/tool_call.ts";

const PROCEDURE = `
[[steps]]
id = "call"
manual = "Call somebody"
`;

/** A call that a client makes itself. */
const DIRECT: CallChanges = {
  caller: { via: "http", tokenId: "tok_1", scopes: ["tools", "runs"] },
  direct: true,
  approver: () => Promise.reject(new Error("Nobody is asked")),
};

/** Calls whose work is in the database. */
const CALLS: Readonly<Record<string, object>> = {
  sop_execute: { sop: "release" },
  task_plan: { op: "create", tasks: ["first"] },
  memory_store: { key: "color", value: "blue" },
};

/** Headers and body of a call over MCP without a session. */
function overMcp(name: string, input: object) {
  return {
    headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name },
    body: {
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: {
        name,
        arguments: input,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": {},
        },
      },
    },
  };
}

test("a call that finds the database down is 503 storage_unavailable at every door, and may be repeated", () =>
  withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    mkdirSync(join(folder, "a", "data", "sops"), { recursive: true });
    writeFileSync(join(folder, "a", "data", "sops", "release.toml"), PROCEDURE);
    const member = await startMember(database, join(folder, "a"), { config: { autonomy: { level: "full" } } });
    const { services } = member;
    const router = createRouter({ services, routes: ROUTES });
    const { token } = await services.tokens.issue({ scopes: ["admin"], label: "" });
    await database.clock.advance(1_000);
    const post = (path: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
      router.fetch(
        new Request(`http://127.0.0.1${path}`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${token}`,
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            ...headers,
          },
          body: JSON.stringify(body),
        }),
        { remoteAddress: "127.0.0.1" },
      );
    /** Makes a call during which the database goes away, once its decision is recorded. */
    const cut = async (call: () => Response | Promise<Response>) => {
      const { onResult } = database;
      database.onResult = async (operation, writes) => {
        await onResult(operation, writes);
        if (operation === "batch" && JSON.stringify(writes).includes('"decision":"allow"')) database.isAway = true;
      };
      const reply = await call();
      const text = await reply.text();
      assert.equal(database.isAway, true, `the database never went away: ${text}`);
      database.onResult = onResult;
      database.isAway = false;
      await database.clock.advance(2_000);
      return { reply, text };
    };
    for (const [name, input] of Object.entries(CALLS)) {
      const { reply, text } = await cut(() => post(`/v1/tools/${name}/call`, { input }));
      assert.equal(reply.status, 503, `${name}: ${text}`);
      assert.equal((JSON.parse(text) as { error: { code: string } }).error.code, "storage_unavailable");
      assert.match(reply.headers.get("retry-after") ?? "", /^\d+$/);
      assert.equal(reply.headers.get("x-should-retry"), null, "nothing has happened");
      const mcp = overMcp(name, input);
      const told = await cut(() => post("/mcp", mcp.body, mcp.headers));
      assert.match(told.text, /"code":-32603.*"data":\{"code":"storage_unavailable"\}/);
      const again = await post(`/v1/tools/${name}/call`, { input });
      assert.equal((await again.json() as { is_error: boolean }).is_error, false, name);
    }
    assert.equal(await database.store.count(SOP_EXECUTIONS.name), 1);
    await endMember(database, member);
  }));

test("a gateway that closes while the database is down waits for no record of its calls any more", () =>
  withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const member = await startMember(database, join(folder, "a"), { config: { autonomy: { level: "full" } } });
    await database.clock.advance(1_000);
    database.onResult = (operation, writes) => {
      if (operation === "batch" && JSON.stringify(writes).includes("color")) database.isAway = true;
      return Promise.resolve();
    };
    const { result } = await member.services.tools.call(
      toToolCall("memory_store", JSON.stringify(CALLS["memory_store"]), DIRECT),
    );
    assert.equal(database.isAway, true, result.output);
    await endMember(database, member);
    assert.equal(database.clock.pending(), 0, "no timer is left");
  }));

test("a procedure that has begun says so when the database goes away before it can be shown", () =>
  withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    mkdirSync(join(folder, "a", "data", "sops"), { recursive: true });
    writeFileSync(join(folder, "a", "data", "sops", "release.toml"), PROCEDURE);
    const member = await startMember(database, join(folder, "a"), { config: { autonomy: { level: "full" } } });
    const { services } = member;
    await database.clock.advance(1_000);
    database.onResult = (operation, writes) => {
      if (operation === "batch" && JSON.stringify(writes).includes(SOP_EXECUTIONS.name)) database.isAway = true;
      return Promise.resolve();
    };
    const { result } = await services.tools.call(
      toToolCall("sop_execute", JSON.stringify(CALLS["sop_execute"]), DIRECT),
    );
    assert.equal(result.isError, true);
    assert.match(result.output, /it was started, and the database went down after that/);
    database.isAway = false;
    await database.clock.advance(2_000);
    assert.equal(await database.store.count(SOP_EXECUTIONS.name), 1);
    await endMember(database, member);
  }));

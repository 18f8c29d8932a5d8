/** Clients of raw JSON-RPC: the official one takes no tasks. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProgramProvider } from "../../../handlers/mod.ts";
import { type McpEra, type McpGateway, withMcpGateway } from "../../support/mcp_gateway.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const EXTENSION = "io.modelcontextprotocol/tasks";
const NO_TASK = { code: -32602, message: "Failed to retrieve task: Task not found" };

/** Does what the last message of the user says: `answer`, `wait`, `fail` or `write`. */
const model: ProgramProvider = {
  models: ["model"],
  maxRetries: 0,
  async *stream({ messages }, { signal }) {
    const word = messages.findLast(({ role }) => role === "user")?.content;
    const isSecond = messages.at(-1)?.role === "tool";
    if (word === "fail") throw new Error("no luck");
    if (word === "wait") {
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    }
    if (word === "write" && !isSecond) {
      const input = JSON.stringify({ path: "note.txt", content: "Hi" });
      yield { type: "tool_call_delta", index: 0, call_id: "one", name: "write_file", arguments_delta: input };
      return yield { type: "finish", finish_reason: "tool_calls" };
    }
    yield { type: "text_delta", delta: `done: ${isSecond}` };
    yield { type: "finish", finish_reason: "stop" };
  },
};

const OPTIONS = {
  providers: { model },
  config: { autonomy: { level: "supervised" as const }, security: { write_file: { enabled: true } } },
};

/** Fields of tasks and of what else the methods answer. */
interface Reply {
  readonly status: number;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

type Call = (method: string, params?: Readonly<Record<string, unknown>>) => Promise<Reply>;

interface RawOptions {
  readonly token: string;
  readonly era: McpEra;
  /** Capabilities of the client. Default: the extension, and addresses */
  readonly capabilities?: Readonly<Record<string, unknown>>;
}

async function connectRaw({ send }: McpGateway, { token, era, capabilities = ALL }: RawOptions): Promise<Call> {
  let count = 0;
  const post = async (body: Readonly<Record<string, unknown>>, headers: Readonly<Record<string, string>>) => {
    const reply = await send({ token, headers, body: { jsonrpc: "2.0", ...body } });
    const text = await reply.text();
    const data = /^data: (\{.*"(?:result|error)".*)$/m.exec(text)?.[1] ?? text;
    return { reply, answer: { status: reply.status, ...data === "" ? {} : JSON.parse(data) } as Reply };
  };
  const clientInfo = { name: "raw", version: "1" };
  if (era === "2025-11-25") {
    const params = { protocolVersion: era, capabilities, clientInfo };
    const { reply } = await post({ id: ++count, method: "initialize", params }, {});
    const session = { "mcp-session-id": reply.headers.get("mcp-session-id") ?? "" };
    await post({ method: "notifications/initialized" }, session);
    return async (method, params = {}) => (await post({ id: ++count, method, params }, session)).answer;
  }
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": era,
    "io.modelcontextprotocol/clientInfo": clientInfo,
    "io.modelcontextprotocol/clientCapabilities": capabilities,
  };
  return async (method, params = {}) => {
    const name = params["taskId"] ?? params["name"];
    const headers = {
      "mcp-protocol-version": era,
      "mcp-method": method,
      ...(name === undefined ? {} : { "mcp-name": String(name) }),
    };
    return (await post({ id: ++count, method, params: { ...params, _meta } }, headers)).answer;
  };
}

const ALL = { extensions: { [EXTENSION]: {} }, elicitation: { url: {} } };

function start(call: Call, message: string, more: Readonly<Record<string, unknown>> = {}): Promise<Reply> {
  return call("tools/call", { name: "run_start", arguments: { message, model: "model/model" }, ...more });
}

/** Asks for a task until it has this state. */
async function reach(call: Call, taskId: unknown, status: string) {
  let task: Readonly<Record<string, unknown>> | undefined;
  await until(async () => {
    const { result } = await call("tasks/get", { taskId });
    task = result;
    return task?.["status"] === status;
  }, () => `it is ${JSON.stringify(task)}`);
  return task ?? {};
}

test("2026-07-28: a run is a task of the extension, with its result, its error, its cancellation and what it waits for", () =>
  withMcpGateway(OPTIONS, async (gateway) => {
    const token = await gateway.token("tools", "runs");
    const call = await connectRaw(gateway, { token, era: "2026-07-28" });
    const { capabilities } = (await call("server/discover")).result as { capabilities: Record<string, unknown> };
    assert.deepEqual([capabilities["extensions"], capabilities["tasks"]], [{ [EXTENSION]: {} }, undefined]);

    const { result: begun = {} } = await start(call, "answer");
    assert.equal(begun["resultType"], "task");
    assert.ok(["working", "completed"].includes(String(begun["status"])));
    assert.deepEqual([begun["ttlMs"], begun["pollIntervalMs"]], [null, 2000]);
    assert.match(String(begun["createdAt"]), /^\d{4}-/);
    const { taskId } = begun;
    const ended = await reach(call, taskId, "completed");
    assert.equal(ended["resultType"], "complete");
    assert.match(JSON.stringify(ended["result"]), new RegExp(`Run ${taskId} is completed\\\\n\\\\ndone: false`));
    assert.ok(Number(ended["ttlMs"]) >= 30 * 86_400_000);
    assert.deepEqual((await call("tasks/cancel", { taskId })).result?.["resultType"], "complete", "a second time too");

    const failing = await start(call, "fail");
    const failed = await reach(call, failing.result?.["taskId"], "completed");
    assert.equal(
      (failed["result"] as { isError: boolean }).isError,
      true,
      "an error of the work is no error of JSON-RPC",
    );

    const { result: waiting = {} } = await start(call, "wait");
    const { result: acknowledged } = await call("tasks/cancel", { taskId: waiting["taskId"] });
    assert.deepEqual([acknowledged?.["resultType"], acknowledged?.["status"]], ["complete", undefined]);
    await reach(call, waiting["taskId"], "cancelled");

    // This token may not approve by itself, and nobody looks at what waits: its client opens addresses
    const { result: writing = {} } = await start(call, "write");
    const asked = await reach(call, writing["taskId"], "input_required");
    const [[id = "", question] = []] = Object.entries(asked["inputRequests"] as Record<string, { params: unknown }>);
    assert.match(id, /^apr_/);
    assert.match(JSON.stringify(question), new RegExp(`"mode":"url".*/#approvals/${id}"`));
    const plain = await connectRaw(gateway, { token, era: "2026-07-28", capabilities: { extensions: ALL.extensions } });
    assert.equal((await plain("tasks/get", { taskId: writing["taskId"] })).result?.["status"], "working");
    const answer = { taskId: writing["taskId"], inputResponses: { [id]: { action: "accept" }, none: {} } };
    assert.equal((await call("tasks/update", answer)).result?.["resultType"], "complete");
    const shown = await reach(call, writing["taskId"], "working");
    assert.match(String(shown["statusMessage"]), new RegExp(`waits for a person's answer at .*${id}`));
    await gateway.ask("POST", `/v1/approvals/${id}`, { decision: "approve" });
    const written = await reach(call, writing["taskId"], "completed");
    assert.match(JSON.stringify(written["result"]), /done: true/);
  }));

test("2025-11-25: a call that asks for a task gets one, with its list, its result and its cancellation", () =>
  withMcpGateway(OPTIONS, async (gateway) => {
    const token = await gateway.token("tools", "runs");
    const call = await connectRaw(gateway, { token, era: "2025-11-25", capabilities: {} });
    const { tools } = (await call("tools/list")).result as { tools: { name: string; execution?: unknown }[] };
    assert.deepEqual(tools.filter(({ execution }) => execution !== undefined).map(({ name }) => name), ["run_start"]);

    const plain = await start(call, "answer");
    assert.equal(plain.result?.["task"], undefined, "nobody asked for a task");
    const begun = await start(call, "answer", { task: { ttl: 60_000 } });
    const { taskId, ttl, pollInterval } = begun.result?.["task"] as Record<string, unknown>;
    assert.deepEqual([ttl, pollInterval], [null, 2000]);
    const { result = {} } = await call("tasks/result", { taskId });
    assert.match(JSON.stringify(result["content"]), /done: false/);
    assert.deepEqual(result["_meta"], { "io.modelcontextprotocol/related-task": { taskId } });
    assert.equal((await call("tasks/get", { taskId })).result?.["status"], "completed");
    const late = await call("tasks/cancel", { taskId });
    assert.deepEqual(late.error, {
      code: -32602,
      message: "Cannot cancel task: already in terminal status 'completed'",
    });

    const failing = (await start(call, "fail", { task: {} })).result?.["task"] as { taskId: string };
    const failed = await reach(call, failing.taskId, "failed");
    assert.match(String(failed["statusMessage"]), /./);

    const waiting = (await start(call, "wait", { task: {} })).result?.["task"] as { taskId: string };
    const cancelled = await call("tasks/cancel", { taskId: waiting.taskId });
    assert.equal(cancelled.result?.["status"], "cancelled");
    const { tasks } = (await call("tasks/list")).result as { tasks: { taskId: string }[] };
    assert.deepEqual(tasks.map((task) => task.taskId).slice(0, 3), [waiting.taskId, failing.taskId, taskId]);
    const other = { name: "echo", arguments: { text: "Hi" }, task: {} };
    assert.equal((await call("tools/call", other)).error?.code, -32601, "only runs become tasks");
    assert.equal((await call("tasks/list", { cursor: "../x" })).error?.code, -32602);
  }));

test("a task exists for the token that began it alone, and for clients that may have tasks", () =>
  withMcpGateway(OPTIONS, async (gateway) => {
    const token = await gateway.token("tools", "runs");
    const call = await connectRaw(gateway, { token, era: "2026-07-28" });
    const taskId = (await start(call, "wait")).result?.["taskId"];
    for (const era of ["2025-11-25", "2026-07-28"] as const) {
      const stranger = await connectRaw(gateway, { token: await gateway.token("tools", "runs"), era });
      const methods = era === "2025-11-25"
        ? ["tasks/get", "tasks/cancel", "tasks/result"]
        : ["tasks/get", "tasks/cancel"];
      for (const id of [taskId, "run_none", "../etc", "x".repeat(64)]) {
        for (const method of methods) {
          const { error } = await stranger(method, { taskId: id });
          assert.deepEqual({ code: error?.code, message: error?.message }, NO_TASK, `${era} ${method} ${id}`);
        }
      }
      if (era === "2025-11-25") assert.deepEqual((await stranger("tasks/list")).result?.["tasks"], []);
      const poor = await connectRaw(gateway, { token: await gateway.token("tools"), era });
      assert.match(JSON.stringify(await poor("tasks/get", { taskId })), /lacks the scope \\"runs\\"/);
      assert.match(JSON.stringify(await start(poor, "answer", { task: {} })), /lacks the scope \\"runs\\"/);
    }
    const { error } = await call("tasks/update", { taskId: "run_none", inputResponses: {} });
    assert.deepEqual({ code: error?.code, message: error?.message }, NO_TASK);
    for (const method of ["tasks/result", "tasks/list"]) {
      assert.equal((await call(method, { taskId })).error?.code, -32601, "those are of the earlier revision");
    }

    const undeclared = await connectRaw(gateway, { token, era: "2026-07-28", capabilities: {} });
    assert.equal((await start(undeclared, "answer")).result?.["resultType"], "complete");
    for (const method of ["tasks/get", "tasks/cancel", "tasks/update"]) {
      const { status, error: missing } = await undeclared(method, { taskId, inputResponses: {} });
      assert.deepEqual([status, missing?.code, missing?.data], [400, -32021, {
        requiredCapabilities: { extensions: { [EXTENSION]: {} } },
      }]);
    }
    const listened = await undeclared("subscriptions/listen", { notifications: { taskIds: [taskId] } });
    assert.deepEqual([listened.status, listened.error?.code], [400, -32021]);
    await call("tasks/cancel", { taskId });
  }));

test("a task outlives the gateway's process, for the token that began it", () =>
  withTemporaryFolder(async (dataDir) => {
    const options = { ...OPTIONS, dataDir };
    let token = "";
    const ids: unknown[] = [];
    await withMcpGateway(options, async (gateway) => {
      token = await gateway.token("tools", "runs");
      const call = await connectRaw(gateway, { token, era: "2026-07-28" });
      for (const word of ["answer", "wait"]) ids.push((await start(call, word)).result?.["taskId"]);
      await reach(call, ids[0], "completed");
    });
    await withMcpGateway(options, async (gateway) => {
      const call = await connectRaw(gateway, { token, era: "2026-07-28" });
      assert.match(JSON.stringify((await reach(call, ids[0], "completed"))["result"]), /done: false/);
      await reach(call, ids[1], "working");
      await call("tasks/cancel", { taskId: ids[1] });
      await reach(call, ids[1], "cancelled");
      const stranger = await connectRaw(gateway, { token: await gateway.token("tools", "runs"), era: "2026-07-28" });
      assert.deepEqual((await stranger("tasks/get", { taskId: ids[1] })).error, NO_TASK);
    });
  }));

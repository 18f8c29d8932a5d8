import { createConsola } from "consola/core";
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { defineTool, type GatewayOptions, HttpError } from "../../handlers/mod.ts";
import { createTestGateway, scriptedProvider } from "../../handlers/testing/mod.ts";
import { ConfigError } from "../../lib/base/errors.ts";

const BASE = {
  description: "x",
  outside: false,
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
};
const say = defineTool({ ...BASE, name: "say", access: "read", execute: ({ text }) => ({ said: text }) });
const write = defineTool({ ...BASE, name: "write_it", access: "write", execute: () => "written" });
const model = scriptedProvider((request) => {
  const text = JSON.stringify(request.messages.at(-1));
  if (text.includes("fail")) return { errorBefore: new Error("secret-1") };
  if (text.includes("hang")) return { text: "a", hang: "after" };
  return { text: ["One ", "two"] };
});
const lines: string[] = [];
const gateway = await createTestGateway({
  tools: [say, write],
  providers: { model },
  logger: createConsola({
    reporters: [{ log: ({ type, args: [message] }) => void lines.push(`${type} ${message}`) }],
  }),
});
after(() => gateway.close());

const refused = (code: string) => (error: unknown) => error instanceof HttpError && error.code === code;

test("run() gives events, text and the run, each as often as it is asked for", async () => {
  const run = gateway.run("Hello");
  const types = [];
  for await (const { type } of run) types.push(type);
  assert.deepEqual(types, ["run_start", "turn_start", "text_delta", "text_delta", "turn_end", "done"]);
  for (const _ of ["once", "again"]) assert.equal((await Array.fromAsync(run.textStream)).join("|"), "One |two");
  const ended = await run;
  assert.deepEqual([ended.status, ended.result, ended.id], ["completed", "One two", await run.id]);
  const messages = [{ role: "user", content: "Hello" }, { role: "assistant", content: "Hi" }, {
    role: "user",
    content: "Go on",
  }] as const;
  await gateway.run(messages, { conversation_id: "garden" });
  assert.equal(model.requests.at(-1)?.messages.at(-1)?.content, "Go on");
});

test("run() tells a refusal, a failure and a cancellation to whoever reads it, however late", async () => {
  const unknown = gateway.run("Hello", { modle: "x" } as object);
  await new Promise((resolve) => setImmediate(resolve));
  await assert.rejects(Array.fromAsync(unknown), refused("invalid_request"));
  await assert.rejects(async () => await unknown, refused("invalid_request"));
  await assert.rejects(async () => await gateway.run("fail"), refused("provider_error"));
  await assert.rejects(Array.fromAsync(gateway.run("fail").textStream), refused("provider_error"));
  assert.match(lines.join("\n"), /^error A provider of the program failed$/m);
  const stop = new AbortController();
  const hanging = gateway.run("hang", { signal: stop.signal });
  for await (const { type } of hanging) if (type === "text_delta") stop.abort();
  await assert.rejects(async () => await hanging, refused("cancelled"));
  // A loop that is left does not end the run
  const other = gateway.run("Hello");
  for await (const _ of other) break;
  assert.equal((await other).status, "completed");
});

test("tools.call() takes the way of all calls: schema, policy, approval", async () => {
  const { call } = gateway.tools;
  assert.deepEqual(await call("say", { text: "hi" }), {
    output: '{"said":"hi"}',
    is_error: false,
    data: { said: "hi" },
  });
  assert.deepEqual((await call("say", "plain")).data, { said: "plain" });
  assert.match((await call("say", { txt: "hi" })).output, /"txt" is not one of its fields/);
  await assert.rejects(call("nothing"), refused("not_found"));
  const asked = await call("write_it");
  assert.equal(asked.is_error, true);
  assert.match(asked.approval_id ?? "", /^apr_/);
  assert.equal((await call("write_it", {}, { approved: true })).output, "written");
  const decided = await gateway.request(`/v1/approvals/${asked.approval_id}`, {
    json: { decision: "approve" },
  });
  assert.equal(decided.status, 200, await decided.text());
  const approvalId = asked.approval_id;
  assert.equal((await call("write_it", {}, { approvalId })).output, "written");
  assert.equal((await call("write_it", {}, { approvalId })).is_error, true);
  await assert.rejects(call("say", { text: () => {} }), refused("invalid_request"));
  await assert.rejects(call("say", {}, { aproved: true } as object), TypeError);
});

test("a logger without one of its functions is refused", async () => {
  const logger = { info: () => {} } as unknown as GatewayOptions["logger"] & object;
  await assert.rejects(
    createTestGateway({ logger }),
    (error) => error instanceof ConfigError && error.code === "logger_invalid" && error.message.includes('"error"'),
  );
});

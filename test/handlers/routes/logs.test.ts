import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../../support/json_of.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { createTestRouter } from "../../support/test_router.ts";

function setUp() {
  const { services, send } = createTestRouter();
  const list = async (query = "") => await jsonOf(send("GET", `/v1/logs${query}`, { token: "token_admin" }));
  const messages = async (query = "") => (await list(query)).data.map(({ message }: { message: string }) => message);
  return { log: services.log, list, messages };
}

test("the log's last 1,000 lines are listed newest first, and no more are kept", async () => {
  const { log, list } = setUp();
  for (let i = 1; i <= 1500; i++) log.info(`line ${i}`);
  const { data } = await list();
  assert.equal(data.length, 1000);
  const seqs = data.map(({ seq }: { seq: number }) => seq);
  assert.deepEqual(seqs, [...seqs].sort((a, b) => b - a));
  // The access log of that request may have come first
  assert.ok(data.slice(0, 2).some(({ message }: { message: string }) => message === "line 1500"));
});

test("lines are chosen by level and by what was seen already", async () => {
  const { log, list, messages } = setUp();
  log.error("worst", { request_id: "req_1" });
  log.debug("detail");
  log.warn("odd");
  assert.deepEqual(await messages("?level=warn"), ["odd", "worst"]);
  const { data } = await list("?level=error");
  const { seq, ...line } = data[0];
  assert.deepEqual(line, {
    object: "log_line",
    time: "2026-01-01T00:00:00.000Z",
    level: "error",
    message: "worst",
    fields: { request_id: "req_1" },
  });
  assert.deepEqual(await messages(`?level=warn&since=${seq}`), ["odd"]);
  const first = await list("?level=warn&limit=1");
  assert.deepEqual(await messages(`?level=warn&after=${first.last_id}`), ["worst"]);
  assert.equal((await list("?limit=1&level=warn")).has_more, true);
  for (const wrong of ["?limit=0", "?limit=1001", "?level=loud", "?after=-1", "?since=x"]) {
    assert.equal((await list(wrong)).error.code, "invalid_request", wrong);
  }
});

test("long lines are cut with a sign", async () => {
  const { log, list } = setUp();
  log.error("x".repeat(5000), { long: "y".repeat(20_000) });
  const [{ message, fields }] = (await list("?level=error")).data;
  assert.match(message, /x\.\.\. \(1000 more characters\)$/);
  assert.match(fields.cut, /y\.\.\. \(\d+ more characters\)$/);
});

test("no secret is shown in a line of the log", async () => {
  const key = "sk-secret-of-the-provider-0123456789";
  await withRunningGateway({ script: () => "ok", environment: { OPENAI_API_KEY: key } }, async (gateway) => {
    gateway.services.log.warn(`The key is ${key}`, { key, nested: [{ header: `Bearer ${key}` }] });
    const text = await (await gateway.call("/v1/logs")).text();
    assert.match(text, /The key is/);
    assert.ok(!text.includes(key) && !text.includes(gateway.token));
  });
});

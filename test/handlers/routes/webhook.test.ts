import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { webhook } from "../../../handlers/handlers.ts";
import type { Identity } from "../../../lib/access/identity.ts";
import { refuse } from "../../../lib/base/errors.ts";
import type { Scope } from "../../../lib/base/records/caller.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { accepted, jsonOf } from "../../support/json_of.ts";
import { Webhooks } from "../../../lib/automation/channels/webhooks.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { type Config, defaultConfig } from "../../../lib/config/config.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { answer, createScriptedRuns, type ScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";

const SECRET = "a shared secret";
const CHANNELS = {
  signed: { kind: "generic", secret_env: "HOOK_SECRET", reply_url: "", conversation: "sender" },
  unset: { kind: "generic", secret_env: "MISSING", reply_url: "", conversation: "sender" },
  room: { kind: "generic", secret_env: "", reply_url: "", conversation: "channel" },
  single: { kind: "generic", secret_env: "", reply_url: "", conversation: "message" },
};
const KNOWN = ["default:ann", "room", "signed:ann"];

interface Gateway {
  readonly clock: FakeClock;
  /** From now on every reply waits for its receiver */
  fillDeliveries(): void;
  readonly runs: ScriptedRuns;
  send(
    channel: string,
    body: unknown,
    options?: {
      query?: string;
      headers?: Record<string, string>;
      signal?: AbortSignal;
      identity?: Identity;
    },
  ): Promise<Response>;
}

function gateway(script: readonly ScriptStep[] = answer("Hello there"), refusal?: () => Error | undefined): Gateway {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const runs = createScriptedRuns({
    clock,
    store,
    script: () => script,
    conversations: KNOWN,
    ...(refusal ? { refuse: refusal } : {}),
  });
  let full = false;
  const deliveries = {
    promise: () =>
      full
        ? Promise.reject(refuse("overloaded", "Cannot accept the message: too many replies wait"))
        : Promise.resolve(undefined),
    watch: () => Promise.resolve(),
  };
  const webhooks = new Webhooks({
    ...{ clock, log: SILENT, store, deliveries },
    config: () => ({ ...defaultConfig(), channels: CHANNELS }) as Config, // its channels have the fields that are read
    environment: (name) => name === "HOOK_SECRET" ? SECRET : undefined,
  });
  return {
    clock,
    runs,
    fillDeliveries: () => void (full = true),
    async send(channel, body, options = {}) {
      const request = new Request(`http://gateway.test/v1/webhook/${channel}${options.query ?? ""}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...options.headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
        signal: options.signal ?? null,
      });
      const { identity = { tokenId: "tok_1", scopes: ["chat"] } } = options;
      const parts = { agent: { runs }, tools: {}, webhooks: () => Promise.resolve(webhooks), kit: { log: SILENT } };
      return await accepted(webhook({ ...parts, identify: () => ({ identity }) })(request));
    },
  };
}

function sign(clock: FakeClock, body: string, options: { offset?: number; secret?: string } = {}) {
  const time = Math.floor(clock.now() / 1000) + (options.offset ?? 0);
  const hex = createHmac("sha256", options.secret ?? SECRET).update(`${time}.${body}`).digest("hex");
  return { "x-postern-signature": `t=${time},sha256=${hex}` };
}

test("a message is accepted with the id of a durable run", async () => {
  const { send, runs } = gateway();
  const reply = await send("default", { message: "hi", sender: "ann" });
  assert.equal(reply.status, 202);
  assert.deepEqual(await jsonOf(reply), { accepted: true, channel: "default", run_id: "run_1" });
  const request = runs.started[0]?.request;
  assert.equal(request?.durable, true);
  assert.equal(request?.kind, "channel");
  assert.equal(request?.by.caller.via, "channel");
  assert.deepEqual(request?.messages, [{ role: "user", content: "hi" }]);
});

test("wait=1 answers 200 with the reply, a failed run with its error", async () => {
  const waited = await gateway().send("default", { text: "hi" }, { query: "?wait=1" });
  assert.equal(waited.status, 200);
  assert.deepEqual(await jsonOf(waited), { accepted: true, channel: "default", run_id: "run_1", reply: "Hello there" });
  const { send } = gateway([[{ type: "error", code: "provider_error", message: "Broke" }]]);
  await assert.rejects(send("default", { text: "hi" }, { query: "?wait=1" }), { status: 502 });
});

test("a wait that ends first leaves the run at work and says it was accepted", async () => {
  const { send, runs, clock } = gateway(["hang"]);
  const gone = new AbortController();
  const reply = send("default", { text: "hi" }, { query: "?wait=1", signal: gone.signal });
  await clock.advance(1);
  gone.abort();
  assert.equal((await reply).status, 202);
  assert.deepEqual(runs.started[0]?.cancelled, []);
});

test("message, text and content are the message, in this order", async () => {
  const { send, runs } = gateway();
  await send("default", { text: "b", content: "c" });
  await send("default", { content: "c" });
  await send("default", { message: "a", text: "b", context: "It rains" });
  const texts = runs.started.map((run) => run.request.messages[0]?.content);
  assert.deepEqual(texts, ["b", "c", [{ type: "text", text: "It rains" }, { type: "text", text: "a" }]]);
});

test("a body without a message, or with a wrong one, names the field", async () => {
  const { send } = gateway();
  await assert.rejects(send("default", {}), { status: 400, param: "message" });
  await assert.rejects(send("default", { text: 5 }), { status: 400, param: "text" });
  await assert.rejects(send("default", { content: " \n" }), { status: 400, param: "content" });
  await assert.rejects(send("default", { message: "x", sender: "" }), { status: 400, param: "sender" });
});

test("unknown channels and names that are none are 404, default always exists", async () => {
  const { send, runs } = gateway();
  for (const name of ["nowhere", "constructor", "__proto__", "DEFAULT", "a/b", "", "x".repeat(65)]) {
    await assert.rejects(send(encodeURIComponent(name), { message: "x" }), { status: 404, code: "not_found" });
  }
  assert.equal(runs.started.length, 0);
});

test("each sender has a conversation, or the whole channel, or each message", async () => {
  const { send, runs } = gateway();
  await send("default", { message: "x", sender: "ann" });
  await send("default", { message: "x" });
  await send("room", { message: "x", sender: "ann" });
  await send("single", { message: "x", sender: "ann" });
  assert.deepEqual(runs.started.map((run) => run.request.conversationId), ["default:ann", "new", "room", "new"]);
});

test("a sender that is no id gets the conversation of its digest, which nobody can name", async () => {
  const { send } = gateway();
  await assert.rejects(send("default", { message: "x", sender: "Ann Müller" }), { code: "not_found" });
  const digested = gateway();
  await assert.rejects(digested.send("default", { message: "x", sender: "sha256:00" }), { code: "not_found" });
  assert.equal(digested.runs.started.length, 0);
});

test("a message_id that comes again gets the first run's id, and its reply when waited for", async () => {
  const { send, runs } = gateway();
  const first = await jsonOf(send("default", { message: "x", message_id: "m1" }, { query: "?wait=1" }));
  const again = await send("default", { message: "x", message_id: "m1" });
  assert.equal(again.status, 202);
  assert.equal((await jsonOf(again)).run_id, first.run_id);
  const waited = await send("default", { message: "x", message_id: "m1" }, { query: "?wait=1" });
  assert.equal(waited.status, 200);
  assert.equal((await jsonOf(waited)).reply, "Hello there");
  await send("room", { message: "x", message_id: "m1" });
  assert.equal(runs.started.length, 2, "another channel has ids of its own");
});

test("no token takes a message_id from another: each has ids of its own, and replies of its own", async () => {
  const { send, runs } = gateway();
  const sent = async (tokenId: string, scopes: readonly Scope[]) =>
    (await jsonOf(send("default", { message: "x", message_id: "m1" }, { identity: { tokenId, scopes } }))).run_id;
  const [one, other] = [await sent("tok_1", ["chat"]), await sent("tok_2", ["chat", "runs"])];
  assert.notEqual(one, other);
  assert.deepEqual([await sent("tok_1", ["chat"]), await sent("tok_2", ["chat"])], [one, other]);
  assert.equal(runs.started.length, 2);
});

test("the reply of a signed message_id is for the token that delivered it, and for the scope runs", async () => {
  const { send, clock } = gateway();
  const body = JSON.stringify({ message: "x", sender: "ann", message_id: "m1" });
  let offset = 0;
  const again = (tokenId: string, scopes: readonly Scope[]) => {
    const headers = sign(clock, body, { offset: offset-- });
    return send("signed", body, { query: "?wait=1", headers, identity: { tokenId, scopes } });
  };
  assert.equal((await again("tok_1", ["chat"])).status, 200);
  await assert.rejects(again("tok_2", ["chat"]), { code: "insufficient_scope" });
  assert.equal((await again("tok_2", ["chat", "runs"])).status, 200);
  assert.equal((await again("tok_1", ["chat"])).status, 200);
});

test("a message that comes again gets its run's id while no further reply can be promised", async () => {
  const { send, runs, fillDeliveries } = gateway();
  const { run_id } = await jsonOf(send("default", { message: "x", message_id: "m1" }));
  fillDeliveries();
  assert.equal((await jsonOf(send("default", { message: "x", message_id: "m1" }))).run_id, run_id);
  await assert.rejects(send("default", { message: "x", message_id: "m2" }), { code: "overloaded" });
  assert.equal(runs.started.length, 1);
});

test("ten deliveries of one message at once start one run", async () => {
  const { send, runs, clock } = gateway();
  const sent = Array.from({ length: 10 }, () => send("default", { message: "x", message_id: "m1" }));
  await clock.advance(1000);
  const ids = await Promise.all(sent.map(async (reply) => (await jsonOf(reply)).run_id));
  assert.deepEqual(new Set(ids), new Set(["run_1"]));
  assert.equal(runs.started.length, 1);
});

test("a delivery whose start failed may come again", async () => {
  let refuse = true;
  const { send, runs } = gateway(answer("x"), () => (refuse ? new Error("no") : undefined));
  await assert.rejects(send("default", { message: "x", message_id: "m1" }));
  refuse = false;
  assert.equal((await send("default", { message: "x", message_id: "m1" })).status, 202);
  assert.equal(runs.started.length, 1);
});

test("after a day a message_id is forgotten", async () => {
  const { send, runs, clock } = gateway();
  await send("default", { message: "x", message_id: "m1" });
  await clock.advance(24 * 3600 * 1000 + 1);
  await send("default", { message: "x", message_id: "other" });
  await send("default", { message: "x", message_id: "m1" });
  assert.equal(runs.started.length, 3);
});

test("a channel with a secret takes a fresh signature of exactly this body", async () => {
  const { send, clock, runs } = gateway();
  const body = JSON.stringify({ message: "hi", sender: "ann" });
  assert.equal((await send("signed", body, { headers: sign(clock, body) })).status, 202);
  assert.equal((await send("signed", body, { headers: sign(clock, body, { offset: -299 }) })).status, 202);
  assert.equal(runs.started.length, 2);
});

test("a missing, broken, foreign, old, future or replayed signature is 401 and starts nothing", async () => {
  const { send, clock, runs } = gateway();
  const body = JSON.stringify({ message: "hi", sender: "ann" });
  const good = sign(clock, body)["x-postern-signature"];
  const attacks: (Record<string, string> | undefined)[] = [
    undefined,
    { "x-postern-signature": "" },
    { "x-postern-signature": "nonsense" },
    { "x-postern-signature": good.replace(/.$/, (last) => (last === "0" ? "1" : "0")) },
    { "x-postern-signature": good.slice(0, -2) },
    { "x-postern-signature": good.replace(/t=\d+/, "t=1") },
    sign(clock, `${body} `),
    sign(clock, body, { secret: "another" }),
    sign(clock, body, { offset: -301 }),
    sign(clock, body, { offset: 301 }),
  ];
  for (const headers of attacks) {
    await assert.rejects(send("signed", body, headers ? { headers } : {}), { status: 401, code: "auth_invalid" });
  }
  assert.equal(runs.started.length, 0);
  await send("signed", body, { headers: { "x-postern-signature": good } });
  await clock.advance(200_000);
  await assert.rejects(send("signed", body, { headers: { "x-postern-signature": good } }), { code: "auth_invalid" });
  await assert.rejects(
    send("signed", body, {
      headers: { "x-postern-signature": good.replace(/[0-9a-f]{64}/, (hex) => hex.toUpperCase()) },
    }),
    {
      code: "auth_invalid",
    },
  );
  assert.equal(runs.started.length, 1);
});

test("a signed message that was not accepted may be sent again as it is, one that was may not", async () => {
  let isFull = true;
  const { send, clock, runs } = gateway(
    undefined,
    () => isFull ? refuse("overloaded", "Cannot start a run: too many wait") : undefined,
  );
  const body = JSON.stringify({ message: "hi", sender: "ann" });
  const headers = sign(clock, body);
  await assert.rejects(send("signed", body, { headers }), { code: "overloaded" });
  isFull = false;
  const sent = await Promise.allSettled([1, 2, 3].map(() => send("signed", body, { headers })));
  assert.deepEqual(
    sent.map((result) => result.status === "fulfilled" ? result.value.status : result.reason.code).sort(),
    [202, "auth_invalid", "auth_invalid"],
  );
  assert.equal(runs.started.length, 1);
});

test("a signature counts once for a message_id that repeats too", async () => {
  const { send, clock, runs } = gateway();
  const body = JSON.stringify({ message: "hi", message_id: "m1" });
  const [first, second] = [sign(clock, body), sign(clock, body, { offset: -1 })];
  for (const headers of [first, second]) assert.equal((await send("signed", body, { headers })).status, 202);
  for (const headers of [first, second]) {
    await assert.rejects(send("signed", body, { headers }), { code: "auth_invalid" });
  }
  assert.equal(runs.started.length, 1);
});

test("a channel whose secret is not set refuses everything", async () => {
  const { send, runs, clock } = gateway();
  const body = JSON.stringify({ message: "hi" });
  const refusal = { code: "internal_error", message: /\[channels\.unset\] secret_env/ };
  await assert.rejects(send("unset", body), refusal);
  await assert.rejects(send("unset", body, { headers: sign(clock, body, { secret: "x" }) }), refusal);
  assert.equal(runs.started.length, 0);
});

test("a channel counts as it was when its message was admitted, whatever the configuration says since", async () => {
  const clock = createFakeClock();
  let channels: object = { room: CHANNELS.room };
  const webhooks = new Webhooks({
    clock,
    log: SILENT,
    store: createMemoryStore(),
    deliveries: { promise: () => Promise.resolve(undefined), watch: () => Promise.resolve() },
    config: () => ({ ...defaultConfig(), channels }) as Config, // its channels have the fields that are read
    environment: () => SECRET,
  });
  const head = new Request("http://gateway.test/v1/webhook/room");
  assert.throws(() => webhooks.channelOf(head), TypeError);
  await webhooks.admit("room", head, () => Promise.reject(new TypeError("No signature is asked for")));
  channels = { room: CHANNELS.signed };
  assert.equal(webhooks.channelOf(head).isSigned, false);
  assert.equal(webhooks.channel("room").isSigned, true);
});

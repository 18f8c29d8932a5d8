import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import type { Services } from "../../../lib/services.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { jsonOf } from "../../support/json_of.ts";
import { readSse } from "../../support/sse.ts";
import { ask, readAll, supervised, type SupervisedOptions, textIn } from "../../support/supervised.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

function setUp(script: Script, options: SupervisedOptions & Pick<Services, "browserOf"> | SupervisedOptions = {}) {
  const clock = options.clock ?? createFakeClock();
  const base = createFakeServices();
  const made = supervised(script, { ...options, clock, store: base.store });
  const agent = { runs: made.runs, providers: undefined as never };
  const services = { ...base, ...("browserOf" in options ? { browserOf: options.browserOf } : {}), clock, agent };
  const { send, router } = createTestRouter({ services });
  const json = async (method: string, path: string, init: SendInit = {}) => {
    const reply = await send(method, path, { token: "token_runs", ...init });
    return { httpStatus: reply.status, headers: reply.headers, ...await jsonOf(reply) };
  };
  const start = async (body: unknown = { message: "Hi" }) => (await json("POST", "/v1/runs", { body })).id as string;
  const events = async (path: string, init: SendInit = {}) => {
    const reply = await send("GET", path, { token: "token_runs", ...init });
    return { status: reply.status, text: await reply.text() };
  };
  return { ...made, services, connections: router.connections, send, json, start, events };
}

const eventsIn = (text: string) => readSse(text).data.map((data) => JSON.parse(data) as AgentEvent);

test("a run is on disk before the reply, which tells where it is", async () => {
  const { json, runs, store } = setUp(["Hello"]);
  const reply = await json("POST", "/v1/runs", { body: { message: "Hi" } });
  assert.deepEqual([reply.httpStatus, reply.object, reply.status, reply.kind], [202, "run", "queued", "chat"]);
  assert.equal(reply.headers.get("location"), `/v1/runs/${reply.id}`);
  assert.notEqual(await store.get("runs", reply.id), undefined);
  const ended = await runs.ended(reply.id, new AbortController().signal);
  assert.equal(ended?.status, "completed");
  const read = await json("GET", `/v1/runs/${reply.id}`);
  assert.deepEqual([read.result, read.status, read.usage.total_tokens], ["Hello", "completed", 15]);
});

test("messages go to the model as they are; unknown fields are named", async () => {
  const { json, runs, provider } = setUp(["Hello"]);
  const messages = [{ role: "system", content: "Be brief" }, { role: "user", content: [{ type: "text", text: "Hi" }] }];
  const reply = await json("POST", "/v1/runs", {
    body: { messages, model: "other", conversation_id: "talk", tone: 1 },
  });
  assert.deepEqual([reply.httpStatus, reply.model, reply.conversation_id], [202, "other", "talk"]);
  assert.equal(reply.headers.get("x-postern-ignored"), "tone");
  await runs.ended(reply.id, new AbortController().signal);
  assert.deepEqual(provider.requests[0]?.messages.slice(-2), messages);
  assert.equal(provider.requests[0]?.model, "other");
});

test("a run without a message, or with one too many, names the field", async () => {
  const { json } = setUp([]);
  for (
    const [body, param] of [
      [{}, "message"],
      [{ message: "" }, "message"],
      [{ message: "\t" }, "message"],
      [{ message: "x", messages: [{ role: "user", content: "y" }] }, "messages"],
      [{ messages: [] }, "messages"],
      [{ messages: [{ role: "robot", content: "y" }] }, "messages[0].role"],
      [{ message: "x", conversation_id: "" }, "conversation_id"],
    ] as const
  ) {
    const refused = await json("POST", "/v1/runs", { body });
    assert.deepEqual([refused.httpStatus, refused.error.param], [400, param], JSON.stringify(body));
  }
});

test("runs are listed newest first, by status and a page at a time", async () => {
  const { json, start, runs } = setUp((_request, turn) => (turn === 1 ? { errorBefore: new Error("x") } : "fine"));
  const ids: string[] = [];
  for (let i = 0; i < 3; i++) {
    ids.unshift(await start());
    await runs.ended(ids[0] ?? "", new AbortController().signal);
  }
  const idsOf = async (query: string) => {
    const { data, has_more, last_id } = await json("GET", `/v1/runs${query}`);
    return [data.map(({ id }: { id: string }) => id), has_more, last_id];
  };
  assert.deepEqual(await idsOf("?limit=2"), [ids.slice(0, 2), true, ids[1]]);
  assert.deepEqual(await idsOf(`?limit=2&after=${ids[1]}`), [ids.slice(2), false, ids[2]]);
  assert.deepEqual(await idsOf("?status=failed"), [[ids[1]], false, ids[1]]);
  assert.deepEqual(await idsOf("?status=queued"), [[], false, null]);
  for (const [query, param] of [["?status=odd", "status"], ["?limit=0", "limit"]]) {
    const refused = await json("GET", `/v1/runs${query}`);
    assert.deepEqual([refused.httpStatus, refused.error.param], [400, param]);
  }
});

test("a run is cancelled once: the model's stream ends, and it stays cancelled", async () => {
  const { json, start, provider, clock } = setUp([{ text: ["one "], hang: "after" }]);
  const id = await start();
  await clock.advance(0);
  assert.equal(provider.active, 1);
  const cancelled = await json("POST", `/v1/runs/${id}/cancel`);
  assert.deepEqual([cancelled.httpStatus, cancelled.status, cancelled.error.code], [200, "cancelled", "cancelled"]);
  assert.equal(provider.active, 0);
  const again = await json("POST", `/v1/runs/${id}/cancel`);
  assert.deepEqual([again.httpStatus, again.error.code], [409, "conflict"]);
  assert.match(again.error.message, /cancelled already/);
  assert.equal((await json("GET", `/v1/runs/${id}`)).status, "cancelled");
});

test("an unknown run is 404 on every route, and only the scope runs sees runs", async () => {
  const { json } = setUp([]);
  const routes = [["GET", "/v1/runs/run_none"], ["POST", "/v1/runs/run_none/cancel"], [
    "GET",
    "/v1/runs/run_none/events",
  ]];
  for (const [method = "", path = ""] of routes) {
    const missing = await json(method, path);
    assert.deepEqual([missing.httpStatus, missing.error.code], [404, "not_found"], path);
  }
  for (const [method = "", path = ""] of [...routes, ["GET", "/v1/runs"], ["POST", "/v1/runs"]]) {
    assert.equal((await json(method, path, { token: "token_chat" })).error.code, "insufficient_scope", path);
  }
});

test("events come with their seq as id, to the terminal one; 204 tells a reader who has them all to stay away", async () => {
  const { start, events, runs } = setUp([{ text: ["one ", "two"] }]);
  const id = await start();
  await runs.ended(id, new AbortController().signal);
  const { status, text } = await events(`/v1/runs/${id}/events`);
  const all = eventsIn(text);
  assert.equal(status, 200);
  assert.deepEqual(all.map(({ type }) => type), [
    "run_start",
    "turn_start",
    "text_delta",
    "text_delta",
    "turn_end",
    "done",
  ]);
  assert.deepEqual([...text.matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1])), all.map(({ seq }) => seq));
  assert.match(text, /^retry: 1000\n\n/);
  assert.deepEqual(await events(`/v1/runs/${id}/events?after=${all.length}`), { status: 204, text: "" });
  const later = await events(`/v1/runs/${id}/events?after=1`, { headers: { "last-event-id": "4" } });
  assert.deepEqual(eventsIn(later.text), all.slice(4), "the header wins");
});

test("a reader of a queued run waits for its first event, and one at the front of a run at work for the next", async () => {
  const held = Promise.withResolvers<void>();
  const { start, send, events, runs, clock } = setUp([{ text: ["one ", "more"], holdUntil: held.promise }, "two"], {
    limits: { maxConcurrent: 1 },
  });
  const working = await start();
  await clock.advance(0);
  const queued = await start();
  assert.equal((await runs.get(queued))?.status, "queued");
  assert.deepEqual(await events(`/v1/runs/${queued}/events?follow=0`), {
    status: 200,
    text: "retry: 1000\n\n: these are the events recorded by now, come back with Last-Event-ID for more\n\n",
  });
  const readings = [send("GET", `/v1/runs/${queued}/events`, { token: "token_runs" })];
  for (let seq = (await runs.reach(working))?.furthest ?? 0, last = seq; seq <= last; seq++) {
    readings.push(send("GET", `/v1/runs/${working}/events?after=${seq}`, { token: "token_runs" }));
  }
  const replies = await Promise.all(readings);
  assert.deepEqual(replies.map(({ status }) => status), replies.map(() => 200));
  held.resolve();
  const [ofQueued = "", ...ofWorking] = await Promise.all(replies.map((reply) => reply.text()));
  assert.equal(textIn(eventsIn(ofQueued)), "two");
  for (const text of [ofQueued, ...ofWorking]) assert.equal(eventsIn(text).at(-1)?.type, "done");
});

test("a position beyond the run's events, or no number, is 400 and names what said it", async () => {
  const { start, json, runs } = setUp(["Hello", { hang: "before" }]);
  const ended = await start();
  await runs.ended(ended, new AbortController().signal);
  const atWork = await start();
  for (const id of [ended, atWork]) {
    for (const value of ["9", "999999", "x", "-1", "1.5", ""]) {
      for (
        const [query, headers, param] of [[`?after=${value}`, {}, "after"], [
          "",
          { "last-event-id": value },
          "Last-Event-ID",
        ]] as const
      ) {
        const refused = await json("GET", `/v1/runs/${id}/events${query}`, { headers });
        assert.deepEqual([refused.httpStatus, refused.error.param], [400, param], value);
      }
    }
  }
  assert.equal((await json("GET", `/v1/runs/${ended}/events?follow=yes`)).error.param, "follow");
});

test("a live run is followed from the middle, with comments while it is silent", async () => {
  const held = Promise.withResolvers<void>();
  const { start, send, clock } = setUp([{ text: ["one ", "two ", "three"], holdUntil: held.promise }]);
  const id = await start();
  await clock.advance(0);
  const reply = await send("GET", `/v1/runs/${id}/events?after=2`, { token: "token_runs" });
  const reader = reply.body?.getReader() ?? assert.fail("no body");
  const next = async () => new TextDecoder().decode((await reader.read()).value);
  assert.equal(await next(), "retry: 1000\n\n");
  assert.deepEqual(textIn(eventsIn(await next())), "one ");
  const silent = next();
  await clock.advance(10_000);
  assert.equal(await silent, ": keep-alive\n\n");
  held.resolve();
  let rest = "";
  for (let text = await next(); text !== ""; text = await next()) rest += text;
  assert.equal(textIn(eventsIn(rest)), "two three");
  assert.equal(eventsIn(rest).at(-1)?.type, "done");
});

test("follow=0 gives what is recorded, without waiting for more", async () => {
  const { start, events, clock } = setUp([{ text: ["one "], hang: "after" }]);
  const id = await start();
  await clock.advance(0);
  const { status, text } = await events(`/v1/runs/${id}/events?follow=0`);
  assert.equal(status, 200);
  assert.equal(eventsIn(text)[0]?.type, "run_start");
  assert.ok(eventsIn(text).every(({ type }) => type !== "done"));
});

test("leaving the events leaves the run at work", async () => {
  const { start, send, json, clock, provider } = setUp([{ text: ["one "], hang: "after" }]);
  const id = await start();
  await clock.advance(0);
  const reply = await send("GET", `/v1/runs/${id}/events`, { token: "token_runs" });
  const reader = reply.body?.getReader() ?? assert.fail("no body");
  await reader.read();
  await reader.cancel();
  await clock.advance(1000);
  assert.equal(provider.active, 1);
  assert.equal((await json("GET", `/v1/runs/${id}`)).status, "running");
});

test("a reader that never reads leaves nothing behind: HEAD, and a client gone before its first read", async () => {
  const { start, events, send, connections } = setUp([{ text: ["one ", "two"] }]);
  const id = await start();
  const path = `/v1/runs/${id}/events`;
  for (let count = 0; count < 50; count++) {
    assert.equal((await send("HEAD", path, { token: "token_runs" })).status, 200);
    await (await send("GET", path, { token: "token_runs" })).body?.cancel();
  }
  assert.equal(connections.followers.count(), 0);
  assert.equal(textIn(eventsIn((await events(path)).text)), "one two");
  assert.equal(connections.followers.count(), 0);
});

test("a reader is refused while there is no room, and one that is sent away makes room", async () => {
  const { start, events, send, connections } = setUp([{ text: ["one "], hang: "after" }]);
  const path = `/v1/runs/${await start()}/events`;
  const full = Array.from(
    { length: 4096 },
    (_, index) => connections.followers.add({ tokenId: index % 2 === 0 ? "even" : "odd", close() {} }),
  );
  const refused = await events(path);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /4096 streams of events are open already/);
  full.pop()?.();
  const reply = await send("GET", path, { token: "token_runs" });
  assert.equal(connections.followers.count(), 4096);
  connections.followers.closeAll();
  assert.match(await reply.text(), /no more now/);
  assert.equal(connections.followers.count(), 4095);
});

test("a run that keeps nothing has no events to follow, a conversation's run has", async () => {
  const { runs, events } = setUp(["one", "two"]);
  const plain = await runs.start(ask("Hi", { agentTools: "none" }));
  await readAll(plain);
  assert.equal((await events(`/v1/runs/${plain.id}/events`)).status, 404);
  const kept = await runs.start(ask("Hi", { conversationId: "new" }));
  await readAll(kept);
  assert.equal(textIn(eventsIn((await events(`/v1/runs/${kept.id}/events`)).text)), "two");
});

test("without an agent runs are read as they were left, and none is started or cancelled", async () => {
  const { runs, services, start } = setUp(["Hello"]);
  const id = await start();
  await runs.ended(id, new AbortController().signal);
  const { send } = createTestRouter({ services: { ...services, metrics: createMetrics(), agent: undefined } });
  assert.equal((await jsonOf(send("GET", `/v1/runs/${id}`))).result, "Hello");
  assert.equal((await jsonOf(send("GET", "/v1/runs"))).data.length, 1);
  assert.equal(textIn(eventsIn(await (await send("GET", `/v1/runs/${id}/events`)).text())), "Hello");
  for (const path of ["/v1/runs", `/v1/runs/${id}/cancel`]) {
    assert.equal((await jsonOf(send("POST", path, { body: { message: "x" } }))).error.code, "agent_unavailable");
  }
});

test("GET /v1/runs/:id/browser shows what a run does in its browser, to a token with the scope alone", async () => {
  const action = {
    at: "2026-01-01T00:00:00.000Z",
    op: "navigate",
    target: "http://a.test/",
    url: "http://a.test/",
    error: null,
  };
  const seen: string[] = [];
  const { json, start } = setUp(["Hello"], {
    browserOf(runId) {
      seen.push(runId);
      const picture = { data: "/9j/", takenAt: action.at };
      return Promise.resolve({ isOpen: true, actions: [action], dropped: 3, picture });
    },
  });
  const id = await start();
  const { httpStatus, headers, ...body } = await json("GET", `/v1/runs/${id}/browser`);
  assert.equal(httpStatus, 200);
  assert.equal(headers.get("content-type"), "application/json");
  assert.deepEqual(body, {
    object: "run.browser",
    run_id: id,
    open: true,
    actions: [action],
    actions_dropped: 3,
    picture: { media_type: "image/jpeg", data: "/9j/", taken_at: action.at },
  });
  assert.equal((await json("GET", `/v1/runs/${id}/browser`, { token: "token_chat" })).httpStatus, 403);
  assert.equal((await json("GET", "/v1/runs/run_unknown/browser")).httpStatus, 404);
  assert.deepEqual(seen, [id], "nobody without the scope, and no run that is not there, reaches a browser");
});

test("GET /v1/runs/:id/browser of a run without a browser says why there is nothing", async () => {
  const { json, start } = setUp(["Hello"]);
  const { httpStatus, error } = await json("GET", `/v1/runs/${await start()}/browser`);
  assert.deepEqual([httpStatus, error.code], [404, "not_found"]);
  assert.match(error.message, /this run has used none since the gateway started/);
});

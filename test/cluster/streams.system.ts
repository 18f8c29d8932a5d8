import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script, ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import type { Timer } from "../../lib/base/clock.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { toTools } from "../../lib/tools/made_tool.ts";
import { defineProgramTool } from "../../lib/tools/program_tool.ts";
import { appliedText } from "../support/applied_text.ts";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import type { Write } from "../../lib/storage/store.ts";
import { journalOf, OPEN_RUNS, RUN_INPUTS, RUNS } from "../../lib/runs/journal/run_records.ts";
import { LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { createFakePeer, driveHooks } from "../support/fake_peer.ts";
import { FollowedStream, type LinkedGateway, TALK, withCluster } from "../support/linked_gateways.ts";
import { readSse } from "../support/sse.ts";

/** Starts a durable run, which begins at the gateway that accepts it. */
async function startRun(gateway: LinkedGateway, message = "Go"): Promise<string> {
  const reply = await gateway.send("/v1/runs", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ message }),
  });
  assert.equal(reply.status, 202);
  return (await reply.json() as { id: string }).id;
}

function follow(gateway: LinkedGateway, id: string, after?: number): FollowedStream {
  const headers = after === undefined ? {} : { "last-event-id": String(after) };
  return new FollowedStream(gateway.send(`/v1/runs/${id}/events`, { headers }));
}

function eventsIn(text: string): readonly AgentEvent[] {
  return readSse(text).data.map((data) => JSON.parse(data) as AgentEvent);
}

const seqsOf = ({ events }: FollowedStream) => [...events.matchAll(/^id: (\d+)$/gm)].map(([, seq]) => Number(seq));

test("a run's stream is the same to the byte at its owner, over a link and without one, early, late and resumed", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const a = await start("a", { script: TALK });
    const b = await start("b");
    const c = await start("c", { token: undefined, advertises: false });
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const early = [a, b, c].map((gateway) => follow(gateway, id));
    const [atA, atB, atC] = early;
    assert.ok(atA && atB && atC);
    await passUntil(() => seqsOf(atA).length === 4, "the owner's reader gets the second piece");
    assert.equal(atB.events, atA.events, "live at the gateway with a link");
    assert.ok(seqsOf(atC).length < 4, "not at the one without");
    const late = [a, b, c].map((gateway) => follow(gateway, id));
    const resumed = [a, b, c].map((gateway) => follow(gateway, id, 3));
    await pass(0);
    assert.deepEqual(late.slice(0, 2).map(seqsOf), [[1, 2, 3, 4], [1, 2, 3, 4]], "late, in the middle of a turn");
    assert.deepEqual(resumed.slice(0, 2).map(seqsOf), [[4], [4]]);
    await passUntil(() => [...early, ...late, ...resumed].every((stream) => stream.isEnded), "all streams end");
    const [whole] = early;
    for (const stream of [...early, ...late]) assert.equal(stream.events, whole?.events);
    const tail = whole?.events.slice(whole.events.indexOf("id: 4\n"));
    for (const stream of resumed) assert.equal(stream.events, `retry: 1000\n\n${tail}`);
    assert.match(whole?.events ?? "", /six.*"type":"done"/s);
    // Read again once it is over, by each gateway from the journal
    for (const gateway of [a, b, c]) {
      const again = follow(gateway, id);
      await again.ended;
      assert.equal(again.events, whole?.events);
    }
    assert.deepEqual(network.requests.length, 1, "one link for all followers of a gateway");
    assert.deepEqual(atB.comments, [], "nothing is said where nothing is missing");
    assert.deepEqual(atC.comments, [
      ": not live, each turn comes when it is complete: this gateway has no [cluster] token_env",
    ]);
  });
});

test("followers go on with the next owner when theirs dies, at every gateway and under seqs that never go back", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const a = await start("a", { script: [{ text: ["lost ", "words "], hang: "after" }] });
    const b = await start("b", {
      script: [{ text: ["whole ", "answer"], chunkDelayMs: 200 }],
      config: { runs: { max_concurrent: 1 } },
    });
    const c = await start("c", { script: [{ text: ["whole ", "answer"], chunkDelayMs: 200 }] });
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const streams = [b, c].map((gateway) => follow(gateway, id));
    await passUntil(() => streams.every((stream) => stream.events.includes("words ")), "both are shown the words");
    a.database.isCut = true;
    network.remove("a");
    a.router.connections.closeIdle();
    await passUntil(() => streams.every((stream) => stream.isEnded), "both streams end");
    for (const stream of streams) {
      const seqs = seqsOf(stream);
      assert.deepEqual(seqs, [...new Set(seqs)].sort((x, y) => x - y), "no seq twice, none out of order");
      assert.match(
        stream.events,
        /lost .*words .*"turn_restart","turn":1,"from_seq":2.*whole .*answer.*"type":"done"/s,
      );
    }
    assert.equal(streams[0]?.events, streams[1]?.events);
  });
});

const PEEK = toTools([
  defineProgramTool({
    name: "peek",
    description: "Looks.",
    access: "read",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    execute: () => "seen",
  }),
], () => false);

test("followers hold the stored result when the owner dies in an outage that began before a turn", async () => {
  await withCluster(async ({ database, start, network, pass, passUntil }) => {
    let asked = 0;
    const turns = (last: ScriptedTurn): Script => ({ messages }) => {
      asked++;
      return messages.at(-1)?.role === "tool" ? last : { text: "I look", toolCalls: [{ name: "peek" }] };
    };
    const answers = { script: turns({ text: ["The ", "answer"], chunkDelayMs: 200 }), tools: PEEK };
    const a = await start("a", { script: turns({ text: ["lost ", "words "], hang: "after" }), tools: PEEK });
    const b = await start("b", answers);
    const c = await start("c", { ...answers, token: undefined, advertises: false });
    await pass(2 * LEASE_MS);
    a.database.onBatch = (writes, make) => {
      // The end of the call is the first thing that is not written
      database.isAway ||= JSON.stringify(writes).includes('"tool_end"');
      return make();
    };
    const id = await startRun(a);
    const streams = [a, b, c].map((gateway) => follow(gateway, id));
    await passUntil(() => asked === 2, "the second turn is asked");
    await pass(1_000);
    a.database.isCut = true;
    network.remove("a");
    for (const { close } of linksAt(a)) close();
    const own = streams[0]?.events ?? "";
    assert.doesNotMatch(own, /lost/, "nothing of a turn is shown before the journal has all that it follows");
    a.database.onBatch = (_, make) => make();
    database.isAway = false;
    await passUntil(() => streams.slice(1).every((stream) => stream.isEnded), "the others' streams end");
    const { result } = await (await b.send(`/v1/runs/${id}`)).json() as { result: string };
    assert.equal(result, "I look\n\nThe answer");
    const after = eventsIn(own).at(-1)?.seq ?? 0;
    const moved = follow(b, id, after);
    await moved.ended;
    for (const events of [...streams.slice(1).map(({ events }) => events), own + moved.events].map(eventsIn)) {
      assert.equal(appliedText(events), result);
      const seqs = events.map(({ seq }) => seq);
      assert.deepEqual(seqs, [...new Set(seqs)].sort((x, y) => x - y), "no seq twice, none out of order");
    }
  });
});

test("followers of a run whose record is gone are told so at every gateway, and so is who comes later", async () => {
  await withCluster(async ({ start, database, pass, passUntil }) => {
    const a = await start("a", { script: [{ text: ["lost ", "words "], hang: "after" }] });
    const [b, c] = [await start("b"), await start("c", { token: undefined, advertises: false })];
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const streams = [a, b, c].map((gateway) => follow(gateway, id));
    await passUntil(() => streams.slice(0, 2).every((stream) => stream.events.includes("words ")), "both are shown it");
    // A standby is promoted that never heard of the run
    await database.store.batch([
      ...[RUNS.name, RUN_INPUTS.name, OPEN_RUNS.name, RUN_CLAIMS.name].map((collection) =>
        ({ op: "delete", collection, key: id }) as const
      ),
      { op: "drop", stream: journalOf(id) },
    ]);
    database.history = "second";
    await passUntil(() => streams.every((stream) => stream.isEnded), "all streams end");
    for (const stream of streams) {
      assert.match(stream.events, /"type":"error","code":"not_found","message":"Cannot go on with the run .* is gone/);
      const end = JSON.parse(stream.events.trimEnd().split("data: ").at(-1) ?? "") as AgentEvent;
      assert.equal(end.seq, (seqsOf(stream).at(-1) ?? 0) + 1);
    }
    for (const gateway of [a, b, c]) assert.equal((await gateway.send(`/v1/runs/${id}/events`)).status, 404);
  });
});

test("followers have the stored text, and readers the same journal everywhere, when a failover loses the newest record of a run", async () => {
  await withCluster(async ({ database, start, pass, passUntil }) => {
    const looking = { text: "I look", toolCalls: [{ name: "peek" }] };
    const turns = (...all: readonly ScriptedTurn[]): Script => ({ messages }) =>
      all[messages.filter(({ role }) => role === "tool").length] ?? assert.fail("There is no such turn");
    const lost = { text: "I look again", toolCalls: [{ name: "peek" }] };
    const a = await start("a", {
      script: turns(looking, lost, { text: ["lost ", "words "], hang: "after" }),
      tools: PEEK,
    });
    const answers = { script: turns(looking, { text: ["The ", "answer"] }), tools: PEEK };
    const [b, c] = [
      await start("b", answers),
      await start("c", { ...answers, token: undefined, advertises: false }),
    ];
    await pass(2 * LEASE_MS);
    let standby: readonly Write[] = [];
    a.database.onBatch = async (writes, make) => {
      const append = writes.find((write) => write.op === "append");
      // The standby gets no record from the end of the second turn on
      if (append?.op === "append" && JSON.stringify(append).includes('"type":"turn_end","turn":2')) {
        const { stream } = append;
        const records = (await database.store.read(stream, { afterSeq: 0, limit: 100 })).map(({ body }) => body);
        const key = stream.slice("run/".length);
        const { body } = await database.store.get(RUNS.name, key) ?? {};
        standby = [
          { op: "drop", stream },
          { op: "append", stream, expectedSeq: 0, records },
          { op: "put", collection: RUNS.name, key, body },
        ];
      }
      return await make();
    };
    const id = await startRun(a);
    const streams = [b, c].map((gateway) => follow(gateway, id));
    await passUntil(() => streams.every(({ events }) => /tool_end.*tool_end/s.test(events)), "all have what is lost");
    await passUntil(() => streams[0]?.events.includes("words ") === true, "one has live text too");
    a.database.isCut = true;
    await database.store.batch(standby);
    database.history = "second";
    await passUntil(() => streams.every(({ isEnded }) => isEnded), "both streams end");
    const { result } = await (await b.send(`/v1/runs/${id}`)).json() as { result: string };
    for (const stream of streams) {
      const events = eventsIn(stream.events);
      assert.equal(appliedText(events), result);
      assert.ok(events.some(({ type }) => type === "turn_restart"));
      const seqs = seqsOf(stream);
      assert.deepEqual(seqs, [...new Set(seqs)].sort((x, y) => x - y), "no seq twice, none out of order");
    }
    a.database.isCut = false;
    await pass(LEASE_MS);
    const again = [a, b, c].map((gateway) => follow(gateway, id));
    await passUntil(() => again.every(({ isEnded }) => isEnded), "the readers end");
    for (const { events } of again) assert.equal(events, again[0]?.events);
    assert.equal(appliedText(eventsIn(again[0]?.events ?? "")), result);
  });
});

/** Ways in which a write of a run is damaged, or of a later version. */
const DAMAGES: Readonly<Record<string, (write: Write) => Write>> = {
  "a record of the journal": (write) => write.op === "append" ? { ...write, records: [{ v: 9 }] } : write,
  "an event of the journal": (write) =>
    write.op === "append"
      ? { ...write, records: JSON.parse(JSON.stringify(write.records).replaceAll('"tool_end"', '"tool_ended"')) }
      : write,
  "the record of the run": (write) =>
    write.op === "put" && write.collection === RUNS.name ? { ...write, body: { v: 1 } } : write,
};

test("followers elsewhere are told of what cannot be read, and their streams end", async (t) => {
  await withCluster(async ({ database, start, pass, passUntil }) => {
    const a = await start("a", { script: (_, turn) => TALK[turn % 2] ?? "" });
    const [b, c] = [await start("b"), await start("c", { token: undefined, advertises: false })];
    await pass(2 * LEASE_MS);
    for (const [what, damage] of Object.entries(DAMAGES)) {
      await t.test(what, async () => {
        // The first records are whole
        let isLate = false;
        a.database.onBatch = (writes, make) => {
          isLate ||= JSON.stringify(writes).includes('"tool_end"');
          return isLate ? database.store.batch(writes.map(damage)) : make();
        };
        const id = await startRun(a);
        const streams = [b, c].map((gateway) => follow(gateway, id));
        await passUntil(() => streams.every(({ isEnded }) => isEnded), "both end");
        for (const { comments } of streams) assert.match(comments.join(), /no more now \(record_unreadable\)/);
        a.database.onBatch = (_, make) => make();
      });
    }
  });
});

test("a gateway without an address is named to followers elsewhere, and each turn comes once it is in the journal", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const a = await start("a", { script: TALK, advertises: false });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const stream = follow(b, id);
    await passUntil(() => stream.comments.length > 0, "it is told");
    assert.deepEqual(stream.comments, [
      `: not live, each turn comes when it is complete: gateway ${a.services.cluster.id} has no [cluster] advertise_url`,
    ]);
    await passUntil(() => stream.events.includes("two"), "the first turn comes");
    assert.match(stream.events, /one .*two .*three .*turn_end/s, "as a whole");
    await passUntil(() => stream.isEnded, "it ends");
    assert.match(stream.events, /"type":"done"/);
    assert.deepEqual(network.requests, []);
  });
});

test("the WebSocket's resume works at any gateway, and a field says that the events are not live", async () => {
  await withCluster(async ({ start, pass, passUntil }) => {
    const a = await start("a", { script: TALK });
    const b = await start("b");
    const c = await start("c", { token: undefined, advertises: false });
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const own = follow(a, id);
    const sockets = [a, b, c].map((gateway) => {
      const peer = createFakePeer();
      const headers = { upgrade: "websocket", authorization: `Bearer ${gateway.token}` };
      const request = new Request(`https://${gateway.name}.test/ws/chat`, { headers });
      const ends = driveHooks(gateway.router.resolveWebSocket(request, { remoteAddress: "192.0.2.9" }), peer);
      ends.say({ type: "hello", events: true });
      ends.say({ type: "resume", run_id: id, after: 0 });
      return peer;
    });
    const framesOf = (at: number) =>
      (sockets[at]?.sent ?? []).map((text) => JSON.parse(text) as { seq: number; live?: boolean });
    await passUntil(() => seqsOf(own).length === 4, "the owner's reader gets the second piece");
    assert.deepEqual([0, 1].map((at) => framesOf(at).length), [4, 4], "live at the owner and over the link");
    await passUntil(() => own.isEnded, "it ends");
    await pass(2_000);
    const plain = [0, 1, 2].map((at) => framesOf(at).map(({ live: _, ...event }) => event));
    assert.deepEqual(plain[1], plain[0]);
    assert.deepEqual(plain[2], plain[0]);
    assert.ok([0, 1].every((at) => framesOf(at).every(({ live }) => live === undefined)));
    assert.ok(framesOf(2).some(({ live }) => live === false), "told without a link");
  });
});

/** Answers that a gateway may give over a link, with words of the comment that its follower gets. */
const BAD_ANSWERS: readonly (readonly [name: string, answer: (events: string) => Promise<Response>, told: RegExp])[] = [
  ["is unreachable", () => Promise.reject(new TypeError("refused")), /cannot be made/],
  ["does not own the run", () => Promise.resolve(new Response("", { status: 409 })), /does not have it now/],
  ["refuses the token", () => Promise.resolve(new Response("", { status: 401 })), /same token at all gateways/],
  [
    "redirects",
    () => Promise.resolve(new Response("", { status: 307, headers: { location: "https://evil.test/" } })),
    /refused with 307/,
  ],
  [
    "answers with a page",
    () => Promise.resolve(new Response("<html>", { headers: { "content-type": "text/html" } })),
    /refused with 200/,
  ],
  ["never answers", () => new Promise(() => {}), /silent for 5 s/],
  ["answers and is mute", () => Promise.resolve(sse(new ReadableStream())), /silent for 6 s/],
  ["sends what is no event", () => Promise.resolve(sse('data: {"type":"sudo"}\n\n')), /no event of a run/],
  [
    "sends seqs from nowhere",
    () => Promise.resolve(sse(lineOf({ seq: 9_000_000, type: "text_delta", delta: "evil" }))),
    /journal cannot reach/,
  ],
  ["says more than fits", () => Promise.resolve(sse(endless())), /more than an answer may have/],
  ["breaks off in the middle of an event", () => Promise.resolve(sse(brokenStream())), /broke off/],
];

function sse(body: string | ReadableStream<Uint8Array>): Response {
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

function lineOf(event: Readonly<Record<string, unknown>>): string {
  return `data: ${JSON.stringify({ time: "2026-01-01T00:00:00.000Z", ...event })}\n\n`;
}

function endless(): ReadableStream<Uint8Array> {
  const piece = new Uint8Array(1024 * 1024).fill(120);
  return new ReadableStream({ pull: (controller) => controller.enqueue(piece) });
}

function brokenStream(): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('data: {"seq":'));
      controller.error(new Error("reset"));
    },
  });
}

test("no answer of another gateway harms or holds up a follower: the journal goes on meanwhile, and the link is made again", async (t) => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const a = await start("a", { script: (_, turn) => TALK[turn % 2] ?? "" });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    for (const [name, answer, told] of BAD_ANSWERS) {
      await t.test(name, async () => {
        network.intercept = (_, request) => answer(request.url);
        network.requests.length = 0;
        const id = await startRun(a);
        const [own, other] = [follow(a, id), follow(b, id)];
        await passUntil(() => own.isEnded && other.isEnded, `both end: ${other.text}`);
        assert.equal(other.events, own.events);
        assert.doesNotMatch(other.text, /evil/);
        if (name !== "never answers" && name !== "answers and is mute") assert.match(other.comments.join("\n"), told);
        assert.ok(network.requests.length <= 6, `it does not hammer: ${network.requests.length}`);
      });
    }
    network.intercept = () => undefined;
  });
});

/** A long turn, in many pieces. */
const LONG = { text: Array.from({ length: 200 }, (_, at) => `w${at} `), chunkDelayMs: 100 };

test("a link that breaks while its owner lives is made again, and a reader is told of both", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const a = await start("a", { script: [LONG] });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const [own, other] = [follow(a, id), follow(b, id)];
    await passUntil(() => other.events.includes("w10 "), "it is live");
    for (const { close } of linksAt(a)) close();
    await pass(2_000);
    assert.ok(network.requests.length >= 2, "it is made again");
    assert.equal(other.events, own.events);
    network.remove("a");
    for (const { close } of linksAt(a)) close();
    await passUntil(() => other.comments.length === 1, "it is told");
    const shown = seqsOf(other).length;
    await pass(1_500);
    assert.equal(seqsOf(other).length, shown, "nothing is live while the gateway cannot be reached");
    const before = network.requests.length;
    network.add("a", a.router);
    await passUntil(() => other.comments.length === 2, "it is live again");
    assert.ok(network.requests.length <= before + 2);
    assert.deepEqual(other.comments.map((comment) => comment.split(",")[0]), [": not live", ": live again"]);
    assert.equal(other.events, own.events);
    await passUntil(() => own.isEnded && other.isEnded, "both end");
    assert.equal(other.events, own.events);
  });
});

/** Links that others hold to a gateway. */
function linksAt({ router }: LinkedGateway): readonly { readonly close: () => void }[] {
  const { followers } = router.connections;
  return followers.all().filter(({ tokenId }) => tokenId === "cluster");
}

test("an owner that shows signs of life and no events is behind the journal: it is left, with notes and without", async () => {
  await withCluster(async ({ database, start, network, pass, passUntil }) => {
    const a = await start("a", { script: (_, turn) => TALK[turn % 2] ?? "" });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    network.intercept = () => Promise.resolve(sse(beating(database)));
    for (const isMute of [false, true]) {
      database.isMute = isMute;
      const id = await startRun(a);
      const other = follow(b, id);
      const began = database.clock.monotonic();
      await passUntil(() => other.isEnded, `it ends: ${other.text}`);
      assert.match(other.events, /six.*"type":"done"/s);
      const took = database.clock.monotonic() - began;
      assert.ok(took < (isMute ? 12_000 : 5_000), `${took} ms`);
    }
    database.isMute = false;
  });
});

/** An event stream of comments alone. */
function beating(database: SharedDatabase): ReadableStream<Uint8Array> {
  let timer: Timer | undefined;
  return new ReadableStream({
    start(controller) {
      timer = database.clock.every(500, () => controller.enqueue(new TextEncoder().encode(": keep-alive\n\n")));
    },
    cancel: () => timer?.clear(),
  });
}

test("a follower that reads nothing holds up nobody, and reads everything later", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const text = Array.from({ length: 4_000 }, (_, at) => `w${at} `);
    const a = await start("a", { script: [{ text, chunkDelayMs: 1 }] });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const lazy = await b.send(`/v1/runs/${id}/events`);
    const other = follow(b, id);
    const own = follow(a, id);
    await passUntil(() => other.isEnded && own.isEnded, "the others read to the end");
    assert.ok(other.events === own.events, "the same at both");
    assert.ok((await lazy.text()).replaceAll(/^:.*\n\n/gm, "") === own.events, "the same later");
    assert.equal(network.requests.length, 1);
  });
});

test("a hundred followers of a run have one link and a bounded number of reads", async () => {
  await withCluster(async ({ database, start, network, pass, passUntil }) => {
    const a = await start("a", { script: [LONG] });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const many = Array.from({ length: 100 }, () => follow(b, id));
    await passUntil(() => many.every((stream) => stream.events.includes("w10 ")), "all are live");
    let reads = 0;
    database.onResult = async (operation, first) => {
      if ((operation === "get" && first === "runs") || operation === "read") reads++;
    };
    await passUntil(() => many.every((stream) => stream.events.includes("w110 ")), "ten seconds pass");
    assert.ok(reads <= 5, `${reads} reads of the run in 10 s, whatever the number of its followers`);
    database.onResult = async () => {};
    for (const stream of many.slice(1)) stream.leave();
    await passUntil(() => many[0]?.isEnded === true, "the last one stays to the end");
    assert.deepEqual(network.requests.length, 1);
    assert.equal(linksAt(a).length, 0, "the link has ended");
  });
});

test("a link goes on while the database is down", async () => {
  await withCluster(async ({ database, start, network, pass, passUntil }) => {
    const text = Array.from({ length: 300 }, (_, at) => `w${at} `);
    const a = await start("a", { script: [{ text, chunkDelayMs: 1 }] });
    const b = await start("b");
    await pass(2 * LEASE_MS);
    const id = await startRun(a);
    const other = follow(b, id);
    await passUntil(() => other.events.includes("w100 "), "it is live");
    database.isAway = true;
    await passUntil(() => other.events.includes("w250 "), "it is live while the database is down");
    assert.deepEqual(other.comments, []);
    database.isAway = false;
    await passUntil(() => other.isEnded, "it ends");
    const own = follow(a, id);
    await own.ended;
    assert.ok(other.events === own.events, "the same as in the journal");
    assert.equal(network.requests.length, 1);
  });
});

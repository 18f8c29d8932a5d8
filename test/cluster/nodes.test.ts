import assert from "node:assert/strict";
import { test } from "node:test";
import { errorBody } from "../../handlers/wire/http_errors.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { NODE_LINKS } from "../../lib/extensions/nodes/shared_nodes.ts";
import { awayError, LEASE_MS } from "../support/clustered.ts";
import { createFakePeer, driveHooks, type FakePeer } from "../support/fake_peer.ts";
import { type LinkedCluster, type LinkedGateway, withCluster } from "../support/linked_gateways.ts";
import { HELLO } from "../support/node_bench.ts";

/** Time between two looks of a gateway at the records of nodes. Milliseconds */
const LOOK_MS = 5_000;
const NODE_TOKEN = "right-token-0123456789";
const config = {
  gateway: {
    ...{ rate_limit_max: 0, host: "0.0.0.0", allow_public_bind: true },
    node_control: { enabled: true, auth_token: NODE_TOKEN, allowed_node_ids: ["pi"] },
  },
  autonomy: { level: "full" },
};

interface Node {
  readonly peer: FakePeer;
  readonly say: (frame: unknown) => void;
  readonly leave: () => void;
  /** Calls that it was sent */
  readonly calls: () => readonly { readonly id: string; readonly input: unknown; readonly call_id: string }[];
}

/** Connects the node `pi` to a gateway. */
function connectNode({ name, router }: LinkedGateway, hello: Record<string, unknown> = {}): Node {
  const headers = { upgrade: "websocket", authorization: `Bearer ${NODE_TOKEN}` };
  const request = new Request(`https://${name}.test/ws/node?id=pi`, { headers });
  const peer = createFakePeer();
  const ends = driveHooks(router.resolveWebSocket(request, { remoteAddress: "192.0.2.20" }), peer);
  ends.say({ ...HELLO, ...hello });
  return {
    peer,
    say: ends.say,
    leave: ends.leave,
    calls: () => peer.frames().filter(({ type }) => type === "invoke"),
  };
}

interface Called {
  output?: string | undefined;
  isError?: boolean | undefined;
}

/** Calls the node's tool through a gateway. */
function call(gateway: LinkedGateway, signal?: AbortSignal): Called {
  const called: Called = {};
  const sent = gateway.send("/v1/tools/node__pi__echo/call", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: { text: "hi" } }),
    ...(signal === undefined ? {} : { signal }),
  });
  void sent.then(async (reply) => {
    const body = await reply.json() as { output?: string; is_error?: boolean };
    called.output = body.output ?? JSON.stringify(body);
    called.isError = body.is_error;
  }).catch(() => {});
  return called;
}

async function nodesOf(gateway: LinkedGateway): Promise<readonly Record<string, unknown>[]> {
  return (await (await gateway.send("/v1/nodes")).json() as { data: Record<string, unknown>[] }).data;
}

test("the gateway that holds a node's link answers, and the others forward their calls to it", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    const node = connectNode(a);
    await pass(10);
    for (const gateway of [a, b]) {
      const [shown] = await nodesOf(gateway);
      assert.deepEqual([shown?.["connected"], shown?.["gateway"], shown?.["tool_count"], shown?.["address"]], [
        ...[true, a.services.cluster.id, 1, "192.0.2.20"],
      ]);
    }
    const called = call(b);
    await passUntil(() => node.calls().length === 1, "the node is called");
    const [asked] = node.calls();
    assert.deepEqual(asked?.input, { text: "hi" });
    // Longer than a silent link would be borne
    await pass(20_000);
    node.say({ type: "result", id: asked?.id, output: "hi yourself", is_error: false, ran: true });
    await passUntil(() => called.output !== undefined, "the caller has the result");
    assert.deepEqual(called, { output: "hi yourself", isError: false });
    assert.deepEqual(network.requests, ["POST a /v1/cluster/nodes/pi/call"]);
    // The decision and the call are in the audit of the gateway that asked
    const audit = await (await b.send("/v1/audit")).text();
    assert.match(audit, /node__pi__echo/);

    const leaving = new AbortController();
    void call(b, leaving.signal);
    await passUntil(() => node.calls().length === 2, "the node is called again");
    leaving.abort();
    await passUntil(
      () => node.peer.frames().some(({ type, id }) => type === "cancel" && id === node.calls()[1]?.id),
      "the node is told to stop when the caller has left",
    );
    node.leave();
    await passUntil(() => node.peer.sent.length > 0, "it leaves");
    await pass(10);
    for (const gateway of [a, b]) assert.equal((await nodesOf(gateway))[0]?.["connected"], false);
  });
});

test("a node that connects to another gateway moves there, and its older connection ends", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    const older = connectNode(a);
    await pass(10);
    const newer = connectNode(b, { tools: [{ ...HELLO.tools[0], description: "Says it again, better" }] });
    await pass(10);
    assert.equal(older.peer.code(), 4409, "the older connection is told that it was replaced");
    assert.equal(newer.peer.code(), undefined);
    for (const gateway of [a, b]) {
      assert.equal((await nodesOf(gateway))[0]?.["gateway"], b.services.cluster.id, gateway.name);
    }
    const called = call(a);
    await passUntil(() => newer.calls().length === 1, "the new gateway is asked");
    newer.say({ type: "result", id: newer.calls()[0]?.id, output: "here", is_error: false, ran: true });
    await passUntil(() => called.output !== undefined, "the caller has the result");
    assert.equal(called.output, "here");
    assert.deepEqual(older.calls(), []);
    assert.deepEqual(network.requests, ["POST b /v1/cluster/nodes/pi/call"]);
  });
});

test("runs are offered the tools of a node while it is connected, here or elsewhere: also when it comes back with the same ones", async () => {
  await withCluster(async ({ start, pass }) => {
    const gateways = [await start("a", { config }), await start("b", { config })];
    const [a] = gateways as [LinkedGateway];
    await pass(2 * LEASE_MS);
    const offered = () => gateways.map(({ services }) => services.tools.enabled(["node__*"]).map(({ name }) => name));
    for (let times = 0; times < 2; times++) {
      const node = connectNode(a);
      await pass(10);
      assert.deepEqual(offered(), [["node__pi__echo"], ["node__pi__echo"]], "it is there");
      node.leave();
      await pass(10);
      assert.deepEqual(offered(), [[], []], "it is gone");
    }
  });
});

test("an older connection that is recorded late does not take the node back from a newer one", async () => {
  await withCluster(async ({ start, pass }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    a.database.isCut = true;
    const older = connectNode(a);
    await pass(10);
    // The connection to the first gateway breaks without a sign, and the node connects to the other
    const newer = connectNode(b);
    await pass(10);
    a.database.isCut = false;
    await pass(LOOK_MS);
    assert.equal(newer.peer.code(), undefined, "the newest connection counts");
    assert.equal(older.peer.code(), 1013, "a node that is there after all comes back, and is the newest then");
    for (const gateway of [a, b]) {
      assert.equal((await nodesOf(gateway))[0]?.["gateway"], b.services.cluster.id, gateway.name);
    }
    const again = connectNode(a);
    await pass(10);
    assert.deepEqual([newer.peer.code(), again.peer.code()], [4409, undefined]);
  });
});

/** Counts the looks at the records of nodes. The database goes away for one that is made without an end to it. */
function countLooks({ database }: Pick<LinkedCluster, "database">): () => number {
  let looks = 0;
  database.onResult = async (operation, first) => {
    if (operation === "scan" && first === NODE_LINKS.name && ++looks > 100) throw awayError();
  };
  return () => looks;
}

test("a damaged record of a node is written over by the gateway that holds the node's link", async () => {
  await withCluster(async ({ database, start, pass }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    await database.store.batch([{ op: "insert", collection: NODE_LINKS.name, key: "pi", body: { v: 1, gateway: 7 } }]);
    const looks = countLooks({ database });
    connectNode(a);
    await pass(10);
    assert.equal((await nodesOf(b))[0]?.["gateway"], a.services.cluster.id);
    assert.ok(looks() < 10, `${looks()} looks`);
  });
});

test("a record of a node that cannot be written is tried again after a pause", async () => {
  await withCluster(async ({ database, start, pass }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    const looks = countLooks({ database });
    a.database.onBatch = (writes, make) =>
      writes.some((write) => "collection" in write && write.collection === NODE_LINKS.name)
        ? Promise.resolve(false)
        : make();
    connectNode(a);
    await pass(900);
    assert.ok(looks() > 2 && looks() < 8, `${looks()} looks`);
    a.database.onBatch = (_, make) => make();
    await pass(300);
    assert.equal((await nodesOf(b))[0]?.["gateway"], a.services.cluster.id);
    a.database.onBatch = () => Promise.resolve(false);
    connectNode(a);
    await pass(10);
  });
});

test("a node whose gateway gives no address is shown, and a call names the gateway and the key", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const [a, b] = [await start("a", { config, advertises: false }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    connectNode(a);
    await pass(10);
    assert.equal((await nodesOf(b))[0]?.["connected"], true);
    const called = call(b);
    await passUntil(() => called.output !== undefined, "the call is refused");
    assert.equal(called.isError, true);
    assert.match(called.output ?? "", new RegExp(`gateway ${a.services.cluster.id} has its link`));
    assert.match(called.output ?? "", /has no \[cluster\] advertise_url; nothing was sent/);
    assert.deepEqual(network.requests, []);
  });
});

test("a call whose gateway dies or answers nonsense has an unknown outcome, and is never made twice", async () => {
  await withCluster(async ({ start, network, pass, passUntil }) => {
    const [a, b] = [await start("a", { config }), await start("b", { config })];
    await pass(2 * LEASE_MS);
    const node = connectNode(a);
    await pass(10);
    const bad: readonly (readonly [answer: () => Promise<Response>, said: RegExp])[] = [
      [() => Promise.reject(new TypeError("reset")), /unknown/],
      [() => new Promise(() => {}), /unknown/],
      [() => Promise.resolve(sse(new ReadableStream())), /unknown/],
      [() => Promise.resolve(sse("data: {}\n\n")), /unknown/],
      [() => Promise.resolve(sse("data: nonsense\n\n")), /unknown/],
      [() => Promise.resolve(sse(": nothing\n\n")), /unknown/],
      [() => Promise.resolve(sse('data: {"code":"sudo","message":"x"}\n\n')), /unknown/],
      // A proxy before a gateway that died with the call, and a gateway that failed in the middle of it
      [() => Promise.resolve(new Response("<h1>Bad Gateway</h1>", { status: 502 })), /unknown/],
      [() => Promise.resolve(new Response("upstream connect error", { status: 503 })), /unknown/],
      [() => Promise.resolve(new Response(new ReadableStream(), { status: 503 })), /unknown/],
      [() => Promise.resolve(Response.json(errorOf("gateway_down"), { status: 503 })), /unknown/],
      [() => Promise.resolve(new Response("", { status: 504 })), /unknown/],
      [() => Promise.resolve(Response.json(errorOf("internal_error"), { status: 500 })), /unknown/],
      [() => Promise.resolve(Response.json(errorOf("shutting_down"), { status: 503 })), /nothing was sent/],
      [() => Promise.resolve(new Response("", { status: 409 })), /nothing was sent/],
      [() => Promise.resolve(sse('data: {"code":"node_overloaded","message":"busy there"}\n\n')), /busy there/],
    ];
    for (const [answer, said] of bad) {
      network.requests.length = 0;
      network.intercept = answer;
      const called = call(b);
      await passUntil(() => called.output !== undefined, "it is answered");
      assert.equal(called.isError, true);
      assert.match(called.output ?? "", said);
      assert.equal(network.requests.length, 1, "asked once");
    }
    network.intercept = () => undefined;
    assert.deepEqual(node.calls(), []);
    const called = call(b);
    await passUntil(() => node.calls().length === 1, "the node is called");
    a.database.isCut = true;
    network.remove("a");
    a.router.connections.closeIdle();
    node.leave();
    await passUntil(() => called.output !== undefined, "the call ends");
    assert.match(called.output ?? "", /unknown/);
    await passUntil(() => b.log.some(({ message }) => message.includes("is gone")), "the gateway is fenced off");
    await pass(6_000);
    assert.equal((await nodesOf(b))[0]?.["connected"], false, "what a gateway held that is gone is nobody's");
    const again = connectNode(b);
    await pass(10);
    assert.equal((await nodesOf(b))[0]?.["gateway"], b.services.cluster.id);
    assert.equal(again.peer.code(), undefined);
  });
});

function errorOf(code: string) {
  return errorBody(new HttpError(code, "Cannot do this", { status: 503, type: "api_error" }));
}

function sse(body: string | ReadableStream<Uint8Array>): Response {
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import type { Door } from "../../handlers/door.ts";
import { FRAMES } from "../../handlers/websocket/frames.ts";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { unconfirmed } from "../../lib/access/identity.ts";
import { TOKEN_CHANGES } from "../../lib/access/token_sharing.ts";
import { WS_TICKETS } from "../../lib/access/shared_tickets.ts";
import { TOKENS } from "../../lib/access/stored_token.ts";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import { createFakePeer, driveHooks } from "../support/fake_peer.ts";
import { type ClusterMember, endMember, startMember } from "../support/cluster_member.ts";
import { createSharedDatabase, passing, type SharedDatabase } from "../support/clustered.ts";
import { MAKER } from "../support/cron_fixture.ts";
import { ask } from "../support/supervised.ts";
import { until } from "../support/until.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Refusal {
  readonly error: { readonly code: string };
}

/** Opens the doors of a member. */
function doorsOf({ services }: ClusterMember) {
  const router = createRouter({ services, routes: ROUTES });
  const hooksOf = (path: string, headers: Readonly<Record<string, string>>, remoteAddress?: string) =>
    router.resolveWebSocket(
      new Request(`http://127.0.0.1${path}`, { headers: { upgrade: "websocket", ...headers } }),
      { remoteAddress },
    );
  async function send(
    method: string,
    path: string,
    { token, body, from = "127.0.0.1" }: {
      /** Undefined: none is sent */
      readonly token: string | undefined;
      readonly body?: unknown;
      readonly from?: string;
    },
  ) {
    return await router.fetch(
      new Request(`http://127.0.0.1${path}`, {
        method,
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          "content-type": "application/json",
        },
        ...(method === "POST" ? { body: JSON.stringify(body ?? {}) } : {}),
      }),
      { remoteAddress: from },
    );
  }
  async function codeOf(reply: Response): Promise<string> {
    return reply.status < 400 ? String(reply.status) : (await reply.json() as Refusal).error.code;
  }
  async function shake(path: string, headers: Readonly<Record<string, string>> = {}, from?: string) {
    const hooks = hooksOf(path, headers, from);
    const refusal = await hooks.upgrade?.(new Request("http://127.0.0.1/"));
    return { hooks, code: refusal instanceof Response && refusal.status >= 400 ? await codeOf(refusal) : "101" };
  }
  async function open(path: string, headers: Readonly<Record<string, string>> = {}) {
    const { hooks, code } = await shake(path, headers);
    assert.equal(code, "101");
    const peer = createFakePeer();
    return { peer, ...driveHooks(hooks, peer) };
  }
  return { send, codeOf, shake, open, router };
}

async function withMembers(
  work: (parts: {
    readonly database: SharedDatabase;
    readonly a: ClusterMember;
    readonly b: ClusterMember;
  }) => Promise<void>,
  script: Script = ["one", "two", "three", "four"],
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const options = {
      ...{ environment: { POSTERN_TOKEN: "token-of-the-environment" }, script, config: { cron: { enabled: true } } },
    };
    const a = await startMember(database, join(folder, "a"), options);
    const b = await startMember(database, join(folder, "b"), options);
    try {
      await work({ database, a, b });
    } finally {
      database.isAway =
        database.isMute =
        a.link.isCut =
        b.link.isCut =
          false;
      await database.clock.advance(2_000);
      await endMember(database, a);
      await endMember(database, b);
    }
    assert.equal(database.clock.pending(), 0, "no timer is left");
  });
}

const COMPLETION = { model: "default", messages: [{ role: "user", content: "Hello" }] };
/** A frame of each type. */
const SAID: Readonly<Record<keyof typeof FRAMES, object>> = {
  message: { text: "Hello" },
  resume: { run_id: "run_1", after: 0 },
  cancel: {},
  approve: { approval_id: "apr_1" },
  deny: { approval_id: "apr_1" },
  hello: {},
  ping: {},
};
/** A call that waits for an approval. */
const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "a.txt", content: "hello" } }] };
const ADMIN = { scopes: ["admin"], label: "" } as const;

test("a run with tools begins with a token that still counts after a slow look at the tokens", () =>
  withMembers(async ({ database, a, b }) => {
    const atB = doorsOf(b);
    const { token, record } = await a.services.tokens.issue(ADMIN);
    await database.clock.advance(500);
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      await onResult(operation, first);
      if (operation === "scan" && first === TOKEN_CHANGES.name) await database.clock.sleep(2_500);
    };
    // The completion waits a second for certainty, and once more before it gets the agent's tools
    await database.clock.advance(1_400);
    database.isMute = true;
    await passing(database, a.services.tokens.revoke(record.id));
    await passing(database, database.clock.sleep(100));
    const reply = await passing(database, atB.send("POST", "/v1/chat/completions", { token, body: COMPLETION }));
    assert.equal(await atB.codeOf(reply), "auth_invalid");
    database.onResult = onResult;
    await database.clock.advance(4_000);
  }));

test("a schedule of a token that this gateway cannot know yet fires once it is certain, and is not recorded as failed", () =>
  withMembers(async ({ database, a, b }) => {
    await database.clock.advance(1_000);
    const { onResult } = database;
    let isUncertain = true;
    database.onResult = async (operation, first, link) => {
      await onResult(operation, first, link);
      if (isUncertain && link === b.link && operation === "scan" && first === TOKEN_CHANGES.name) throw unconfirmed();
    };
    await database.clock.advance(2_000);
    const { record } = await passing(database, a.services.tokens.issue({ scopes: ["runs"], label: "" }));
    const by = { via: "http", tokenId: record.id, scopes: record.scopes } as const;
    await passing(
      database,
      a.services.cron.add({ id: "soon", schedule: "in 2 seconds", prompt: "work" }, { ...MAKER, caller: by }),
    );
    // B alone fires
    a.link.isCut = true;
    await database.clock.advance(5_000);
    const firings = async () =>
      (await b.services.cron.history("soon", { limit: 10 }))?.firings.map((one) => one.status);
    assert.deepEqual(await firings(), []);
    isUncertain = false;
    await database.clock.advance(120_000);
    console.log(
      await b.services.cron.history("soon", { limit: 10 }),
      await b.services.cron.get?.("soon"),
      b.services.config().cron,
      b.services.tokens.standing(),
      b.services.tokens.scopesOf(record.id),
    );
    assert.deepEqual(await firings(), ["started"]);
    database.onResult = onResult;
  }));

test("a token that is revoked at one gateway ends at another: requests, sockets, tickets, without any note too", () =>
  withMembers(async ({ database, a, b }) => {
    const [atA, atB] = [doorsOf(a), doorsOf(b)];
    const { token, record } = await a.services.tokens.issue(ADMIN);
    await database.clock.advance(10);
    const send = async () => await atB.codeOf(await passing(database, atB.send("GET", "/v1/models", { token })));
    assert.equal(await send(), "200");
    const ticket = (await (await atA.send("POST", "/v1/ws-ticket", { token })).json() as { ticket: string }).ticket;
    const socket = await atB.open("/ws/chat", { authorization: `Bearer ${token}` });
    assert.equal((await atB.shake(`/ws/chat?ticket=${ticket}`)).code, "101", "a ticket of A at B");
    assert.equal((await atA.shake(`/ws/chat?ticket=${ticket}`)).code, "auth_invalid", "once");
    const other = (await (await atA.send("POST", "/v1/ws-ticket", { token })).json() as { ticket: string }).ticket;
    socket.say({ type: "ping" });
    assert.deepEqual(socket.peer.frames().map(({ type }) => type), ["pong"]);
    database.isMute = true;
    assert.equal(await atA.codeOf(await atA.send("DELETE", `/v1/tokens/${record.id}`, { token })), "200");
    await database.clock.advance(999);
    assert.equal(socket.peer.closedWith?.code, 1008);
    assert.equal(await send(), "auth_invalid");
    const late = await passing(database, atB.shake(`/ws/chat?ticket=${other}`));
    assert.equal(late.code, "auth_invalid", "the ticket of a revoked token");
    // Whoever presents it to every gateway at once finds no gateway that still takes it
    const raced = await passing(
      database,
      Promise.all([atA, atB, atA, atB].map((at) => at.send("GET", "/v1/tokens", { token }))),
    );
    assert.deepEqual(raced.map(({ status }) => status), [401, 401, 401, 401]);
  }));

test("whoever pairs at one gateway and asks it for a ticket opens a socket at another in the same moment", () =>
  withMembers(async ({ database, a, b }) => {
    const [atA, atB] = [doorsOf(a), doorsOf(b)];
    await database.clock.advance(200);
    database.isMute = true;
    const { token } = await a.services.tokens.issue(ADMIN);
    const { ticket } = await (await atA.send("POST", "/v1/ws-ticket", { token })).json() as { ticket: string };
    assert.equal((await passing(database, atB.shake(`/ws/chat?ticket=${ticket}`))).code, "101");
  }));

test("a token made a moment before the database went down is not called wrong by a gateway that could not look", () =>
  withMembers(async ({ database, a, b }) => {
    const at = doorsOf(b);
    const known = await b.services.tokens.issue(ADMIN);
    await database.clock.advance(1_000);
    b.link.isCut = true;
    assert.equal(b.services.tokens.standing().isConfirmed, true, "it was certain a moment ago");
    const { token } = await a.services.tokens.issue(ADMIN);
    await database.clock.advance(400);
    assert.equal(b.services.tokens.standing().isConfirmed, true);
    const codeOf = async (token: string) => await at.codeOf(await at.send("GET", "/v1/models", { token }));
    assert.equal(await codeOf(token), "storage_unavailable");
    assert.equal(await codeOf(known.token), "200");
    b.link.isCut = false;
    await database.clock.advance(1_000);
    assert.equal(await passing(database, codeOf(token)), "200");
  }));

test("with the database down every door is closed but those of the table, for any token, until it is back", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue(ADMIN);
    const socket = await at.open("/ws/chat", { authorization: `Bearer ${token}` });
    const plain = await b.services.tokens.issue({ scopes: ["chat"], label: "", plain: true });
    database.isAway = true;
    await database.clock.advance(1_000);
    for (const who of [token, "token-of-the-environment"]) {
      for (const route of ROUTES) {
        const { method, path, access, steady } = route;
        if (access === "public" || access === "cluster" || access === "pairing_code" || access === "node_token") {
          continue;
        }
        const asked = path.replaceAll(/:\w+\+?/g, "default");
        if (route.websocket !== undefined) {
          const { code } = await at.shake(asked, { authorization: `Bearer ${who}` });
          assert.equal(code, "storage_unavailable", path);
          continue;
        }
        const reply = await at.send(method, asked, { token: who });
        const isClosed = reply.status === 503;
        assert.equal(isClosed, steady === undefined, `${method} ${path}: ${reply.status}`);
        if (isClosed) assert.match(reply.headers.get("retry-after") ?? "", /^\d+$/);
        assert.equal(isClosed && await at.codeOf(reply) !== "storage_unavailable", false);
      }
    }
    // Tools make a completion one that the table does not have; a plain token makes none
    const complete = async (who: string) =>
      await at.codeOf(await at.send("POST", "/v1/chat/completions", { token: who, body: COMPLETION }));
    assert.deepEqual([await complete(token), await complete(plain.token)], ["storage_unavailable", "200"]);
    for (const [type, frame] of Object.entries(SAID)) {
      socket.peer.sent.length = 0;
      socket.say({ type, ...frame });
      const codes = socket.peer.frames().map(({ code }) => code);
      const door: Door = FRAMES[type as keyof typeof FRAMES];
      assert.equal(codes.includes("storage_unavailable"), door.steady === undefined, `${type}: ${codes}`);
    }
    // A token that another gateway may have made is no wrong token, and costs no read
    const unknown = `pst_${"x".repeat(43)}`;
    assert.equal(await at.codeOf(await at.send("GET", "/v1/models", { token: unknown })), "storage_unavailable");
    assert.equal(await at.codeOf(await at.send("GET", "/v1/models", { token: "wrong" })), "auth_invalid");
    await database.clock.advance(29_000);
    assert.equal(await at.codeOf(await at.send("GET", "/v1/models", { token })), "200");
    await database.clock.advance(2_000);
    assert.equal(await at.codeOf(await at.send("GET", "/v1/models", { token })), "storage_unavailable");
    assert.equal(await at.codeOf(await at.send("GET", "/v1/models", { token: "token-of-the-environment" })), "200");
    assert.equal(socket.peer.closedWith, undefined, "what is open stays open");
    socket.leave();
    database.isAway = false;
    await database.clock.advance(1_000);
    assert.equal(await at.codeOf(await at.send("GET", "/v1/tokens", { token })), "200");
  }));

test("with a slow database requests wait for its answer, and what goes on without it waits for a second", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue(ADMIN);
    const { onResult } = database;
    let looks = 0;
    database.onResult = async (operation, first) => {
      await onResult(operation, first);
      if (operation !== "scan" || first !== TOKEN_CHANGES.name) return;
      looks++;
      await database.clock.sleep(3_000);
    };
    await database.clock.advance(1_400);
    const begunAt = database.clock.monotonic();
    const asked = {
      models: at.send("GET", "/v1/models", { token }),
      tokens: at.send("GET", "/v1/tokens", { token }),
      tools: at.send("POST", "/v1/chat/completions", { token, body: COMPLETION }),
    };
    const took: Record<string, number> = {};
    const answered = Object.entries(asked).map(async ([name, sent]) => {
      const reply = await sent;
      took[name] = database.clock.monotonic() - begunAt;
      assert.equal(await at.codeOf(reply), "200", name);
    });
    looks = 0;
    await passing(database, Promise.all(answered));
    assert.equal(took["models"], 1_000);
    assert.ok((took["tokens"] ?? 0) > 1_000 && (took["tools"] ?? 0) > 1_000, JSON.stringify(took));
    assert.ok(looks <= 10, `${looks} looks of two gateways`);
    database.onResult = onResult;
    await database.clock.advance(3_000);
  }));

test("with a slow database a ping of a socket waits for a second, and a frame too many is refused without closing it", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue(ADMIN);
    const socket = await at.open("/ws/chat", { authorization: `Bearer ${token}` });
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      await onResult(operation, first);
      if (operation === "scan" && first === TOKEN_CHANGES.name) await database.clock.sleep(4_500);
    };
    await database.clock.advance(1_500);
    const frames = () => socket.peer.frames().map(({ type, code }) => code ?? type);
    socket.say({ type: "ping" });
    socket.say({ type: "resume", run_id: "run_1", after: 0 });
    socket.say({ type: "ping" });
    await database.clock.advance(990);
    assert.deepEqual(frames(), []);
    await database.clock.advance(10);
    assert.deepEqual(frames(), ["pong"], "what needs certainty still waits, and what came after it");
    for (let index = 0; index < 15; index++) socket.say({ type: "ping" });
    assert.deepEqual(frames(), ["pong", "overloaded"]);
    database.onResult = onResult;
    await database.clock.advance(5_000);
    const answers = [...Array.from({ length: 16 }, () => "pong"), "overloaded", "not_found"];
    assert.deepEqual(frames().sort(), answers.sort());
    assert.equal(socket.peer.closedWith, undefined);
    socket.leave();
  }));

test("strangers do not hold the places of known callers while the database is slow", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue(ADMIN);
    await database.clock.advance(1_000);
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      await onResult(operation, first);
      if (operation === "scan" && first === TOKEN_CHANGES.name) await database.clock.sleep(1_500);
    };
    await database.clock.advance(1_500);
    const invented = (index: number) => `pst_${String(index).padStart(43, "z")}`;
    const ask = async (token: string | undefined, from: string) =>
      await at.codeOf(await at.send("GET", "/v1/tokens", { token, from }));
    // Without credentials no look changes the answer
    for (let index = 0; index < 50; index++) assert.equal(await ask(undefined, "203.0.113.1"), "auth_required");
    const one = Array.from({ length: 100 }, (_, index) => ask(invented(index), "203.0.113.2"));
    const many = Array.from({ length: 1_000 }, (_, index) => ask(invented(1_000 + index), `203.0.114.${index % 200}`));
    const owner = await passing(database, ask(token, "127.0.0.1"));
    assert.equal(owner, "200");
    const counts = new Map<string, number>();
    for (const code of await passing(database, Promise.all(one))) counts.set(code, (counts.get(code) ?? 0) + 1);
    assert.deepEqual(Object.fromEntries(counts), { storage_unavailable: 60, rate_limited: 40 });
    await passing(database, Promise.all(many));
    assert.equal(await ask(invented(0), "203.0.113.2"), "rate_limited", "it waits for nothing any more");
    database.onResult = onResult;
    await database.clock.advance(3_000);
  }));

test("invented tickets cost the database no more than the rate limit says, and leave room for a good one", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue(ADMIN);
    await database.clock.advance(1_000);
    let taken = 0;
    let ms = 0;
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      await onResult(operation, first);
      if (operation !== "takeOnce" || first !== WS_TICKETS.name) return;
      taken++;
      await database.clock.sleep(ms);
    };
    const shake = async (ticket: string, from: string) => (await at.shake(`/ws/chat?ticket=${ticket}`, {}, from)).code;
    const invented = (index: number) => `tkt_${String(index).padStart(43, "x")}`;
    const { ticket } = await (await at.send("POST", "/v1/ws-ticket", { token })).json() as { ticket: string };
    ms = 50;
    const flood = Array.from({ length: 64 }, (_, index) => shake(invented(index), "203.0.113.1"));
    assert.equal(await passing(database, shake(ticket, "127.0.0.1")), "101");
    await passing(database, Promise.all(flood));
    assert.equal(taken, 8 + 1);
    ms = 0;
    for (let index = 0; index < 200; index++) {
      const code = await passing(database, shake(invented(index), "203.0.113.2"));
      assert.equal(code, index < 60 ? "auth_invalid" : "rate_limited");
    }
    assert.equal(taken, 9 + 60);
    database.onResult = onResult;
  }));

test("a gateway that was stopped for a while reads once before it takes requests, frames and handshakes", () =>
  withMembers(async ({ database, a, b }) => {
    const at = doorsOf(b);
    const { token, record } = await a.services.tokens.issue(ADMIN);
    await database.clock.advance(10);
    const socket = await at.open("/ws/chat", { authorization: `Bearer ${token}` });
    b.services.tokens.close();
    await a.services.tokens.revoke(record.id);
    await database.clock.advance(1_000);
    socket.say({ type: "ping" });
    const shaken = at.shake("/ws/chat", { authorization: `Bearer ${token}` });
    const asked = at.send("GET", "/v1/tokens", { token });
    socket.say({ type: "message", text: "Hello" });
    await database.clock.advance(200);
    assert.equal((await shaken).code, "auth_invalid");
    assert.equal((await asked).status, 401);
    assert.equal(socket.peer.closedWith?.code, 1008);
    assert.deepEqual(socket.peer.sent, []);
  }));

test("runs of a revoked token end everywhere, also when the gateway that revoked it dies in the same moment", () =>
  withMembers(async ({ database, a, b }) => {
    const { record } = await a.services.tokens.issue(ADMIN);
    await database.clock.advance(10);
    const caller = { via: "http", tokenId: record.id, scopes: ["admin"] } as const;
    const started = [];
    for (const { services } of [a, b]) {
      started.push(await services.agent?.runs.start(ask("write", { durable: true, caller })));
    }
    // A commits the revocation and does nothing after it: neither a note nor a cancellation
    database.isMute = true;
    a.services.tokens.close();
    await database.store.batch([
      { op: "delete", collection: TOKENS.name, key: record.id },
      { op: "put", collection: TOKEN_CHANGES.name, key: "all", body: { v: 1 } },
    ]);
    await database.clock.advance(3_000);
    const statusOf = async (id = "") => (await b.services.agent?.runs.get(id))?.status;
    // No clock goes on any more: what is waited for has begun, and writes to a real disk
    for (const run of started) await until(async () => await statusOf(run?.id) === "cancelled");
  }, [WRITE, "late", WRITE, "late"]));

test("a completion that writes nothing asks the database for nothing", () =>
  withMembers(async ({ database, b }) => {
    const at = doorsOf(b);
    const { token } = await b.services.tokens.issue({ scopes: ["chat"], label: "", plain: true });
    await at.send("POST", "/v1/chat/completions", { token, body: COMPLETION });
    await database.clock.advance(10);
    const asked: string[] = [];
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      // A run that ends makes room, so that the gateway looks for runs that wait; no completion waits for that
      if (first !== RUN_CLAIMS.name) asked.push(`${operation} ${JSON.stringify(first)}`);
      await onResult(operation, first);
    };
    assert.equal((await at.send("POST", "/v1/chat/completions", { token, body: COMPLETION })).status, 200);
    assert.deepEqual(asked, []);
  }));

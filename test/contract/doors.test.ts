import assert from "node:assert/strict";
import { test } from "node:test";
import { hasScope, type Scope, SCOPES } from "../../lib/base/records/caller.ts";
import type { Services } from "../../lib/services.ts";
import { CONVERSATIONS, conversationStream } from "../../lib/runs/conversations/conversation_records.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createFakePeer, driveHooks } from "../support/fake_peer.ts";
import { ask, readAll, supervised } from "../support/supervised.ts";
import { createTestRouter } from "../support/test_router.ts";
import { ENDPOINTS, FRAME_TYPES, MCP_DOORS } from "./endpoints.ts";

/** A gateway over a scripted model, and tokens that know each other's runs and conversations only by their ids. */
function setUp(script: Parameters<typeof supervised>[0] = () => "Hello", links?: Services["cluster"]["links"]) {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const { runs } = supervised(script, {
    clock,
    store,
    isChannelConversation: (id) => id === "alerts" || id.startsWith("alerts:"),
  });
  const { services, send, router } = createTestRouter({ agent: { runs, providers: undefined as never }, links });

  const newToken = async (scopes: readonly Scope[]) => (await services.tokens.issue({ scopes, label: "" })).token;

  /** Returns what a door answers: the code of a refusal, else the status, or the type of the first frame. */
  async function use(door: string, { token, path = "", body }: {
    readonly token: string;
    readonly path?: string;
    readonly body?: Readonly<Record<string, unknown>> | undefined;
  }): Promise<string> {
    const [method = "", template = ""] = door.split(" ");
    const asked = (path || template).replaceAll(/:\w+\+?/g, "default");
    if (template.startsWith("/ws/")) return handshake(asked, token);
    const reply = await send(method, asked, { token, body: method === "POST" ? body ?? {} : undefined });
    const text = await reply.text();
    // A page says to a person why it is refused
    const isPage = reply.headers.get("content-type")?.startsWith("text/html") === true;
    return reply.status < 400 || isPage ? String(reply.status) : (JSON.parse(text) as Refusal).error.code;
  }

  function hooksFor(path: string, token: string) {
    const headers = { upgrade: "websocket", authorization: `Bearer ${token}` };
    return router.resolveWebSocket(new Request(`http://gateway.test${path}`, { headers }));
  }

  async function handshake(path: string, token: string): Promise<string> {
    const refusal = await hooksFor(path, token).upgrade?.(new Request("http://gateway.test/"));
    return refusal instanceof Response && refusal.status >= 400 ? (await refusal.json() as Refusal).error.code : "101";
  }

  function socket(token: string) {
    const peer = createFakePeer();
    const ends = driveHooks(hooksFor("/ws/chat", token), peer);
    return {
      ...ends,
      peer,
      /** Says something and returns the codes and types of what came back. */
      async ask(frame: unknown): Promise<readonly string[]> {
        const before = peer.sent.length;
        ends.say(frame);
        await clock.advance(10);
        return peer.frames().slice(before).map(({ type, code }) => code ?? type);
      },
    };
  }

  return { clock, store, runs, services, newToken, use, socket };
}

interface Refusal {
  readonly error: { readonly code: string };
}

const isScope = (access: string): access is Scope => access === "cluster" || SCOPES.some((scope) => scope === access);

test("every route lets in exactly the tokens that its scope names", async () => {
  const { use, newToken } = setUp();
  for (const [method, path, access] of ENDPOINTS) {
    for (const scope of SCOPES) {
      const code = await use(`${method} ${path}`, { token: await newToken([scope]) });
      const allowed = !isScope(access) || hasScope([scope], access);
      assert.equal(code !== "insufficient_scope", allowed, `${method} ${path} with ${scope}: ${code}`);
    }
  }
});

test("the token of a cluster opens what gateways ask each other, and nothing else", async () => {
  const { use, newToken } = setUp(undefined, {
    accepts: (token: string) => token === "of-the-cluster",
    find: () => Promise.resolve(undefined),
  });
  for (const [method, path, access] of ENDPOINTS.filter(([, , access]) => isScope(access))) {
    const code = await use(`${method} ${path}`, { token: "of-the-cluster" });
    assert.equal(code === "insufficient_scope", access !== "cluster", `${method} ${path}: ${code}`);
  }
  const inside = ENDPOINTS.find(([, , access]) => access === "cluster");
  assert.ok(inside);
  for (const token of ["of-another", await newToken([...SCOPES])]) {
    const code = await use(`${inside[0]} ${inside[1]}`, { token });
    assert.ok(["auth_invalid", "insufficient_scope"].includes(code), code);
  }
});

const FRAME_BODIES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  message: { text: "Hi" },
  resume: { run_id: "run_unknown", after: 0 },
  cancel: {},
  approve: { approval_id: "apr_1" },
  deny: { approval_id: "apr_1" },
  hello: { events: true },
  ping: {},
};

test("every frame is taken from exactly the tokens that its scope names", async () => {
  const { socket, newToken } = setUp();
  for (const [type, access] of FRAME_TYPES) {
    for (const scope of SCOPES) {
      // The handshake itself takes chat
      const open = hasScope([scope], "chat") ? [scope] : (["chat", scope] as const);
      const codes = await socket(await newToken(open)).ask({ type, ...FRAME_BODIES[type] });
      assert.equal(
        codes.includes("insufficient_scope"),
        !hasScope(open, access as Scope),
        `${type}, ${open}: ${codes}`,
      );
    }
  }
});

test("every method of MCP is taken from exactly the tokens that its scope names, in both eras", async () => {
  const { use, newToken } = setUp();
  for (const [method, access] of MCP_DOORS) {
    for (const scope of SCOPES) {
      // The route itself takes tools
      const open = hasScope([scope], "tools") ? [scope] : (["tools", scope] as const);
      for (const params of [{}, { _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } }]) {
        const body = { jsonrpc: "2.0", method, params, ...method.startsWith("notifications/") ? {} : { id: 1 } };
        const code = await use("POST /mcp", { token: await newToken(open), body });
        assert.equal(
          code === "insufficient_scope",
          !hasScope(open, access as Scope),
          `${method} with ${open}: ${code}`,
        );
      }
    }
  }
});

/** Every door that goes on with a run or a conversation, and what of it a token may use. */
const CONTINUING = [
  ...ENDPOINTS.filter(([, , , continues]) => continues !== undefined).map(([method, path, , continues]) =>
    [`${method} ${path}`, continues] as const
  ),
  ...FRAME_TYPES.filter(([, , continues]) => continues !== undefined).map(([type, , continues]) =>
    [`frame ${type}`, continues] as const
  ),
];

for (const [door] of CONTINUING.filter(([, continues]) => continues === "conversation")) {
  test(`${door} goes on with conversations that the token began, and with others only with the scope runs`, async () => {
    const { store, runs, use, socket, newToken } = setUp();
    const [own, other, reader] = [await newToken(["chat"]), await newToken(["chat"]), await newToken(["chat", "runs"])];
    const say = async (token: string, conversation_id: string) => {
      if (!door.startsWith("frame ")) return await use(door, { token, body: { message: "Hi", conversation_id } });
      const codes = await socket(token).ask({ type: "message", text: "Hi", conversation_id });
      return codes.includes("done") ? "200" : codes.join();
    };
    const channel = { via: "channel", tokenId: `id_${own}`, scopes: ["chat"] } as const;
    // Begun by the token before a channel took the id over
    await say(own, "once_a_channel");
    for (const conversationId of ["alerts", "alerts:bob", "once_a_channel"]) {
      await readAll(await runs.start(ask("Hi", { conversationId, caller: channel, kind: "channel" })));
    }
    await say(own, "mine");
    await say(reader, "old");
    const stored = await store.get(CONVERSATIONS.name, "old");
    const { owner: _, ...older } = stored?.body as Record<string, unknown>;
    await store.batch([{ op: "put", collection: CONVERSATIONS.name, key: "old", body: older }]);

    const expected: readonly (readonly [conversation: string, own: string, other: string, reader: string])[] = [
      ["mine", "200", "insufficient_scope", "200"],
      ["old", "insufficient_scope", "insufficient_scope", "200"],
      ["alerts", "insufficient_scope", "insufficient_scope", "200"],
      ["alerts:bob", "insufficient_scope", "insufficient_scope", "200"],
      ["once_a_channel", "insufficient_scope", "insufficient_scope", "200"],
      ["alerts:eve", "insufficient_scope", "insufficient_scope", "200"],
      ["fresh", "200", "insufficient_scope", "200"],
    ];
    for (const [conversation, ...codes] of expected) {
      const found = [await say(own, conversation), await say(other, conversation), await say(reader, conversation)];
      assert.deepEqual(found, codes, conversation);
    }
    const kept = await store.read(conversationStream("mine"), { afterSeq: 0, limit: 100 });
    assert.equal(kept.length, 6, "the refused message is not recorded");
  });
}

for (const [door] of CONTINUING.filter(([, continues]) => continues === "run")) {
  test(`${door} reaches runs that the token began, and others only with the scope runs`, async () => {
    const { clock, runs, services, socket, newToken } = setUp(() => ({ text: ["a", "b"], chunkDelayMs: 1000 }));
    const token = await newToken(["chat"]);
    const start = async () => {
      const caller = { via: "http", tokenId: `id_${token}`, scopes: ["chat"] } as const;
      const { id } = await runs.start(ask("Hi", { durable: true, caller }));
      await clock.advance(1);
      return id;
    };
    const cases = [
      [token, true],
      [await newToken(["chat"]), false],
      [await newToken(["chat", "tools", "approve"]), false],
      [await newToken(["chat", "runs"]), true],
      [await newToken(["admin"]), true],
    ] as const;
    for (const [asker, allowed] of cases) {
      const id = await start();
      const { ask: say, peer } = socket(asker);
      await say({ type: "hello", events: true });
      const codes = await say({ type: "resume", run_id: id, after: 0 });
      assert.equal(codes.includes("run_start"), allowed, codes.join());
      assert.equal(codes.includes("insufficient_scope"), !allowed);
      if (door === "frame cancel") {
        await say({ type: "cancel" });
        assert.equal((await runs.get(id))?.status === "cancelled", allowed);
      }
      await clock.advance(10_000);
      if (!allowed) assert.doesNotMatch(peer.sent.join(), /text_delta/);
    }
    assert.equal(services.agent?.runs.active(), 0);
  });
}

test("a conversation that another token begins at the same moment stays its own", async () => {
  const store = createMemoryStore();
  const gate = Promise.withResolvers<void>();
  let held = false;
  const slow: typeof store = {
    ...store,
    async get(collection, key) {
      const found = await store.get(collection, key);
      if (collection === CONVERSATIONS.name && !held) {
        held = true;
        await gate.promise;
      }
      return found;
    },
  };
  const { runs, provider } = supervised(() => "Hello", { store: slow });
  const by = (tokenId: string) =>
    ({ caller: { via: "http", tokenId, scopes: ["chat"] }, conversationId: "x" }) as const;
  const late = runs.start(ask("What was said here?", by("tok_2")));
  await readAll(await runs.start(ask("My secret", by("tok_1"))));
  gate.resolve();
  const events = await readAll(await late);
  assert.deepEqual(events.map((event) => (event.type === "error" ? event.code : event.type)), ["insufficient_scope"]);
  assert.equal(provider.requests.length, 1);
  assert.equal((await store.read(conversationStream("x"), { afterSeq: 0, limit: 10 })).length, 2);
});

test("a conversation belongs to the run that is at work in it before anything of it is recorded", async () => {
  const { runs, clock } = supervised(() => ({ delayMs: 1000, text: "x" }), {});
  const by = (tokenId: string) =>
    ({ caller: { via: "http", tokenId, scopes: ["chat"] }, conversationId: "x" }) as const;
  const first = readAll(await runs.start(ask("My secret", by("tok_1"))));
  await assert.rejects(runs.start(ask("Me too", by("tok_2"))), { code: "insufficient_scope" });
  await clock.advance(1000);
  await first;
});

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { APPROVALS } from "../../../lib/guard/approval_records.ts";
import type { Elicitation } from "../../../lib/guard/elicitation.ts";
import { newApproval } from "../../support/new_approval.ts";
import { createTestRouter } from "../../support/test_router.ts";

const GATEWAY = { public_url: "http://gateway.test", answer_links: true } as const;
const FORM = { "content-type": "application/x-www-form-urlencoded" };

async function setUp(asked: Parameters<typeof newApproval>[0] = {}, gateway: object = GATEWAY) {
  const bench = createTestRouter({ gateway, remoteAddress: "192.0.2.7" });
  const { services, send } = bench;
  const approval = await services.approvals.ask(newApproval(asked));
  const id = approval?.id ?? "";
  const link = await (await services.answerLinks()).make(id) ?? "";
  const path = link.replace("http://gateway.test", "");
  const open = async (at = path) => {
    const reply = await send("GET", at, { token: null });
    const html = await reply.text();
    const [, nonce = ""] = /name="nonce" value="([^"]*)"/.exec(html) ?? [];
    return { status: reply.status, headers: reply.headers, html, nonce };
  };
  const answer = async (fields: Readonly<Record<string, string>>, headers = {}) => {
    const token = path.slice("/answer/".length);
    const body = new URLSearchParams({ token, decision: "allow", ...fields }).toString();
    const reply = await send("POST", "/answer", { token: null, headers: { ...FORM, ...headers }, body });
    return { status: reply.status, html: await reply.text() };
  };
  const now = async () => await services.approvals.get(id);
  const refusals = () =>
    services.audit.events.flatMap((event) => (event.type === "answer_link" ? [[event.approval_id, event.reason]] : []));
  return { services, send, id, link, path, open, answer, now, refusals };
}

describe("an answer link", () => {
  test("shows the question to whoever opens it, and answers nothing, however often it is opened", async () => {
    const { path, open, now, send } = await setUp({ input: { command: "rm -r <b>/x</b>\u202e" } });
    assert.match(path, /^\/answer\/[A-Za-z0-9_-]{43}$/);
    for (let each = 0; each < 3; each++) {
      const { status, html, headers } = await open();
      assert.equal(status, 200);
      assert.ok(html.includes("&lt;b&gt;/x&lt;/b&gt;\\u202e"));
      assert.ok(!/<script|<b>/.test(html));
      assert.match(
        headers.get("content-security-policy") ?? "",
        /^default-src 'none'; style-src 'sha256-[^']*'; form-action 'self'/,
      );
      assert.deepEqual(
        ["cache-control", "referrer-policy", "x-frame-options"].map((name) => headers.get(name)),
        ["no-store", "same-origin", "DENY"],
      );
    }
    await send("HEAD", path, { token: null });
    assert.equal((await now())?.status, "pending");
  });

  test("answers once, by the form of its page; the record and the audit name the link", async () => {
    const { open, answer, now, services, refusals, id } = await setUp();
    const { nonce } = await open();
    assert.deepEqual((await answer({ nonce })).status, 200);
    const approval = await now();
    assert.deepEqual([approval?.status, approval?.remember], ["approved", "once"]);
    const { answered_by: by } = approval ?? {};
    assert.match(by ?? "", /^lnk_/);
    const events = services.audit.events.filter((event) => event.type === "approval" && event.action === "approved");
    assert.deepEqual(events.map((event) => "by" in event && event.by), [{ via: "link", token_id: by }]);
    const again = await answer({ nonce, decision: "deny" });
    assert.equal(again.status, 410);
    assert.match(again.html, /This was allowed already, with this link, which counts once/);
    assert.equal((await open()).status, 410);
    assert.deepEqual([(await now())?.status, refusals()[0]?.[0]], ["approved", id]);
  });

  test("of two answers at the same moment one counts", async () => {
    const { open, answer, now } = await setUp();
    const { nonce } = await open();
    const both = await Promise.all([answer({ nonce, decision: "deny" }), answer({ nonce, decision: "allow" })]);
    assert.deepEqual(both.map(({ status }) => status).sort((a, b) => a - b).at(0), 200);
    assert.ok(both.some(({ status }) => status === 409 || status === 410));
    assert.match((await now())?.status ?? "", /^(approved|denied)$/);
  });

  test("is refused with a sentence, and audited, when it is altered, late, or not from its page", async () => {
    const { path, open, answer, now, services, refusals } = await setUp();
    const { nonce } = await open();
    const altered = `${path.slice(0, -1)}${path.endsWith("A") ? "B" : "A"}`;
    for (const at of [altered, "/answer/x", `/answer/${"a".repeat(43)}`]) {
      const { status, html } = await open(at);
      assert.equal(status, 404);
      assert.match(html, /This link is not known here: it was cut or altered/);
    }
    assert.equal((await answer({ nonce: nonce.toLowerCase() })).status, 409);
    assert.equal((await answer({})).status, 400);
    assert.equal((await answer({ nonce, decision: "always" })).status, 400);
    assert.equal((await answer({ nonce }, { "sec-fetch-site": "cross-site" })).status, 403);
    assert.equal((await answer({ nonce }, { origin: "https://evil.example" })).status, 403);
    assert.equal((await now())?.status, "pending");
    await services.clock.advance(60_000);
    const late = await answer({ nonce });
    assert.equal(late.status, 410);
    assert.match(late.html, /The time for this answer is over/);
    assert.equal((await now())?.status, "expired");
    assert.equal(refusals().length, 5);
  });

  test("is refused for a call that has changed since", async () => {
    const { open, answer, now, services, id } = await setUp();
    const { nonce } = await open();
    const stored = await services.store.get(APPROVALS.name, id);
    await services.store.batch([
      { op: "put", collection: APPROVALS.name, key: id, body: { ...stored?.body as object, digest: "digest-2" } },
    ]);
    const { status, html } = await answer({ nonce });
    assert.equal(status, 409);
    assert.match(html, /The call has changed since this link was sent/);
    assert.equal((await now())?.status, "pending");
  });

  test("allows nothing that its page could not show whole", async () => {
    const short = { ...{ tool: "write_file", input: { path: "a", content: "evil" } }, shown: {} } as const;
    const change = { path: "a", kind: "change", added: 1, removed: 40_000, diff: "-old", left_out: 0 } as const;
    let nested: unknown = Array(6_000).fill(1);
    for (let depth = 0; depth < 60; depth++) nested = [nested];
    const hidden: readonly (readonly [name: string, asked: Parameters<typeof setUp>[0]])[] = [
      ["a long command", { input: { command: "x".repeat(16_001) } }],
      ["a deep input", { input: { nested } }],
      ["a difference that lacks lines", { ...short, shown: { changes: [{ ...change, left_out: 9 }] } }],
      ["one that is long once spelled out", {
        ...short,
        shown: { changes: [{ ...change, diff: `-${"\u200b".repeat(40_000)}\n+evil` }] },
      }],
    ];
    for (const [name, asked] of hidden) {
      const { open, answer, now, refusals } = await setUp(asked);
      const { html } = await open();
      assert.ok(!html.includes("<form") && html.includes("too long"), name);
      assert.equal((await answer({ nonce: "x" })).status, 409, name);
      assert.deepEqual([(await now())?.status, refusals().length], ["pending", 1], name);
    }
  });

  test("counts for nothing once links are turned off, and none is made then", async () => {
    const { services, id } = await setUp({}, { public_url: "http://gateway.test", answer_links: false });
    assert.equal(await (await services.answerLinks()).make(id), undefined);
    const { status, html } = await (await setUp({}, { answer_links: false })).open(`/answer/${"a".repeat(43)}`);
    assert.deepEqual([status, /turned off/.test(html)], [404, true]);
  });

  test("has a window of its own: the thirty-first visit of a minute is refused, and hears nothing of the link", async () => {
    const { open, services } = await setUp();
    for (let each = 0; each < 30; each++) assert.equal((await open()).status, 200);
    assert.equal((await open()).status, 429);
    await services.clock.advance(59_000);
    assert.equal((await services.approvals.list({ limit: 1 })).approvals[0]?.status, "pending");
  });

  test("is opened by its person while others at the same address, as behind a proxy, try links that are none", async () => {
    const { open, answer, now } = await setUp();
    for (let each = 0; each < 30; each++) assert.equal((await open(`/answer/${"a".repeat(43)}`)).status, 404);
    assert.equal((await open("/answer/x")).status, 429);
    const { status, nonce } = await open();
    assert.deepEqual([status, (await answer({ nonce })).status, (await now())?.status], [200, 200, "approved"]);
  });

  test("of a question of the agent takes yes or no, and sends to the dashboard for more", async () => {
    const elicitation = (type: "boolean" | "string"): Elicitation => ({
      ...{ agent: true, message: "Shall I go on?\u202e", url: null },
      schema: { type: "object", properties: { answer: { type } }, required: ["answer"] },
    });
    const simple = await setUp({ elicitation: elicitation("boolean") });
    const waiting = simple.services.approvals.elicited(simple.id, AbortSignal.timeout(60_000));
    const { html, nonce } = await simple.open();
    assert.match(html, /A question of the agent:.*Shall I go on\?\\u202e.*>Yes<.*>No</s);
    assert.equal((await simple.answer({ nonce, decision: "deny" })).status, 200);
    assert.deepEqual((await waiting).content, { answer: false });
    const long = await setUp({ elicitation: elicitation("string") });
    const page = await long.open();
    assert.match(page.html, /Answer it in the dashboard/);
    assert.ok(!page.html.includes("<form"));
  });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import * as v from "valibot";
import type { Route } from "../../../handlers/route.ts";
import { checkBody } from "../../../handlers/wire/check_body.ts";
import { jsonErrorPosition, parseJsonBytes, readJson } from "../../../handlers/wire/read_json.ts";
import { sendJson } from "../../../handlers/wire/reply.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { createTestRouter, errorOf, type SendInit } from "../../support/test_router.ts";

const schema = v.object({
  name: v.string(),
  count: v.optional(v.pipe(v.number(), v.minValue(1))),
  note: v.optional(v.nullable(v.string())),
  items: v.optional(v.array(v.object({ role: v.picklist(["user", "system"]), text: v.optional(v.string()) }))),
  extra: v.optional(v.record(v.string(), v.unknown())),
  part: v.optional(v.variant("type", [
    v.object({ type: v.literal("text"), text: v.string() }),
    v.object({ type: v.literal("image"), url: v.string(), detail: v.optional(v.string()) }),
  ])),
});

const echo: Route = {
  method: "POST",
  path: "/echo",
  access: "public",
  summary: "",
  body: schema,
  reply: { status: 200, type: "application/json" },
  idempotency: "honoured",
  handler: async (request, context) => sendJson(context, 200, await readJson(request, context, schema)),
};
const post = (body: unknown, init: SendInit = {}) =>
  createTestRouter({ routes: [echo] }).send("POST", "/echo", { body, ...init });

test("any JSON media type in UTF-8, or none, is read; another present one is 415", async () => {
  const body = { name: "n" };
  for (
    const type of [
      "application/json",
      "Application/JSON; charset=UTF-8",
      "application/problem+json",
      'application/json;charset="utf8"',
      "application/json; profile=x",
    ]
  ) {
    assert.equal((await post(body, { headers: { "content-type": type } })).status, 200, type);
  }
  for (
    const type of [
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonp",
      "application/json; charset=latin1",
      "text/json",
      "",
    ]
  ) {
    const reply = await post(JSON.stringify(body), { headers: { "content-type": type } });
    assert.deepEqual([reply.status, (await errorOf(reply)).code], [415, "unsupported_media_type"], type);
  }
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const untyped = new Request("http://gateway.test/echo", { method: "POST", body: bytes });
  assert.equal(untyped.headers.get("content-type"), null);
  assert.equal((await createTestRouter({ routes: [echo] }).router.fetch(untyped)).status, 200);
});

test("broken JSON is 400 with the position, and never shows the body", async () => {
  const cases = [["", /empty/], ["{", /position 1$/], ['{"name":"sk-secret" x}', /position 20$/], [
    "sk-secret",
    /position 0$/,
  ], ['{"name":"sk-secret\n"}', /position 18$/]] as const;
  for (const [body, message] of cases) {
    const reply = await post(body);
    assert.equal(reply.status, 400);
    const error = await errorOf(reply);
    assert.match(error.message, message);
    assert.doesNotMatch(error.message, /secret/);
  }
});

test("bad UTF-8 is 400, whatever it would be repaired to", async () => {
  for (const bytes of [[0xff], [0xc3, 0x28], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0xc0, 0xaf]]) {
    const body = new Uint8Array([
      ...new TextEncoder().encode('{"name":"'),
      ...bytes,
      ...new TextEncoder().encode('"}'),
    ]);
    const reply = await post(body);
    assert.equal(reply.status, 400, bytes.join());
    assert.match((await errorOf(reply)).message, /UTF-8/);
  }
  assert.equal((await post({ name: "\ufffd" })).status, 200);
});

test("nesting is accepted to 64 levels and refused above, brackets in strings do not count", async () => {
  const nested = (depth: number) => `{"name":"n","extra":{"a":${"[".repeat(depth - 2)}${"]".repeat(depth - 2)}}}`;
  assert.equal((await post(nested(64))).status, 200);
  const reply = await post(nested(65));
  assert.equal(reply.status, 400);
  assert.match((await errorOf(reply)).message, /64 levels/);
  assert.equal((await post({ name: '[{"\\'.repeat(100) })).status, 200);
  assert.equal((await post("[".repeat(1_000_000))).status, 400);
});

test("a wrong value is 400 invalid_request with the field in param, and its value in no message", async () => {
  const cases = [
    [{}, "name", /it is missing/],
    [{ name: 5 }, "name", /expected string, got a number/],
    [{ name: "n", count: 0 }, "count", /expected >=1/],
    [{ name: "n", items: [{ role: "user" }, { role: "sk-secret" }] }, "items[1].role", /expected "user" or "system"/],
    [{ name: "n", items: { role: "sk-secret" } }, "items", /expected array, got an object/],
    [{ name: null }, "name", /got null/],
    [{ name: "n", part: { type: "sk-secret" } }, "part.type", /expected/],
    [[], null, /the request body/],
    [{ name: "n", extra: [1] }, "extra", /got an array/],
    ['"sk-secret"', null, /the request body/],
    ["null", null, /got null/],
  ] as const;
  for (const [body, param, message] of cases) {
    const reply = await post(body);
    const error = await errorOf(reply);
    assert.deepEqual([reply.status, error.code, error.param], [400, "invalid_request", param], JSON.stringify(body));
    assert.match(error.message, message);
    assert.doesNotMatch(error.message, /secret/);
  }
});

test("null equals absent for optional fields, deep ones too, and stays where it is a value", async () => {
  const reply = await post({
    name: "n",
    count: null,
    note: null,
    items: [{ role: "user", text: null }],
    part: { type: "image", url: "u", detail: null },
  });
  assert.deepEqual(await reply.json(), { name: "n", items: [{ role: "user" }], part: { type: "image", url: "u" } });
});

test("unknown fields are dropped and named in x-postern-ignored, in a bounded and safe form", async () => {
  const reply = await post({
    name: "n",
    color: 1,
    items: [{ role: "user", size: 2 }],
    extra: { free: 3 },
    "a\r\nb: c": 4,
    __proto__x: 5,
  });
  assert.equal(reply.headers.get("x-postern-ignored"), "color, items[0].size, a__b:_c, __proto__x");
  assert.deepEqual(await reply.json(), { name: "n", items: [{ role: "user" }], extra: { free: 3 } });
  const many = await post({
    name: "n",
    ...Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`${"k".repeat(500)}${i}`, 1])),
  });
  assert.ok((many.headers.get("x-postern-ignored") ?? "").length < 20 * 70);
  const own = await post('{"name":"n","__proto__":{"count":0},"constructor":1}');
  assert.equal(own.headers.get("x-postern-ignored"), "__proto__, constructor");
});

test("parseJsonBytes agrees with JSON.parse on every JSON text", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 6 }), (text) => {
      assert.deepEqual(parseJsonBytes(new TextEncoder().encode(text)), JSON.parse(text));
      assert.equal(jsonErrorPosition(text), text.length);
    }),
    { numRuns: 200 },
  );
});

test("parseJsonBytes refuses with invalid_request exactly what JSON.parse refuses, at a position where the text is still right", () => {
  const broken = fc.tuple(
    fc.json({ maxDepth: 4 }),
    fc.nat(),
    fc.constantFrom("", "x", "}", "]", ",", '"', ":", "\\", "\u0001", "{", "-"),
  );
  fc.assert(
    fc.property(broken, ([text, at, insert]) => {
      const cut = at % (text.length + 1);
      const candidate = text.slice(0, cut) + insert + text.slice(cut + 1);
      let expected = true;
      try {
        JSON.parse(candidate);
      } catch {
        expected = false;
      }
      try {
        parseJsonBytes(new TextEncoder().encode(candidate));
        assert.ok(expected, candidate);
      } catch (error) {
        assert.ok(error instanceof HttpError && error.code === "invalid_request", String(error));
        assert.ok(!expected, candidate);
        const position = jsonErrorPosition(candidate);
        assert.ok(position >= 0 && position <= candidate.length);
      }
    }),
    { numRuns: 200 },
  );
});

test("an error position in ten megabytes of text is found", () => {
  const long = `{"a":"${"\\n".repeat(5_000_000)}" b}`;
  assert.equal(jsonErrorPosition(long), long.length - 2);
});

test("a value of another kind is told by its kind", () => {
  const schema = v.object({ a: v.optional(v.array(v.string())), b: v.optional(v.picklist(["x"])) });
  const cases: readonly [unknown, string][] = [
    ["text", "Cannot accept the request body: expected object, got a string"],
    [null, "Cannot accept the request body: expected object, got null"],
    [{ a: "text" }, 'Cannot accept "a": expected array, got a string'],
    [{ b: "y" }, 'Cannot accept "b": expected "x", got another string'],
  ];
  for (const [value, message] of cases) assert.throws(() => checkBody(schema, value, []), { message });
});

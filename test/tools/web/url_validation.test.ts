import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RunTaint } from "../../../lib/base/taint.ts";
import type { Config } from "../../../lib/config/config.ts";
import { urlValidation } from "../../../lib/tools/web/url_validation.ts";
import { fetchSites } from "../../support/fetch_bench.ts";
import { createToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const { site } = fetchSites();

const NAMES: Readonly<Record<string, readonly string[]>> = {
  "good.test": ["93.184.216.34", "2606:2800::1"],
  "mixed.test": ["93.184.216.34", "10.1.2.3"],
  "own.test": ["127.0.0.1"],
};

interface Changes {
  readonly url_access?: Partial<Config["url_access"]>;
  readonly autonomy?: Partial<Config["autonomy"]>;
  /** Outside content that the run has read. Default: no run makes the call */
  readonly taint?: readonly string[];
  readonly options?: Partial<ToolBenchOptions>;
}

/** Calls the tool at level `full`. */
async function validate(input: unknown, { url_access = {}, autonomy = {}, taint, options = {} }: Changes = {}) {
  const lookups: string[] = [];
  const bench = createToolBench({
    root: import.meta.dirname,
    config: { url_access, autonomy: { level: "full", ...autonomy } },
    lookup(host) {
      lookups.push(host);
      return Promise.resolve(NAMES[host] ?? []);
    },
    ...options,
  });
  const { result } = await bench.call("url_validation", input, {
    ...taint === undefined ? {} : { taint: new RunTaint(taint) },
  });
  return { ...result, lookups, data: result.data as Data };
}

/** The part of the data that the tests read. */
interface Data {
  readonly allowed: boolean;
  readonly code: string | null;
  readonly answers: readonly { readonly rule: string; readonly answer: string; readonly reason: string }[];
  readonly addresses: readonly unknown[];
  readonly proxy: unknown;
  readonly chain:
    | readonly {
      readonly url: string;
      readonly status: number | null;
      readonly code: string | null;
      readonly problem: string | null;
    }[]
    | null;
}

const answers = ({ data }: { readonly data: Data }) => data.answers.map(({ rule, answer }) => `${rule} ${answer}`);

describe("the verdict", () => {
  test("names each rule's answer in order, the addresses and the proxy of an allowed URL", async () => {
    const result = await validate("https://me:secret@good.test/a?b=c");
    assert.equal(result.isError, false);
    assert.deepEqual(result.output.split("\n"), [
      "allowed: https://good.test/a?b=c",
      "scheme: passed, https: is allowed",
      "blocklist: passed, no entry of [url_access] domain_blocklist names the host",
      "resolution: passed, the name has 2 addresses",
      "private_ranges: passed, every address is public",
      "allowlist: passed, [url_access] enforce_domain_allowlist is off",
      "tool_hosts: passed, no tool's own list is asked",
      "own_gateway: passed, it is not this gateway",
      "address 93.184.216.34: allowed, public",
      "address 2606:2800::1: allowed, public",
      "proxy: none, no proxy is set",
    ]);
    assert.deepEqual([result.data.allowed, result.data.code, result.data.chain], [true, null, null]);
    assert.deepEqual(result.data.addresses[0], {
      address: "93.184.216.34",
      kind: "public",
      range: null,
      allowed: true,
    });
  });

  test("names the rule that refuses, with the key that opens it, and each address on its own", async () => {
    const mixed = await validate({ url: "http://mixed.test/" });
    assert.deepEqual([mixed.isError, mixed.data.allowed, mixed.data.code], [false, false, "url_private"]);
    assert.match(mixed.output, /^refused \(url_private\): http:\/\/mixed\.test\/$/m);
    assert.match(mixed.output, /^private_ranges: refused, 10\.1\.2\.3 .*block_private_ip = false/m);
    assert.match(mixed.output, /^address 10\.1\.2\.3: refused, special, in 10\.0\.0\.0\/8 \(Private-Use\)$/m);
    assert.match(mixed.output, /^address 93\.184\.216\.34: allowed, public$/m);
    const codes = new Map([
      ["http://127.0.0.1/", "url_private"],
      ["http://0x7f.1/", "url_private"],
      ["http://[::ffff:0:808:808]/", "url_private"],
      ["file:///etc/passwd", "url_scheme"],
      ["http://nothing.test/", "url_unresolved"],
      ["no url", "url_invalid"],
    ]);
    for (const [url, code] of codes) assert.equal((await validate({ url })).data.code, code, url);
  });

  test("a name that a rule refuses anyway is not looked up, and neither is text that is no URL", async () => {
    const listed = { enforce_domain_allowlist: true, domain_allowlist: ["good.test"] };
    const cases: readonly (readonly [string, Changes["url_access"], string])[] = [
      ["https://secret.evil.test/", listed, "url_not_allowed"],
      ["https://a.blocked.test/", { domain_blocklist: ["blocked.test"] }, "url_blocked"],
      ["ftp://good.test/", {}, "url_scheme"],
      ["https:// no", {}, "url_invalid"],
    ];
    for (const [url, url_access = {}, code] of cases) {
      const result = await validate({ url }, { url_access });
      assert.deepEqual([result.data.code, result.lookups], [code, []], url);
      assert.equal(
        result.data.answers.some(({ rule, answer }) => rule === "resolution" && answer !== "skipped"),
        false,
      );
    }
    const allowed = await validate("https://good.test/", { url_access: listed });
    assert.match(allowed.output, /^allowlist: passed, \[url_access\] domain_allowlist names the host$/m);
    assert.deepEqual(answers(await validate("https://x.evil.test/", { url_access: listed })), [
      ...["scheme passed", "blocklist passed", "resolution skipped", "private_ranges skipped", "allowlist refused"],
      ...["tool_hosts passed", "own_gateway skipped"],
    ]);
  });

  test("looks up no name where only reading is allowed: the name alone could carry something out", async () => {
    const url = "https://good.test/";
    const after = { taint: ["web_fetch example.com"] };
    const ask = { ...after, autonomy: { after_outside_content: "ask" } } as const;
    for (
      const [changes, why] of [[ask, /has read content from outside/], [
        { autonomy: { level: "read_only" } },
        /the level lets nothing reach the network/,
      ]] as const
    ) {
      const { data, lookups } = await validate(url, changes);
      assert.deepEqual([data.code, lookups, data.addresses], ["url_unresolved", [], []]);
      assert.match(data.answers.find(({ rule }) => rule === "resolution")?.reason ?? "", why);
      assert.deepEqual((await validate("https://8.8.8.8/", changes)).data.allowed, true, "an address needs none");
    }
    assert.deepEqual((await validate(url, after)).lookups, ["good.test"], "level full asks nobody");
  });

  test("knows the gateway itself, public ranges and names that a proxy looks up", async () => {
    const open = { url_access: { allow_loopback: true }, options: { ownPort: 7 } };
    assert.equal((await validate("http://own.test:7/v1/tokens", open)).data.code, "url_own_gateway");
    assert.equal((await validate("http://own.test:7/health", open)).data.allowed, true);
    const ranges = { url_access: { public_ranges: ["10.0.0.0/8"] } };
    assert.equal((await validate("http://mixed.test/", ranges)).data.allowed, true);
    const proxy = { http: "http://me:hunter2@proxy.test:3128", https: "", no_proxy: [], resolve: "proxy" } as const;
    const result = await validate("http://far.test/", { options: { proxy } });
    assert.deepEqual([result.data.allowed, result.lookups], [true, []]);
    assert.match(result.output, /^private_ranges: skipped, the addresses that the proxy will find are not known$/m);
    assert.match(result.output, /^proxy: http:\/\/proxy\.test:3128, \[proxy\] http names it$/m);
    assert.doesNotMatch(JSON.stringify(result), /hunter2/);
  });

  test("asks nobody when it only checks, and is a tool only when the configuration has [url_access]", async () => {
    await withWorkspace({}, async ({ root }) => {
      const off = createToolBench({ root });
      assert.match((await off.call("url_validation", "https://good.test/")).result.output, /\[url_access\]/);
      const on = createToolBench({ root, config: { url_access: {} }, lookup: () => Promise.resolve(["8.8.8.8"]) });
      assert.equal((await on.call("url_validation", "https://good.test/")).result.isError, false);
      // Following redirects reaches another machine, which asks a person
      const { result } = await on.call("url_validation", { url: "https://good.test/", follow_redirects: true });
      assert.equal(result.isError, true);
    });
  });
});

describe("the chain of redirects", () => {
  const LOCAL: Changes = { url_access: { allow_loopback: true } };
  const follow = (url: string, changes = LOCAL) => validate({ url, follow_redirects: true }, changes);

  test("has each step's verdict, asks with HEAD, and with GET where HEAD fails; no body is kept", async () => {
    const place = await site((request, response) => {
      if (request.url === "/end") {
        return void response.writeHead(request.method === "HEAD" ? 405 : 200).end("x".repeat(1_000_000));
      }
      response.writeHead(302, { location: request.url === "/a" ? "b" : "/end" }).end();
    });
    const { data, output } = await follow(`${place.origin}/a`);
    assert.deepEqual(data.chain?.map(({ url, status }) => [url, status]), [
      [`${place.origin}/a`, 302],
      [`${place.origin}/b`, 302],
      [`${place.origin}/end`, 200],
    ]);
    assert.deepEqual(place.seen.map(({ method, path }) => `${method} ${path}`), [
      "HEAD /a",
      "HEAD /b",
      "HEAD /end",
      "GET /end",
    ]);
    assert.match(output, /^3\. .*\/end: GET 200$/m);
  });

  test("stops where a step is refused: private addresses, other schemes, the gateway, no URL, an endless circle", async () => {
    const targets = new Map([
      ["/private", ["http://10.0.0.1/", "url_private"]],
      ["/file", ["file:///etc/passwd", "url_scheme"]],
      ["/own", ["http://127.0.0.1:7/pair", "url_own_gateway"]],
      ["/bad", ["http://[", "url_invalid"]],
    ]);
    const place = await site((request, response) =>
      response.writeHead(307, { location: targets.get(request.url ?? "")?.[0] ?? "/circle" }).end()
    );
    const changes = { ...LOCAL, options: { ownPort: 7 } };
    for (const [path, [target = "", code]] of targets) {
      const { data } = await follow(`${place.origin}${path}`, changes);
      assert.deepEqual(data.chain?.map((step) => [step.status, step.code]), [[307, null], [null, code]], path);
      assert.equal(data.chain?.[1]?.url, target);
    }
    const { data } = await follow(`${place.origin}/circle`, changes);
    assert.equal(data.chain?.length, 7);
    assert.match(data.chain?.at(-1)?.problem ?? "", /longer than 6 addresses/);
    const refused = await follow("http://10.0.0.1/", changes);
    assert.deepEqual(refused.data.chain?.map(({ code, status }) => [code, status]), [["url_private", null]]);
  });

  test("follows redirects alone: a Location beside another status leads nowhere, nor does 304", async () => {
    const place = await site((request, response) =>
      response.writeHead(Number(request.url?.slice(1)), { location: "/elsewhere" }).end()
    );
    for (const status of [200, 201, 304]) {
      const { data } = await follow(`${place.origin}/${status}`);
      assert.deepEqual(data.chain?.map((step) => step.status), [status]);
    }
  });

  test("names the address to the person who is asked, when a request is sent and only then", () => {
    const url = "https://a.test/";
    assert.deepEqual(urlValidation.prepare(JSON.stringify({ url, follow_redirects: true })).effects, { urls: [url] });
    assert.deepEqual(urlValidation.prepare(JSON.stringify({ url })).effects, {});
  });

  test("tells of a server that fails, and goes no further", async () => {
    const { data } = await follow("http://127.0.0.1:1/");
    assert.match(data.chain?.[0]?.problem ?? "", /127\.0\.0\.1:1.*the connection was refused/);
  });
});

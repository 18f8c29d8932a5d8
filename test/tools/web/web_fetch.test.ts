import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import type { Config } from "../../../lib/config/config.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { type FakeSite, type SeenRequest, type SiteReply, withSite } from "../../support/fake_site.ts";
import { someOf } from "../../support/seeded_random.ts";
import { createToolBench, type ToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { processorMs } from "../../support/processor_time.ts";

type Pages = Readonly<Record<string, SiteReply>>;
interface Web {
  readonly bench: ToolBench;
  readonly site: FakeSite;
  fetch(url: string | object, conversationId?: string | null): Promise<string>;
  /** Paths that were asked for, without that of robots.txt */
  paths(): readonly string[];
}
interface SetUp extends Pick<ToolBenchOptions, "clock" | "lookup"> {
  readonly settings?: Partial<Config["web_fetch"]>;
}

const HTML = { "content-type": "text/html; charset=utf-8" };
const html = (body: string, headers: Readonly<Record<string, string>> = {}): SiteReply => ({
  headers: { ...HTML, ...headers },
  body,
});

/** Runs `use` with a bench that may fetch from a site of these pages. `ROBOTS` is answered with 404 unless it is one of them. */
function withWeb(
  pages: Pages | ((request: SeenRequest) => SiteReply),
  use: (web: Web) => Promise<void>,
  setUp: SetUp = {},
) {
  const answer = (request: SeenRequest): SiteReply =>
    typeof pages === "function" ? pages(request) : pages[request.path] ?? { status: 404 };
  return withSite(answer, (site) =>
    withWorkspace({}, async ({ root }) => {
      const { settings, ...more } = setUp;
      const bench = createToolBench({
        root,
        config: {
          web_fetch: { enabled: true, timeout_secs: 20, ...settings },
          url_access: { allow_loopback: true },
          autonomy: { level: "full" },
        },
        ...more,
      });
      await use({
        bench,
        site,
        async fetch(input, conversationId = "c1") {
          const given = typeof input === "string" ? `${input.startsWith("/") ? site.origin : ""}${input}` : input;
          return (await bench.call("web_fetch", given, { conversationId })).result.output;
        },
        paths: () => site.seen.map(({ path }) => path).filter((path) => path !== "/robots.txt"),
      });
    }));
}

test("a page is its status, its metadata and Markdown", () =>
  withWeb(
    { "/a": html(`<title>Gates</title><meta name=author content=Ann><p>One <a href=b>gate</a></p>`) },
    async ({ bench, site }) => {
      const { result, taint } = await bench.call("web_fetch", `${site.origin}/a`);
      assert.equal(result.output, `status=200\ntitle: Gates\nbyline: Ann\n\nOne [gate](${site.origin}/b)`);
      assert.equal(result.isError, false);
      assert.deepEqual(taint, [`web_fetch ${new URL(site.origin).host}`]);
      assert.equal(site.seen.at(-1)?.headers["user-agent"], "postern/test");
    },
  ));

test("a status other than 200 is a result, and is not kept", () =>
  withWeb({ "/gone": { status: 410, headers: HTML, body: "<p>It is gone" } }, async ({ fetch, paths }) => {
    assert.equal(await fetch("/gone"), "status=410\nIt is gone");
    await fetch("/gone");
    assert.deepEqual(paths(), ["/gone", "/gone"]);
    assert.equal(await fetch("/none"), "status=404\n");
  }));

test("a long page is cut between characters and goes on from the cache", () =>
  withWeb({ "/long": html(`<p>${"ä€😀 ".repeat(200)}`) }, async ({ site, fetch, paths }) => {
    let whole = "";
    let start = 0;
    for (let parts = 0; parts < 100; parts++) {
      const output = await fetch({ url: `${site.origin}/long`, start });
      const [, part = "", next] =
        /^status=200\n([^]*?)(?:\n\n\[Cut at byte \d+ of 1999: go on with "start": (\d+)\])?$/.exec(output) ?? [];
      assert.ok(part !== "" && !part.includes("\ufffd") && Buffer.byteLength(part) <= 100, output);
      whole += part;
      if (next === undefined) break;
      start = Number(next);
    }
    assert.equal(whole, "ä€😀 ".repeat(200).trim());
    assert.deepEqual(paths(), ["/long"]);
    assert.match(await fetch({ url: `${site.origin}/long`, start: 1999 }), /Cannot go on at byte 1999/);
  }, { settings: { max_bytes: 100 } }));

test("max_bytes below the length of a character still goes on", () =>
  withWeb({ "/x": html("<p>😀😀") }, async ({ fetch }) => {
    assert.match(await fetch("/x"), /^status=200\n😀\n\n\[Cut at byte 4 of 8/);
  }, { settings: { max_bytes: 1 } }));

test("the cache belongs to one conversation and one policy, lasts 15 minutes, and asks the policy at each hit", async () => {
  const clock = createFakeClock();
  const addresses = [["127.0.0.1"]];
  const lookup = async (host: string) => host === "gates.test" ? addresses.at(-1) ?? [] : [];
  await withWeb({ "/a": html("<p>One") }, async ({ bench, site, fetch, paths }) => {
    const url = `http://gates.test:${new URL(site.origin).port}/a`;
    // The other one comes first: two pages may have the same place, which the later one takes
    for (const conversation of ["c2", "c1", "c1"]) assert.match(await fetch(url, conversation), /One$/);
    assert.equal(paths().length, 2);
    await fetch(`${url}#part`);
    assert.equal(paths().length, 2);
    addresses.push(["10.0.0.1"]);
    assert.match(await fetch(url), /10\.0\.0\.1 is a private/);
    addresses.push(["127.0.0.1"]);
    await clock.advance(900_000);
    assert.match(await fetch(url), /One$/);
    assert.equal(paths().length, 3);
    bench.configure({
      web_fetch: { enabled: true, max_bytes: 1000 },
      url_access: { allow_loopback: true },
      autonomy: { level: "full" },
    });
    await fetch(url);
    assert.equal(paths().length, 4);
  }, { clock, lookup });
});

test("replies for one reader are not kept", async () => {
  const headers: readonly Readonly<Record<string, string>>[] = [
    { "cache-control": "no-store" },
    { "cache-control": "max-age=60, private" },
    { "cache-control": "no-cache" },
    { "set-cookie": "a=b" },
    { vary: "*" },
  ];
  for (const more of headers) {
    await withWeb({ "/a": html("<p>One", more) }, async ({ fetch, paths }) => {
      await fetch("/a");
      await fetch("/a");
      assert.equal(paths().length, 2, JSON.stringify(more));
    });
  }
  await withWeb({ "/a": html("<p>One") }, async ({ site, fetch, paths }) => {
    const url = site.origin.replace("//", "//ann:secret@") + "/a";
    const output = await fetch(url);
    assert.ok(!output.includes("secret"), output);
    await fetch(url);
    assert.equal(paths().length, 2);
    assert.equal(site.seen.at(-1)?.headers.authorization, `Basic ${btoa("ann:secret")}`);
  });
});

test("an address that holds a known secret is refused before anything is sent", () =>
  withWeb({}, async ({ bench, site, fetch }) => {
    bench.redactor.add("key-of-the-door");
    for (const path of ["/?q=key-of-the-door", "/key%2Dof%2Dthe%2Ddoor"]) assert.match(await fetch(path), /Cannot/);
    assert.deepEqual(site.seen, []);
  }));

test("robots.txt is asked once for a site, and names the line and the key when it forbids", () =>
  withWeb(
    { "/robots.txt": { body: "User-agent: *\nDisallow: /private" }, "/a": html("<p>One"), "/private": html("<p>Two") },
    async ({ bench, site, fetch, paths }) => {
      assert.match(await fetch("/a"), /One/);
      const refused = await fetch("/private");
      assert.match(
        refused,
        /line 2 of its robots\.txt forbids it \("Disallow: \/private"\); \[web_fetch\] respect_robots = false/,
      );
      assert.equal(site.seen.filter(({ path }) => path === "/robots.txt").length, 1);
      assert.deepEqual(paths(), ["/a"]);
      bench.configure({
        web_fetch: { enabled: true, respect_robots: false },
        url_access: { allow_loopback: true },
        autonomy: { level: "full" },
      });
      assert.match(await fetch("/private"), /Two/);
    },
  ));

test("a redirect is not followed to a page that its site forbids", () =>
  withWeb(
    { "/robots.txt": { body: "User-agent: postern\nDisallow: /secret" }, "/secret": html("<p>Two") },
    async (other) => {
      await withWeb(
        { "/go": { status: 302, headers: { location: `${other.site.origin}/secret` } } },
        async ({ fetch }) => {
          assert.match(await fetch("/go"), /line 2 of its robots\.txt/);
        },
      );
      assert.deepEqual(other.paths(), []);
    },
  ));

test("a robots.txt with a failure of the server forbids all, one that is not there nothing", async () => {
  for (const status of [500, 503]) {
    await withWeb({ "/robots.txt": { status }, "/a": html("<p>One") }, async ({ fetch, paths }) => {
      assert.match(
        await fetch("/a"),
        new RegExp(`status ${status}, which forbids all of it; \\[web_fetch\\] respect_robots`),
      );
      assert.deepEqual(paths(), []);
    });
  }
  for (const status of [401, 404, 429]) {
    await withWeb(
      { "/robots.txt": { status }, "/a": html("<p>One") },
      async ({ fetch }) => assert.match(await fetch("/a"), /One/),
    );
  }
  const loop = { status: 302, headers: { location: "/robots.txt" } };
  await withWeb(
    { "/robots.txt": loop, "/a": html("<p>One") },
    async ({ fetch }) => assert.match(await fetch("/a"), /One/),
  );
});

test("the address after redirects is named and is the base of links", () =>
  withWeb(
    { "/go": { status: 301, headers: { location: "/deep/page" } }, "/deep/page": html("<p><a href=x>y</a>") },
    async ({ site, fetch }) => {
      assert.equal(await fetch("/go"), `status=200\nurl: ${site.origin}/deep/page\n\n[y](${site.origin}/deep/x)`);
    },
  ));

test("what is no text is refused with its type and size before it is read", () =>
  withWeb((request) =>
    request.path === "/robots.txt" ? { status: 404 } : (response) => {
      response.writeHead(200, { "content-type": "video/mp4", "content-length": "5000000000" });
      response.write("x");
    }, async ({ fetch }) => {
    assert.match(
      await fetch("/film"),
      /"video\/mp4" \(status 200, 5000000000 bytes\), which is no text; http_request with "save_to"/,
    );
  }));

test("a server that asks to wait is asked again within the time limit", () => {
  let count = 0;
  return withWeb((request) => {
    if (request.path === "/robots.txt") return { status: 404 };
    return ++count === 1 ? { status: 503, headers: { "retry-after": "0" } } : html("<p>Now");
  }, async ({ fetch }) => assert.match(await fetch("/a"), /Now/));
});

test("a compressed page is read, and private addresses are refused", () =>
  withWeb(
    { "/z": { headers: { ...HTML, "content-encoding": "gzip" }, body: gzipSync("<p>Packed") } },
    async ({ bench, fetch }) => {
      assert.match(await fetch("/z"), /Packed/);
      bench.configure({ web_fetch: { enabled: true }, autonomy: { level: "full" } });
      assert.match(await fetch("/z"), /is this machine; \[url_access\] allow_loopback/);
      assert.match(await fetch("http://169.254.169.254/latest"), /private or reserved/);
      for (const url of ["file:///etc/passwd", "example.com", "javascript:1"]) {
        assert.match(await fetch(url), /"url" must be an address such as https:/, url);
      }
    },
  ));

test("pages that are made to take time or memory give their text or say why not", async () => {
  const bombs: Readonly<Record<string, string>> = {
    deep: `${"<div>".repeat(300_000)}door`,
    attributes: `<div ${Array.from({ length: 9000 }, (_, at) => `a${at}=1`).join(" ")}>door</div>`,
    formatting: `${Array.from({ length: 20_000 }, (_, at) => `<font size=${at}>`).join("")}${"<p>door".repeat(20_000)}`,
    adoption: `${"<b><i><div>".repeat(30_000)}door${"</b></i></div>".repeat(30_000)}`,
    colspan: `<table>${"<tr><td colspan=1000000000 rowspan=1000000000>door<td>x".repeat(500)}</table>`,
    foster: `<table>${"<div>door".repeat(100_000)}`,
    comments: `${"<!-- x -->".repeat(100_000)}door`,
    entities: `door${"&".repeat(500_000)}`,
    title: `<title>${"t".repeat(2_000_000)}</title>door`,
    svg: `door${"<svg><g>".repeat(100_000)}`,
    surrogates: `door &#xd800;${"\u0000".repeat(100_000)}`,
  };
  await withWeb(
    (request) => (request.path === "/robots.txt" ? { status: 404 } : html(bombs[request.path.slice(1)] ?? "")),
    async ({ fetch }) => {
      for (const name of someOf(Object.keys(bombs), 0)) {
        const start = processorMs();
        const output = await fetch(`/${name}`);
        // The bounds add up to less than 2 s; the rest is for a busy machine and the start of a thread
        assert.ok(processorMs() - start < 15_000, name);
        assert.ok(
          /^status=200\n[^]*(?:door|No text was found|plain text of the whole page)/.test(output),
          `${name}: ${output.slice(0, 300)}`,
        );
      }
    },
    { settings: { max_bytes: 200_000 } },
  );
});

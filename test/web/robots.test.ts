import assert from "node:assert/strict";
import { test } from "node:test";
import { forbiddenBy, parseRobots } from "../../lib/web/robots.ts";
import { processorMs } from "../support/processor_time.ts";

const lineFor = (robots: string, path: string) => forbiddenBy(parseRobots(robots, "postern"), path)?.line;

test("the longest rule decides, and an allow over a disallow of the same length", () => {
  const robots = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c.html\nDisallow: /same\nAllow: /same\n";
  assert.deepEqual(
    ["/", "/a", "/ab", "/a/b", "/a/b/c.html", "/a/b/c.htm", "/same", "/robots.txt"].map((path) =>
      lineFor(robots, path)
    ),
    [undefined, 2, 2, undefined, 4, undefined, undefined, undefined],
  );
});

test("groups that name the agent count instead of those for all", () => {
  const robots = [
    "User-Agent: *",
    "Disallow: /",
    "",
    "user-agent: Other/2.0",
    "User-agent: POSTERN/1.0 # us",
    "Crawl-delay: 5",
    "Disallow: /ours",
    "User-agent: postern-news",
    "Disallow: /news",
    "Sitemap: https://gates.example/sitemap.xml",
    "User-agent: postern",
    "Disallow: /more # and more",
  ].join("\r\n");
  assert.deepEqual(["/x", "/ours/1", "/news", "/more"].map((path) => lineFor(robots, path)), [
    undefined,
    7,
    undefined,
    12,
  ]);
  assert.equal(lineFor("User-agent: postern\nDisallow:\nUser-agent: *\nDisallow: /", "/x"), undefined);
});

test("stars, ends and escapes match as they are written", () => {
  const cases: readonly (readonly [rule: string, path: string, matches: boolean])[] = [
    ["/*.php$", "/a/b.php", true],
    ["/*.php$", "/a/b.php?x", false],
    ["/*.php", "/a/b.php?x", true],
    ["/a*b*c", "/aXbXc", true],
    ["/a*b*c", "/aXcXb", false],
    ["*/end$", "/the/end", true],
    ["/$", "/", true],
    ["/$", "/a", false],
    ["/ab*ab$", "/ab", false],
    ["/caf%C3%A9", "/caf%c3%a9", true],
    ["/café", "/caf%C3%A9", true],
    ["/%61bc", "/abc", true],
    ["/a%2Fb", "/a/b", false],
    ["/?q=", "/?q=1", true],
  ];
  for (const [rule, path, matches] of cases) {
    assert.equal(lineFor(`User-agent: *\nDisallow: ${rule}`, path) !== undefined, matches, `${rule} ${path}`);
  }
});

test("rules without a group, unknown lines and pages of errors forbid nothing", () => {
  for (
    const text of [
      "Disallow: /",
      "<html>Not found</html>",
      "",
      "\ufeffUser-agent\nDisallow /",
      "User-agent: *\nDisallow: x",
    ]
  ) {
    assert.equal(lineFor(text, "/x"), undefined, text);
  }
});

test("a hostile file of 500 kB is read and asked within a moment", () => {
  const robots = `User-agent: *\n${`Disallow: /${"*a".repeat(40)}b\n`.repeat(6000)}`;
  const start = processorMs();
  assert.equal(lineFor(robots, `/${"a".repeat(2000)}`), undefined);
  assert.ok(processorMs() - start < 5000);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { addressKind } from "../../../lib/system/net/address.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import type { UrlRules } from "../../../lib/system/net/url_rules.ts";

const RULES: UrlRules = {
  block_private_ip: true,
  allow_loopback: false,
  public_ranges: [],
  enforce_domain_allowlist: false,
  domain_allowlist: [],
  domain_blocklist: [],
};
const NAMES: Readonly<Record<string, readonly string[]>> = {
  "example.com": ["93.184.216.34", "2606:2800:220:1::1"],
  "a.example.com": ["93.184.216.35"],
  "notexample.com": ["93.184.216.36"],
  "mixed.test": ["93.184.216.34", "10.0.0.1"],
  "localhost": ["127.0.0.1", "::1"],
  "xn--mnchen-3ya.de": ["93.184.216.37"],
};
const policy = createUrlPolicy({
  lookup: (host) => {
    const found = NAMES[host];
    return found === undefined ? Promise.reject(new Error("ENOTFOUND")) : Promise.resolve(found);
  },
});
const check = async (url: string, rules: Partial<UrlRules> = {}): Promise<string> => {
  try {
    await policy.check(url, { ...RULES, ...rules }, { signal: new AbortController().signal });
    return "allowed";
  } catch (error) {
    assert.ok(error instanceof ToolError, String(error));
    assert.match(error.message, /^Cannot reach .*[^.]$/);
    return error.code;
  }
};

test("check() gives the URL with every address of its name", async () => {
  const signal = new AbortController().signal;
  const { url, addresses } = await policy.check("https://Example.com./x", RULES, { signal });
  assert.equal(url.pathname, "/x");
  assert.deepEqual(addresses, NAMES["example.com"]);
  assert.deepEqual((await policy.check("http://[2606:2800::1]/", RULES, { signal })).addresses, ["2606:2800::1"]);
});

test("check() refuses what is no http or https URL", async () => {
  for (const url of ["", "example.com", "/etc/passwd", "git@example.com:a.git", "https://"]) {
    assert.equal(await check(url), "url_invalid", url);
  }
  for (
    const url of ["file:///etc/passwd", "ext::sh -c id", "ssh://example.com/", "javascript:1", "ftp://example.com"]
  ) {
    assert.equal(await check(url), "url_scheme", url);
  }
  assert.equal(await check("https://unknown.test/"), "url_unresolved");
});

test("check() refuses private, reserved and loopback addresses however they are written", async () => {
  const hosts = [
    ...[
      "127.0.0.1",
      "127.9.9.9",
      "0x7f.1",
      "2130706433",
      "0177.0.0.1",
      "１２７.0.0.1",
      "[::1]",
      "localhost",
      "localhost.",
    ],
    ...["10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255"],
    ...["[::]", "[::ffff:8.8.8.8]", "[::ffff:127.0.0.1]", "[::8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::1]"],
    ...[
      "[2001:0:1::1]",
      "[fc00::1]",
      "[fdff::1]",
      "[fe80::1]",
      "[ff02::1]",
      "[2001:db8::1]",
      "224.0.0.1",
      "198.18.0.1",
    ],
    ...["192.0.2.1", "mixed.test"],
  ];
  for (const host of hosts) assert.equal(await check(`http://${host}/`), "url_private", host);
  assert.equal(await check("http://localhost:1/", { allow_loopback: true }), "allowed");
  assert.equal(await check("http://10.0.0.1/", { allow_loopback: true }), "url_private");
  assert.equal(await check("http://10.0.0.1/", { block_private_ip: false }), "allowed");
  assert.equal(await check("http://127.0.0.1/", { block_private_ip: false }), "url_private");
});

test("check() knows the allowlist by host and wildcard, the blocklist with all subdomains", async () => {
  const allow = (...domain_allowlist: string[]) => ({ enforce_domain_allowlist: true, domain_allowlist });
  assert.equal(await check("https://example.com/", allow("example.com")), "allowed");
  assert.equal(await check("https://a.example.com/", allow("example.com")), "url_not_allowed");
  assert.equal(await check("https://a.example.com/", allow("*.Example.com")), "allowed");
  assert.equal(await check("https://example.com/", allow("*.example.com")), "url_not_allowed");
  assert.equal(await check("https://notexample.com/", allow("*.example.com")), "url_not_allowed");
  assert.equal(await check("https://münchen.de/", allow("münchen.de")), "allowed");
  assert.equal(await check("https://example.com/", allow()), "url_not_allowed");
  assert.equal(await check("https://a.example.com./", { domain_blocklist: ["EXAMPLE.com"] }), "url_blocked");
  assert.equal(await check("https://notexample.com/", { domain_blocklist: ["example.com", ""] }), "allowed");
});

test("check() does not look up a name that an allowlist refuses", async () => {
  const lookups: string[] = [];
  const noting = createUrlPolicy({
    lookup(host) {
      lookups.push(host);
      return Promise.resolve(["10.0.0.1"]);
    },
  });
  const { signal } = new AbortController();
  const codeOf = (url: string, rules: Partial<UrlRules>, entries?: readonly string[]) =>
    noting.check(url, { ...RULES, ...rules }, {
      signal,
      allowed: entries === undefined ? undefined : { entries, key: "[http_request] allowed_domains" },
    }).then(() => "allowed", ({ code }: ToolError) => code);
  const enforced = { enforce_domain_allowlist: true, domain_allowlist: ["example.com"] };
  assert.equal(await codeOf("https://secret.evil.example/", enforced), "url_not_allowed");
  assert.equal(await codeOf("https://secret.evil.example/", {}, ["example.com"]), "url_not_allowed");
  assert.deepEqual(lookups, []);
  assert.equal(await codeOf("https://10.0.0.1/", enforced), "url_private");
  assert.equal(await codeOf("https://example.com/", enforced), "url_private");
  assert.deepEqual(lookups, ["example.com"]);
});

test("a refusal names neither user nor password", async () => {
  const refused = policy.check("https://me:hunter2@10.0.0.1/?token=hunter2", RULES, {
    signal: new AbortController().signal,
  });
  await assert.rejects(refused, (error: Error) => !error.message.includes("hunter2"));
});

test("check() ends when its signal aborts", async () => {
  const controller = new AbortController();
  const hanging = createUrlPolicy({ lookup: () => new Promise(() => {}) });
  const checking = hanging.check("https://example.com", RULES, { signal: controller.signal });
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(checking, CancelError);
});

test("addressKind() knows every IPv4 address of the blocked ranges", () => {
  const octet = fc.integer({ min: 0, max: 255 });
  fc.assert(
    fc.property(octet, octet, octet, octet, (a, b, c, d) => {
      const special = a === 0 || a === 10 || (a === 172 && b >= 16 && b < 32) || (a === 192 && b === 168) ||
        (a === 169 && b === 254) || (a === 100 && b >= 64 && b < 128) || a >= 224 ||
        (a === 198 && (b === 18 || b === 19)) || (a === 192 && b === 0 && (c === 0 || c === 2)) ||
        (a === 198 && b === 51 && c === 100) || (a === 203 && b === 0 && c === 113);
      assert.equal(addressKind(`${a}.${b}.${c}.${d}`), a === 127 ? "loopback" : special ? "special" : "public");
    }),
    { numRuns: 200 },
  );
  for (const text of ["", "example.com", "1.2.3", "fe80::1%eth0"]) assert.equal(addressKind(text), "special");
});

test("an entry of an allowlist with a port opens that port alone, one without opens every port", async () => {
  const rules = { enforce_domain_allowlist: true };
  for (
    const [entry, url, expected] of [
      ["example.com:8443", "https://example.com:8443/", "allowed"],
      ["example.com:8443", "https://example.com/", "url_not_allowed"],
      ["example.com:443", "https://example.com/", "allowed"],
      ["example.com:443", "http://example.com/", "url_not_allowed"],
      ["example.com", "https://example.com:8443/", "allowed"],
      ["*.example.com:8443", "https://example.com:8443/", "url_not_allowed"],
      ["[2606:2800::1]:8443", "https://[2606:2800::1]:8443/", "allowed"],
      ["[2606:2800::1]:8443", "https://[2606:2800::1]/", "url_not_allowed"],
      ["2606:2800::1", "https://[2606:2800::1]/", "allowed"],
    ] as const
  ) {
    assert.equal(await check(url, { ...rules, domain_allowlist: [entry] }), expected, `${entry} ${url}`);
  }
});

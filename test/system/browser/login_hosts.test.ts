import assert from "node:assert/strict";
import { test } from "node:test";
import type { KeptCookie } from "../../../lib/base/records/cookie_jar.ts";
import {
  bindToHosts,
  isLoginHost,
  isOfLogin,
  parseLoginSite,
  reachesLogin,
} from "../../../lib/system/browser/login_hosts.ts";

const cookie = (domain: string, more: Partial<KeptCookie> = {}): KeptCookie => ({
  ...{ name: "id", value: "v", domain, path: "/", expires: -1 },
  ...{ httpOnly: true, secure: false, sameSite: "Lax" as const },
  ...more,
});

test("a site is a host or an address, and its name the host without port and path", () => {
  const read = (text: string) => Object.values(parseLoginSite(text));
  assert.deepEqual(read("App.Example.com"), ["app.example.com", "https://app.example.com/"]);
  assert.deepEqual(read("app.example.com:8443/in?x=1"), ["app.example.com", "https://app.example.com:8443/in?x=1"]);
  assert.deepEqual(read("http://app.example.com./in"), ["app.example.com", "http://app.example.com./in"]);
  assert.deepEqual(read("localhost:8080"), ["localhost", "http://localhost:8080/"]);
  assert.deepEqual(read("0x7f.1:8080"), ["127.0.0.1", "http://127.0.0.1:8080/"]);
  assert.deepEqual(read("bücher.example"), ["xn--bcher-kva.example", "https://xn--bcher-kva.example/"]);
});

for (
  const text of ["*.example.com", "", "a b", "ftp://a.example", "file:///etc/passwd", "https://u:p@a.example", "a..b"]
) {
  test(`${JSON.stringify(text)} is no site`, () => {
    assert.throws(() => parseLoginSite(text), { code: "login_host" });
  });
}

test("records have hosts in one form", () => {
  for (const host of ["app.example.com", "127.0.0.1", "[::1]", "localhost"]) {
    assert.equal(isLoginHost(host), true, host);
  }
  for (
    const host of ["App.example.com", "a.example.com.", "a.example.com:80", "a.example.com/x", "*.a.b", "", "0x7f.1"]
  ) {
    assert.equal(isLoginHost(host), false, host);
  }
});

test("a login counts for its hosts and those below, and for no other that looks like one", () => {
  const hosts = ["app.example.com", "127.0.0.1", "wiki"];
  for (const host of ["app.example.com", "a.app.example.com", "127.0.0.1", "wiki"]) {
    assert.equal(isOfLogin(host, hosts), true, host);
  }
  const others = ["example.com", "evilapp.example.com", "app.example.com.evil.test", "app.example.co", "a.127.0.0.1"];
  for (const host of [...others, "x.wiki", "127.0.0.2", ""]) assert.equal(isOfLogin(host, hosts), false, host);
});

test("cookies of other hosts are left out, and one of the parent domain becomes one of the host", () => {
  const given = [
    cookie("app.example.com"),
    cookie(".app.example.com", { name: "all" }),
    cookie("deep.app.example.com", { name: "deep" }),
    cookie(".example.com", { name: "parent", value: "p" }),
    cookie("example.com", { name: "host-only parent" }),
    cookie(".tracker.test", { name: "t" }),
    cookie("app.example.com.evil.test", { name: "e" }),
    cookie(".app.example.com", { name: "part", partitionKey: "https://evil.test" }),
    cookie(".app.example.com", { name: "own part", partitionKey: "https://example.com" }),
  ];
  const { cookies, others } = bindToHosts({ cookies: given, storage: [] }, {
    hosts: ["app.example.com"],
    isSecure: false,
  });
  assert.deepEqual(cookies.map(({ name, domain }) => `${name} ${domain}`), [
    "id app.example.com",
    "all .app.example.com",
    "deep deep.app.example.com",
    "own part .app.example.com",
    "parent .app.example.com",
  ]);
  assert.deepEqual([...others.keys()], ["example.com", "tracker.test", "app.example.com.evil.test", "app.example.com"]);
});

test("the site's own cookie goes before one of the same name from its parent domain", () => {
  const given = [cookie(".example.com", { value: "parent" }), cookie(".app.example.com", { value: "own" })];
  const { cookies } = bindToHosts({ cookies: given, storage: [] }, { hosts: ["app.example.com"], isSecure: false });
  assert.deepEqual(cookies.map(({ value }) => value), ["own"]);
});

test("no cookie of a login is for pages of other sites, nor without TLS after a sign-in with TLS", () => {
  const given = [cookie("a.example", { sameSite: "None", secure: true }), cookie(".a.example", { sameSite: "Strict" })];
  const { cookies } = bindToHosts({ cookies: given, storage: [] }, { hosts: ["a.example"], isSecure: true });
  assert.deepEqual(cookies.map(({ sameSite, secure }) => [sameSite, secure]), [["Lax", true], ["Strict", true]]);
});

test("values of local storage are those of the hosts' origins, and no more than there is room for", () => {
  const items = [{ name: "token", value: "t" }];
  const storage = [
    ...["https://app.example.com", "https://app.example.com:8443", "http://app.example.com", "https://evil.test"],
    ...["https://app.example.com.evil.test", "https://app.example.com/path", "null"],
  ].map((origin) => ({ origin, items }));
  const bound = (isSecure: boolean) =>
    bindToHosts({ cookies: [], storage }, { hosts: ["app.example.com"], isSecure }).storage.map(({ origin }) => origin);
  assert.deepEqual(bound(true), ["https://app.example.com", "https://app.example.com:8443"]);
  assert.equal(bound(false).length, 3);
  const long = [{ origin: "https://a.example", items: [{ name: "big", value: "x".repeat(600_000) }, ...items] }];
  const cut = bindToHosts({ cookies: [], storage: long }, { hosts: ["a.example"], isSecure: true });
  assert.deepEqual([cut.storage[0]?.items, cut.tooLong], [items, 1]);
});

test("a cookie of a parent domain reaches a login too", () => {
  const reaches = (domain: string) => reachesLogin(cookie(domain), ["app.example.com"]);
  assert.deepEqual([".example.com", "app.example.com", "x.app.example.com"].map(reaches), [true, true, true]);
  assert.deepEqual(["example.com", ".other.example.com", ".evil.test"].map(reaches), [false, false, false]);
});

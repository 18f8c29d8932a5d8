import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chooseProxy, type ProxySettings, shownProxy } from "../../../lib/system/net/proxy_choice.ts";

const NONE: ProxySettings = { http: "", https: "", no_proxy: [] };
const environment = (variables: Readonly<Record<string, string>>) => (name: string) => variables[name];

/** Returns the choice for an address as one line. */
function choice(url: string, settings: Partial<ProxySettings> | undefined): string {
  const { proxy, source, resolve } = chooseProxy(settings && { ...NONE, ...settings }, new URL(url));
  return proxy === undefined ? `direct, ${source}` : `${proxy}, ${source}, ${resolve}`;
}

test("[proxy] comes first, then the variables, small letters before capitals; without one the way is direct", () => {
  const config = { http: "http://own:1", https: "http://own:2" };
  const variables = environment({
    http_proxy: "http://small:1",
    HTTP_PROXY: "http://BIG:1",
    HTTPS_PROXY: "https://big:2",
  });
  assert.equal(choice("http://a.test/", undefined), "direct, null");
  assert.equal(choice("http://a.test/", NONE), "direct, null");
  assert.equal(choice("http://a.test/", { ...config, environment: variables }), "http://own:1, [proxy] http, local");
  assert.equal(choice("https://a.test/", config), "http://own:2, [proxy] https, local");
  assert.equal(choice("http://a.test/", { environment: variables }), "http://small:1, http_proxy, local");
  assert.equal(choice("https://a.test/", { environment: variables }), "https://big:2, HTTPS_PROXY, local");
  assert.equal(
    choice("https://a.test/", { http: "http://own:1", environment: variables }),
    "https://big:2, HTTPS_PROXY, local",
  );
  assert.equal(choice("https://a.test/", { ...config, resolve: "proxy" }), "http://own:2, [proxy] https, proxy");
  const bare = environment({ http_proxy: " proxy.test:3128 ", HTTPS_PROXY: "" });
  assert.equal(choice("http://a.test/", { environment: bare }), "http://proxy.test:3128, http_proxy, local");
  assert.equal(choice("https://a.test/", { environment: bare }), "direct, null");
});

test("this machine is reached directly, whatever the settings say", () => {
  const settings = { http: "http://own:1", https: "http://own:2", resolve: "proxy" } as const;
  for (const host of ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "x.localhost", "0x7f.1"]) {
    assert.equal(choice(`http://${host}:80/`, settings), "direct, null", host);
  }
});

/** Entries of NO_PROXY, and the hosts that each of them has and has not, as curl 8 and undici 8 read them. */
const ENTRIES: readonly (readonly [entry: string, has: readonly string[], hasNot: readonly string[]])[] = [
  ["*", ["a.test", "10.0.0.1", "[2001:db8::1]"], []],
  ["example.com", ["example.com", "EXAMPLE.com.", "a.example.com", "a.b.example.com:8443"], ["notexample.com", "com"]],
  [".example.com", ["example.com", "a.example.com"], ["notexample.com"]],
  ["*.example.com", ["a.example.com", "a.b.example.com"], ["example.com", "notexample.com"]],
  ["example.com.", ["example.com"], ["example.org"]],
  ["example.com:8443", ["example.com:8443", "a.example.com:8443"], ["example.com", "example.com:844"]],
  ["example.com:80", ["example.com", "example.com:80"], ["example.com:8080"]],
  ["10.1.2.3", ["10.1.2.3", "10.1.2.3:99", "0xa.1.2.3"], ["10.1.2.4", "a.10.1.2.3.test"]],
  ["10.0.0.0/8", ["10.1.2.3", "10.255.255.255"], ["11.0.0.0", "9.255.255.255", "10.test"]],
  ["192.168.1.0/24", ["192.168.1.255"], ["192.168.2.0"]],
  ["2001:db8::/32", ["[2001:db8::1]", "[2001:DB8:1::]"], ["[2001:db9::]", "10.0.0.1"]],
  ["2001:db8::1", ["[2001:db8::1]", "[2001:db8:0:0::1]"], ["[2001:db8::2]"]],
  ["[2001:db8::1]:81", ["[2001:db8::1]:81"], ["[2001:db8::1]"]],
  ["10.0.0.1/8", [], ["10.0.0.1"]],
  [".", [], ["a.test", "example.com."]],
  ["**", [], ["a.test"]],
  ["http://example.com", [], ["example.com"]],
];

for (const [entry, has, hasNot] of ENTRIES) {
  test(`NO_PROXY=${entry}: reaches directly what curl and undici reach directly`, () => {
    for (const list of [entry, `x.test, ${entry}`, `x.test ${entry}  y.test`, `,${entry.toUpperCase()},`]) {
      const settings = { environment: environment({ HTTP_PROXY: "http://p:1", NO_PROXY: list }) };
      for (const host of has) {
        assert.equal(choice(`http://${host}/`, settings), "direct, NO_PROXY", `${host} by ${list}`);
      }
      for (const host of hasNot) {
        assert.equal(choice(`http://${host}/`, settings), "http://p:1, HTTP_PROXY, local", `${host} by ${list}`);
      }
    }
  });
}

test("[proxy] no_proxy names one host alone, counts for every proxy, and NO_PROXY for those of the environment", () => {
  const list = { no_proxy: ["example.com", ".wild.test", "10.0.0.0/8", "port.test:81"] };
  for (
    const proxy of [{ http: "http://own:1" }, {
      environment: environment({ http_proxy: "http://own:1", no_proxy: "env.test" }),
    }]
  ) {
    const isDirect = (host: string) => choice(`http://${host}/`, { ...proxy, ...list }).startsWith("direct");
    assert.deepEqual(["example.com", "a.wild.test", "10.9.9.9", "port.test:81"].map(isDirect), [
      true,
      true,
      true,
      true,
    ]);
    assert.deepEqual(["a.example.com", "wild.test", "11.0.0.1", "port.test"].map(isDirect), [
      false,
      false,
      false,
      false,
    ]);
    assert.equal(isDirect("env.test"), "environment" in proxy);
  }
});

test("an entry of NO_PROXY has a host exactly when the host is it or ends with a dot and it", () => {
  const label = fc.stringMatching(/^[a-z][a-z0-9-]{0,5}[a-z0-9]$/);
  const name = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
  const port = fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined });
  const withPort = (text: string, number: number | undefined) => number === undefined ? text : `${text}:${number}`;
  fc.assert(fc.property(name, name, fc.boolean(), port, port, (entry, other, isInside, entryPort, urlPort) => {
    const host = isInside ? `${other}.${entry}` : other;
    if (host.endsWith("localhost")) return;
    const expected = (host === entry || host.endsWith(`.${entry}`)) && (entryPort ?? urlPort ?? 80) === (urlPort ?? 80);
    const settings = { environment: environment({ http_proxy: "http://p:1", no_proxy: withPort(entry, entryPort) }) };
    assert.equal(choice(`http://${withPort(host, urlPort)}/`, settings).startsWith("direct"), expected);
  }));
});

test("a proxy of an unknown kind is a problem, not a direct way", () => {
  for (const value of ["socks5://proxy.test:1080", "ftp://proxy.test", "http://", "http://[", "file:///x"]) {
    const settings = { ...NONE, environment: environment({ HTTPS_PROXY: value }) };
    const { problem, proxy } = chooseProxy(settings, new URL("https://a.test/"));
    assert.match(problem ?? "", /^HTTPS_PROXY names a proxy /, value);
    assert.notEqual(proxy, undefined);
  }
});

test("shownProxy() leaves out user and password", () => {
  assert.equal(shownProxy("http://me:hunter2@proxy.test:3128/x?key=hunter2"), "http://proxy.test:3128");
  assert.equal(shownProxy("hunter2"), "(unreadable)");
});

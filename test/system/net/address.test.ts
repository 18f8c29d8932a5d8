import assert from "node:assert/strict";
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import fc from "fast-check";
import { publicRangeProblem, SPECIAL_RANGES } from "../../../lib/base/special_addresses.ts";
import { addressKind, isSameAddress, isThisMachine } from "../../../lib/system/net/address.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import type { UrlRules } from "../../../lib/system/net/url_rules.ts";
import { carriersOf, EDGES, edgesOf, expectedKind, KNOWN_RANGES, spellingsOf } from "./address_vectors.ts";

test("the source has the ranges of both registries, with the decision about each, and no others", () => {
  const known = KNOWN_RANGES.map(({ range, kind }) => `${range} ${kind}`);
  assert.deepEqual(SPECIAL_RANGES.map(({ range, verdict }) => `${range} ${verdict}`).sort(), known.sort());
});

for (const { range } of KNOWN_RANGES) {
  test(`${range}: from its first address to its last, and not one further`, () => {
    for (const address of edgesOf(range)) assert.equal(addressKind(address), expectedKind(address), address);
  });
}

const RULES: UrlRules = {
  block_private_ip: true,
  allow_loopback: false,
  public_ranges: [],
  enforce_domain_allowlist: false,
  domain_allowlist: [],
  domain_blocklist: [],
};
const policy = createUrlPolicy({ lookup: () => Promise.reject(new Error("an address is not looked up")) });
const { signal } = new AbortController();
const answer = (host: string, rules: Partial<UrlRules> = {}) =>
  policy.check(`http://${host}/`, { ...RULES, ...rules }, { signal }).then(
    ({ addresses }) => `reaches ${addresses}`,
    (error) => String(error.code),
  );

test("every spelling of every edge is answered as its address is", async () => {
  let vectors = 0;
  for (const address of EDGES) {
    const expected = expectedKind(address) === "public" ? `reaches ${address}` : "url_private";
    for (const host of spellingsOf(address)) {
      assert.equal(await answer(host), expected, `${host} means ${address}`);
      vectors++;
    }
  }
  assert.ok(vectors >= 1_000, `there are ${vectors} vectors`);
});

test("no form of IPv6 leads to an IPv4 address, a public one neither", async () => {
  const fours = EDGES.filter((address) => isIP(address) === 4);
  for (const host of fours.flatMap(carriersOf)) {
    const isLoopback = host === "[::0.0.0.1]" || host === "[::0000:0001]";
    assert.equal(await answer(host), "url_private", host);
    assert.equal(await answer(host, { allow_loopback: true }), isLoopback ? "reaches ::1" : "url_private", host);
  }
});

test("IPv6 outside of 2000::/3 is never public, whether a registry names it or not", () => {
  for (let first = 0; first < 65_536; first += 64) {
    const address = `${first.toString(16)}:4::1`;
    if (first < 0x2000 || first > 0x3fff) assert.notEqual(addressKind(address), "public", address);
  }
  for (const address of ["2000::", "2606:2800:220:1::1", "3ffe::1", "2001:200::1"]) {
    assert.equal(addressKind(address), "public", address);
  }
});

test("a zone id says through which interface and not where; it is no part of a URL", async () => {
  assert.deepEqual(["fe80::1%eth0", "::1%lo", "2606:2800::1%2"].map((text) => addressKind(text)), [
    "special",
    "loopback",
    "public",
  ]);
  for (const host of ["[fe80::1%25eth0]", "[fe80::1%eth0]", "[::1%25lo]"]) {
    assert.equal(await answer(host), "url_invalid");
  }
});

test("text that is no address is reached by nobody", async () => {
  const none = [
    "",
    "localhost",
    "127.0.0.1.",
    "1.2.3",
    "127.0.0.256",
    "[::1]",
    "::g",
    "01.2.3.4",
    "0x7f.1",
    "8.8.8.8%1",
    // Forms of inet_aton(3), which `ipaddr.js` and many a resolver read: short, octal, hexadecimal
    ...["8", "8.8", "8.8.2056", "134744072", "0x8080808", "010.8.8.8", "8.8.8.010", "::ffff:010.8.8.8", "::ffff:8.8"],
  ];
  for (const text of [...none, "1::2::3", ":::", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8", "1.2.3.4::", "12345::"]) {
    assert.equal(addressKind(text), "special", text);
  }
  const hosts = [
    "256.1.1.1",
    "1.2.3.4.5",
    "0x100000000",
    "09.1.1.1",
    "[1.2.3.4]",
    "[::1",
    "[::ffff:1.2.3]",
    "[::01.2.3.4]",
  ];
  for (const host of hosts) assert.equal(await answer(host), "url_invalid", host);
});

test("an address is read where Node reads one, as the address that a URL means by it", () => {
  const piece = fc.constantFrom(
    ...["0", "1", "8", "127", "255", "256", "010", "0x7f", "00", "ffff", "a", ":", "::", ".", "1.2.3.4", "64:ff9b::"],
    ...["::ffff:", "/", " ", "-1", "1e1", "["],
  );
  const pieces = fc.array(piece, { minLength: 1, maxLength: 9 }).map((all) => all.join(""));
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV4Extended(), fc.ipV6(), pieces), (text) => {
      const version = isIP(text);
      assert.equal(isSameAddress(text, text), version !== 0);
      const { hostname } = version === 6 ? new URL(`http://[${text}]`) : { hostname: text };
      if (version !== 0) assert.ok(isSameAddress(text, hostname.replace(/^\[|\]$/g, "")));
    }),
    { numRuns: 1_000 },
  );
});

test("public_ranges opens special ranges, and never this machine, a metadata address or what is behind an address", () => {
  const kind = (address: string, ...ranges: string[]) => addressKind(address, ranges);
  assert.equal(kind("198.18.0.7", "198.18.0.0/15"), "public");
  assert.equal(kind("198.20.0.7", "198.18.0.0/15"), "public");
  assert.equal(kind("10.0.0.1", "198.18.0.0/15"), "special");
  assert.equal(kind("fd12::1", "fd12::/16"), "public");
  for (const range of ["127.0.0.0/8", "0.0.0.0/0", "::/0", "::1/128", "::ffff:0:0/96", "2002::/16", "169.254.0.0/16"]) {
    for (const address of ["127.0.0.1", "::1", "::ffff:10.0.0.1", "2002:a00:1::", "169.254.169.254", "0.0.0.0"]) {
      assert.notEqual(kind(address, range), "public", `${address} in ${range}`);
    }
  }
  assert.equal(kind("100.64.0.1", "100.64.0.0/10"), "public");
  assert.equal(kind("100.100.100.200", "100.64.0.0/10"), "special");
  assert.equal(kind("168.63.129.16", "168.63.129.0/24"), "special");
});

test("an opened NAT64 prefix reaches public IPv4 addresses alone", () => {
  const cases: readonly (readonly [prefix: string, to8: string, to10: string])[] = [
    ["64:ff9b::/96", "64:ff9b::808:808", "64:ff9b::a00:1"],
    ["64:ff9b:1:2::/96", "64:ff9b:1:2::808:808", "64:ff9b:1:2::7f00:1"],
    ["64:ff9b:1::/48", "64:ff9b:1:808:8:800::", "64:ff9b:1:7f00:0:100::"],
    ["64:ff9b:1::/64", "64:ff9b:1:0:8:808:800:0", "64:ff9b:1:0:a:0:100:0"],
    ["64:ff9b:1:100::/56", "64:ff9b:1:108:8:808::", "64:ff9b:1:10a:0:1::"],
    ["64:ff9b:1::/48", "64:ff9b:1:808:8:800::", "64:ff9b:1:a00:0:200::"],
    ["fd64::/96", "fd64::808:808", "fd64::a9fe:a9fe"],
  ];
  for (const [prefix, to8, to10] of cases) {
    assert.equal(addressKind(to8), "special", to8);
    assert.equal(addressKind(to8, [prefix]), "public", `${to8} in ${prefix}`);
    assert.equal(addressKind(to10, [prefix]), "special", `${to10} in ${prefix}`);
  }
  // Another prefix than the operator says: the bits after the carried address are not zero
  assert.equal(addressKind("64:ff9b:1:808:8:800::7f00:1", ["64:ff9b:1::/48"]), "special");
  assert.equal(addressKind("64:ff9b:1:808:0:0:808:808", ["64:ff9b:1::/50"]), "special");
});

test("publicRangeProblem() refuses what can never be public, and says which range it meets", () => {
  for (
    const range of ["198.18.0.0/15", "64:ff9b::/96", "10.0.0.0/8", "100.64.0.0/10", "fd12:3456::/32", "240.0.0.0/4"]
  ) {
    assert.equal(publicRangeProblem(range), undefined, range);
  }
  const never: readonly string[] = [
    ...["0.0.0.0/0", "::/0", "127.0.0.0/8", "127.0.0.1/32", "126.0.0.0/7", "::1/128", "::/127", "0.0.0.0/32"],
    ...["169.254.0.0/16", "169.254.169.254/32", "fc00::/7", "fd00:ec2::/32", "fd00:ec2::254/128", "::ffff:0:0/96"],
    ...["::ffff:7f00:0/104", "::ffff:0:0:0/96", "2001::/32", "2001::/23", "2002::/16", "224.0.0.0/4", "ff00::/8"],
  ];
  for (const range of never) {
    assert.match(publicRangeProblem(range) ?? "", /^it meets .* which is never public$/, range);
  }
  for (
    const text of [
      "",
      "198.18.0.0",
      "198.18.0.0/",
      "198.18.0.1/15",
      "198.18.0.0/33",
      "fd00::/129",
      "10.0.0.0/08",
      "a/8",
    ]
  ) {
    assert.match(publicRangeProblem(text) ?? "", /^it is no range of addresses/, text);
  }
  assert.match(publicRangeProblem("fd12::%eth0/16") ?? "", /no range/);
});

test("isThisMachine() knows the addresses of this machine in every form that carries one", () => {
  const own = Object.values(networkInterfaces()).flatMap((faces) => faces ?? []).map(({ address }) => address);
  assert.ok(own.length > 0, "there is an interface");
  const fours = own.filter((address) => isIP(address) === 4);
  for (const address of [...own, "127.9.9.9", "::1", "0.0.0.0", "::", "0:0:0:0:0:0:0:0"]) {
    assert.ok(isThisMachine(address), address);
  }
  for (const carrier of fours.flatMap(carriersOf).filter((host) => !host.startsWith("[2001:"))) {
    assert.ok(isThisMachine(carrier.slice(1, -1)), carrier);
  }
  for (const address of ["8.8.8.8", "2606:2800::1", "::ffff:8.8.8.8", "2002:808:808::1", "", "localhost"]) {
    assert.equal(isThisMachine(address), false, address);
  }
});

test("isSameAddress() compares what an address means, not how it is written", () => {
  for (const other of ["2001:DB8:0::1", "2001:db8:0:0:0:0:0:1", "2001:db8::1%eth0"]) {
    assert.ok(isSameAddress("2001:db8::1", other), other);
  }
  assert.ok(isSameAddress("10.0.0.1", "::ffff:10.0.0.1"));
  assert.ok(isSameAddress("::ffff:a00:1", "10.0.0.1"));
  for (
    const [one, other] of [
      ...[["10.0.0.1", "10.0.0.2"], ["::1", "0.0.0.1"], ["", ""], ["::10.0.0.1", "10.0.0.1"]] as const,
      ["::8.8.8.8", "::ffff:8.8.8.8"] as const,
    ]
  ) {
    assert.equal(isSameAddress(one, other), false, `${one} ${other}`);
  }
});

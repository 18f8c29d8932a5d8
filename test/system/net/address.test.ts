import assert from "node:assert/strict";
import { test } from "node:test";
import { addressKind } from "../../../lib/system/net/address.ts";

const F = "ffff:ffff:ffff:ffff";

/** First and last address of every range that is not public, and the neighbours before and after it that are. */
const RANGES: Readonly<Record<string, readonly [first: string, last: string, ...neighbours: string[]]>> = {
  "this network": ["0.0.0.0", "0.255.255.255", "1.0.0.0"],
  "private, 10/8": ["10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"],
  "shared": ["100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"],
  "link-local": ["169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"],
  "private, 172.16/12": ["172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"],
  "protocol assignments": ["192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"],
  "documentation 1": ["192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"],
  "private, 192.168/16": ["192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"],
  "benchmarks": ["198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"],
  "documentation 2": ["198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"],
  "documentation 3": ["203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"],
  "multicast": ["224.0.0.0", "239.255.255.255", "223.255.255.255"],
  "reserved": ["240.0.0.0", "255.255.255.255"],
  "unspecified": ["::", "::"],
  "compatible": ["::2", "::ffff:ffff", "::1:0:0"],
  "mapped": ["::ffff:0:0", "::ffff:ffff:ffff", "::fffe:ffff:ffff", "::1:0:0:0"],
  "NAT64": ["64:ff9b::", "64:ff9b::ffff:ffff", "64:ff9a:ffff:ffff:" + F, "64:ff9b::1:0:0"],
  "local NAT64": ["64:ff9b:1::", "64:ff9b:1:ffff:" + F, "64:ff9b:0:ffff:" + F, "64:ff9b:2::"],
  "discard": ["100::", "100::" + F, "ff:ffff:ffff:ffff:" + F, "100:0:0:1::"],
  "Teredo": ["2001::", "2001:0:ffff:ffff:" + F, "2000:ffff:ffff:ffff:" + F, "2001:1::"],
  "IPv6 benchmarks": ["2001:2::", "2001:2:0:ffff:" + F, "2001:1:ffff:ffff:" + F, "2001:2:1::"],
  "IPv6 documentation 1": ["2001:db8::", "2001:db8:ffff:ffff:" + F, "2001:db7:ffff:ffff:" + F, "2001:db9::"],
  "6to4": ["2002::", "2002:ffff:ffff:ffff:" + F, "2001:ffff:ffff:ffff:" + F, "2003::"],
  "IPv6 documentation 2": ["3fff::", "3fff:fff:ffff:ffff:" + F, "3ffe:ffff:ffff:ffff:" + F, "3fff:1000::"],
  "segment routing": ["5f00::", "5f00:ffff:ffff:ffff:" + F, "5eff:ffff:ffff:ffff:" + F, "5f01::"],
  "unique local": ["fc00::", "fdff:ffff:ffff:ffff:" + F, "fbff:ffff:ffff:ffff:" + F, "fe00::"],
  "IPv6 link-local": ["fe80::", "febf:ffff:ffff:ffff:" + F, "fe7f:ffff:ffff:ffff:" + F],
  "site-local": ["fec0::", "feff:ffff:ffff:ffff:" + F],
  "IPv6 multicast": ["ff00::", "ffff:ffff:ffff:ffff:" + F],
};

for (const [name, [first, last, ...neighbours]] of Object.entries(RANGES)) {
  test(`${name}: from ${first} to ${last} and not one address further`, () => {
    for (const address of [first, last]) assert.equal(addressKind(address), "special", address);
    for (const address of neighbours) assert.equal(addressKind(address), "public", address);
  });
}

test("this machine: 127.0.0.0 to 127.255.255.255 and ::1, and not one address further", () => {
  for (const address of ["127.0.0.0", "127.255.255.255", "::1", "::1%lo"]) {
    assert.equal(addressKind(address), "loopback", address);
  }
  for (const address of ["126.255.255.255", "128.0.0.0"]) assert.equal(addressKind(address), "public", address);
  for (const address of ["::", "::2"]) assert.equal(addressKind(address), "special", address);
});

test("what is no address is reached by nobody", () => {
  for (const text of ["", "localhost", "127.0.0.1.", "1.2.3", "127.0.0.256", "[::1]", "::g"]) {
    assert.equal(addressKind(text), "special", text);
  }
});

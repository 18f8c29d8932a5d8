import { BlockList, isIP } from "node:net";
import type { AddressKind } from "../../../lib/system/net/address.ts";

/**
 * The registries once more, written down apart from the source: ranges and kinds. A range that is in neither registry is marked.
 * Source: IANA IPv4 and IPv6 Special-Purpose Address Registries
 */
const TABLE = `
0.0.0.0/8 special
0.0.0.0/32 special
10.0.0.0/8 special
100.64.0.0/10 special
100.100.100.200/32 special, of Alibaba Cloud
127.0.0.0/8 loopback
168.63.129.16/32 special, of Azure
169.254.0.0/16 special
169.254.169.254/32 special
172.16.0.0/12 special
192.0.0.0/24 special
192.0.0.0/29 special
192.0.0.8/32 special
192.0.0.9/32 special
192.0.0.10/32 special
192.0.0.170/32 special
192.0.0.171/32 special
192.0.0.192/32 special, of Oracle
192.0.2.0/24 special
192.31.196.0/24 public
192.52.193.0/24 public
192.88.99.0/24 special
192.168.0.0/16 special
192.175.48.0/24 public
198.18.0.0/15 special
198.51.100.0/24 special
203.0.113.0/24 special
224.0.0.0/4 special, multicast
240.0.0.0/4 special
255.255.255.255/32 special
::/128 special
::1/128 loopback
::/96 special, RFC 4291
::ffff:0:0/96 special
::ffff:0:0:0/96 special, RFC 2765
64:ff9b::/96 special
64:ff9b:1::/48 special
100::/64 special
100:0:0:1::/64 special
2001::/23 special
2001::/32 special
2001:1::1/128 special
2001:1::2/128 special
2001:1::3/128 special
2001:2::/48 special
2001:3::/32 public
2001:4:112::/48 public
2001:10::/28 special
2001:20::/28 special
2001:30::/28 special
2001:db8::/32 special
2002::/16 special
2620:4f:8000::/48 public
3fff::/20 special
5f00::/16 special
fc00::/7 special
fd00:ec2::254/128 special
fd20:ce::254/128 special
fe80::/10 special
fec0::/10 special, RFC 3879
ff00::/8 special, multicast
`;

/** Range of the table above. */
interface KnownRange {
  readonly range: string;
  readonly kind: AddressKind;
  readonly bits: number;
  readonly list: BlockList;
}

/** Ranges that the source must have, and no others. */
export const KNOWN_RANGES: readonly KnownRange[] = TABLE.trim().split("\n").map((line) => {
  const [range = "", kind = ""] = line.split(/[ ,]+/);
  const [network = "", bits = ""] = range.split("/");
  const list = new BlockList();
  list.addSubnet(network, Number(bits), familyOf(network));
  // The table above has no other words
  return { range, kind: kind as AddressKind, bits: Number(bits), list };
});

function familyOf(address: string): "ipv4" | "ipv6" {
  return isIP(address) === 4 ? "ipv4" : "ipv6";
}

/** Returns the kind of an address by the table above and the runtime's own block lists. */
export function expectedKind(address: string): AddressKind {
  const family = familyOf(address);
  const around = KNOWN_RANGES.filter(({ range, list }) =>
    familyOf(range.split("/")[0] ?? "") === family && list.check(address, family)
  );
  const [closest] = around.sort((one, other) => other.bits - one.bits);
  if (closest !== undefined) return closest.kind;
  if (family === "ipv4") return "public";
  return /^[23]/.test(address) && groupsOf(address)[0]?.length === 4 ? "public" : "special";
}

/** Returns the bytes of an address as one number, by way of the runtime's URL for IPv6. */
function toNumber(address: string): bigint {
  if (isIP(address) === 4) return address.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  return groupsOf(address).reduce((sum, group) => sum * 65536n + BigInt(`0x${group}`), 0n);
}

/** Returns the eight groups of an address. */
function groupsOf(address: string): readonly string[] {
  const plain = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail = ""] = plain.split("::");
  const [before, after] = [head, tail].map((text) => text.split(":").filter((group) => group !== ""));
  const missing = plain.includes("::") ? 8 - (before?.length ?? 0) - (after?.length ?? 0) : 0;
  return [...before ?? [], ...new Array<string>(missing).fill("0"), ...after ?? []];
}

function toAddress(value: bigint, family: "ipv4" | "ipv6"): string {
  if (family === "ipv4") return [24n, 16n, 8n, 0n].map((shift) => value >> shift & 255n).join(".");
  const groups = Array.from({ length: 8 }, (_, index) => (value >> BigInt(112 - 16 * index) & 65535n).toString(16));
  return new URL(`http://[${groups.join(":")}]`).hostname.slice(1, -1);
}

/** Returns the first and the last address of a range, and the addresses one before and one after it. */
export function edgesOf(range: string): readonly string[] {
  const [network = "", bits = ""] = range.split("/");
  const family = familyOf(network);
  const width = family === "ipv4" ? 32n : 128n;
  const first = toNumber(network);
  const last = first + (1n << (width - BigInt(bits))) - 1n;
  return [first, last, first - 1n, last + 1n].filter((value) => value >= 0n && value < 1n << width)
    .map((value) => toAddress(value, family));
}

/** Edges of all ranges, each once. */
export const EDGES: readonly string[] = [...new Set(KNOWN_RANGES.flatMap(({ range }) => edgesOf(range)))];

/** Spellings of an address as the host of a URL, each of which means that address to a URL parser. */
export function spellingsOf(address: string): readonly string[] {
  return familyOf(address) === "ipv4" ? spellingsOfFour(address) : spellingsOfSix(address);
}

function spellingsOfFour(address: string): readonly string[] {
  const [a = 0, b = 0, c = 0, d = 0] = address.split(".").map(Number);
  const number = toNumber(address);
  const [octal, hex] = [(part: number) => `0${part.toString(8)}`, (part: number) => `0x${part.toString(16)}`];
  return [
    address,
    `${address}.`,
    [a, b, c, d].map(octal).join("."),
    [a, b, c, d].map((part) => `000${octal(part)}`).join("."),
    [a, b, c, d].map(hex).join("."),
    [a, b, c, d].map((part) => hex(part).toUpperCase()).join("."),
    `${hex(a)}.${octal(b)}.${c}.${d}`,
    `0x${number.toString(16)}`,
    `0${number.toString(8)}`,
    `${number}`,
    `${a}.${b}.${c * 256 + d}`,
    `${a}.${(b * 256 + c) * 256 + d}`,
    `${hex(a)}.${hex((b * 256 + c) * 256 + d)}`,
    // Full-width digits and full stop, ideographic full stop, percent-encoding
    address.replaceAll(/\d/g, (digit) => String.fromCharCode(0xff10 + Number(digit))),
    address.replaceAll(".", "\uff0e"),
    address.replaceAll(".", "\u3002"),
    address.replaceAll(/\d/g, (digit) => `%3${digit}`),
    `user:pass@${address}:8080`,
  ];
}

function spellingsOfSix(address: string): readonly string[] {
  const groups = groupsOf(address);
  const tail = Number.parseInt(groups.slice(6).map((group) => group.padStart(4, "0")).join(""), 16);
  const four = [tail >>> 24, tail >>> 16 & 255, tail >>> 8 & 255, tail & 255].join(".");
  const long = groups.map((group) => group.padStart(4, "0")).join(":");
  return [
    address,
    address.toUpperCase(),
    groups.join(":"),
    long,
    long.toUpperCase(),
    `${groups.slice(0, 6).join(":")}:${four}`,
  ]
    .map((text) => `[${text}]`);
}

/** Forms of IPv6 that carry an IPv4 address. Each is refused whatever it carries. */
export function carriersOf(address: string): readonly string[] {
  const hex = toNumber(address).toString(16).padStart(8, "0");
  const [high, low] = [hex.slice(0, 4), hex.slice(4)];
  const prefixes = ["::", "::ffff:", "::ffff:0:", "0:0:0:0:0:FFFF:", "64:ff9b::", "64:ff9b:1::"];
  return [
    ...prefixes.flatMap((prefix) => [`[${prefix}${address}]`, `[${prefix}${high}:${low}]`]),
    `[2002:${high}:${low}::1]`,
    `[2001:0:4136:e378:8000:63bf:${(Number.parseInt(high, 16) ^ 0xffff).toString(16)}:${
      (Number.parseInt(low, 16) ^ 0xffff).toString(16)
    }]`,
  ];
}

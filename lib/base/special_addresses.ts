import { type IpRange, parseRange, rangesOverlap } from "./ip_range.ts";
import { lazily } from "./lazily.ts";

/** Range with a meaning of its own, and what Postern decides about it. */
export interface SpecialRange {
  /** For example `198.18.0.0/15`. */
  readonly range: string;
  /** Name of the range in the registry. */
  readonly name: string;
  /** The document that assigns it. */
  readonly source: string;
  /** The registry's column "Globally Reachable". `unclear` stands for its "N/A" and for ranges that are in no registry. */
  readonly reachable: "yes" | "no" | "unclear";
  /** Kind of its addresses for the URL policy. */
  readonly verdict: "loopback" | "special" | "public";
  /**
   * Effect of `[url_access] public_ranges` on it: `opens` it; `leaves` it closed inside a range that it opens; `never` names it.
   */
  readonly publicRanges: "opens" | "leaves" | "never";
}

type Row = readonly [range: string, name: string, source: string, reachable: SpecialRange["reachable"]];

/** Ranges that may be opened: what is there depends on the network that the gateway is in. */
const CLOSED: readonly Row[] = [
  ["10.0.0.0/8", "Private-Use", "RFC 1918", "no"],
  ["100.64.0.0/10", "Shared Address Space", "RFC 6598", "no"],
  ["169.254.0.0/16", "Link Local", "RFC 3927", "no"],
  ["172.16.0.0/12", "Private-Use", "RFC 1918", "no"],
  ["192.0.0.0/24", "IETF Protocol Assignments", "RFC 6890 section 2.1", "no"],
  ["192.0.0.0/29", "IPv4 Service Continuity Prefix", "RFC 7335", "no"],
  ["192.0.0.8/32", "IPv4 dummy address", "RFC 7600", "no"],
  ["192.0.0.170/32", "NAT64/DNS64 Discovery", "RFC 8880, RFC 7050 section 2.2", "no"],
  ["192.0.0.171/32", "NAT64/DNS64 Discovery", "RFC 8880, RFC 7050 section 2.2", "no"],
  ["192.0.2.0/24", "Documentation (TEST-NET-1)", "RFC 5737", "no"],
  ["192.168.0.0/16", "Private-Use", "RFC 1918", "no"],
  ["198.18.0.0/15", "Benchmarking", "RFC 2544", "no"],
  ["198.51.100.0/24", "Documentation (TEST-NET-2)", "RFC 5737", "no"],
  ["203.0.113.0/24", "Documentation (TEST-NET-3)", "RFC 5737", "no"],
  ["240.0.0.0/4", "Reserved", "RFC 1112 section 4", "no"],
  // Anycast of the nearest box on the way: the user's own router, which must not take orders from a tool
  ["192.0.0.9/32", "Port Control Protocol Anycast", "RFC 7723", "yes"],
  ["192.0.0.10/32", "Traversal Using Relays around NAT Anycast", "RFC 8155", "yes"],
  ["2001:1::1/128", "Port Control Protocol Anycast", "RFC 7723", "yes"],
  ["2001:1::2/128", "Traversal Using Relays around NAT Anycast", "RFC 8155", "yes"],
  ["2001:1::3/128", "DNS-SD Service Registration Protocol Anycast", "RFC 9665", "yes"],
  // Identifiers that look like addresses: no host has one
  ["2001:10::/28", "Deprecated (previously ORCHID)", "RFC 4843", "unclear"],
  ["2001:20::/28", "ORCHIDv2", "RFC 7343", "yes"],
  ["2001:30::/28", "Drone Remote ID Protocol Entity Tags (DETs)", "RFC 9374", "yes"],
  // An IPv4 address inside. It is checked as well when the range is opened
  ["64:ff9b::/96", "IPv4-IPv6 Translation", "RFC 6052", "yes"],
  ["64:ff9b:1::/48", "IPv4-IPv6 Translation", "RFC 8215", "no"],
  ["100::/64", "Discard-Only Address Block", "RFC 6666", "no"],
  ["100:0:0:1::/64", "Dummy IPv6 Prefix", "RFC 9780", "no"],
  ["2001::/23", "IETF Protocol Assignments", "RFC 2928", "no"],
  ["2001:2::/48", "Benchmarking", "RFC 5180, erratum 1752", "no"],
  ["2001:db8::/32", "Documentation", "RFC 3849", "no"],
  ["3fff::/20", "Documentation", "RFC 9637", "no"],
  ["5f00::/16", "Segment Routing (SRv6) SIDs", "RFC 9602", "no"],
  ["fc00::/7", "Unique-Local", "RFC 4193, RFC 8190", "no"],
  ["fe80::/10", "Link-Local Unicast", "RFC 4291", "no"],
  ["fec0::/10", "Site-Local (deprecated)", "RFC 3879", "unclear"],
];

/** Ranges that are never opened: an address there leads to another address, to this machine, to many machines, or to nobody. */
const NEVER_OPEN: readonly Row[] = [
  ["0.0.0.0/8", "This network", "RFC 791 section 3.2", "no"],
  ["0.0.0.0/32", "This host on this network", "RFC 1122 section 3.2.1.3", "no"],
  ["192.88.99.0/24", "Deprecated (6to4 Relay Anycast)", "RFC 7526", "unclear"],
  ["224.0.0.0/4", "Multicast", "RFC 5771", "unclear"],
  ["::/128", "Unspecified Address", "RFC 4291", "no"],
  ["::/96", "IPv4-compatible (deprecated)", "RFC 4291 section 2.5.5.1", "unclear"],
  ["::ffff:0:0/96", "IPv4-mapped Address", "RFC 4291", "no"],
  ["::ffff:0:0:0/96", "IPv4-translated (deprecated)", "RFC 2765 section 2.1", "unclear"],
  ["2001::/32", "TEREDO", "RFC 4380, RFC 8190", "unclear"],
  ["2002::/16", "6to4", "RFC 3056", "unclear"],
  ["ff00::/8", "Multicast", "RFC 4291 section 2.7", "unclear"],
  ["169.254.169.254/32", "Metadata of most clouds", "documentation of AWS, GCP and Azure", "no"],
  ["fd00:ec2::254/128", "Metadata of AWS", "documentation of AWS EC2", "no"],
];

/** Single addresses, most of a cloud that gives keys to whoever asks. A range around one of them may be opened, the address stays closed. */
const STAYS_CLOSED: readonly Row[] = [
  ["255.255.255.255/32", "Limited Broadcast", "RFC 8190, RFC 919 section 7", "no"],
  ["100.100.100.200/32", "Metadata of Alibaba Cloud", "documentation of Alibaba ECS", "no"],
  ["168.63.129.16/32", "Host of Azure virtual machines", "documentation of Azure", "unclear"],
  ["192.0.0.192/32", "Metadata of Oracle Cloud at a Customer", "documentation of Oracle", "no"],
  ["fd20:ce::254/128", "Metadata of GCP", "documentation of GCP", "no"],
];

/** Ranges of the registries that are ordinary networks of the Internet, with servers that anyone may reach. */
const OPEN: readonly Row[] = [
  ["192.31.196.0/24", "AS112-v4", "RFC 7535", "yes"],
  ["192.52.193.0/24", "AMT", "RFC 7450", "yes"],
  ["192.175.48.0/24", "Direct Delegation AS112 Service", "RFC 7534", "yes"],
  ["2001:3::/32", "AMT", "RFC 7450", "yes"],
  ["2001:4:112::/48", "AS112-v6", "RFC 7535", "yes"],
  ["2620:4f:8000::/48", "Direct Delegation AS112 Service", "RFC 7534", "yes"],
];

const LOOPBACK: readonly Row[] = [
  ["127.0.0.0/8", "Loopback", "RFC 1122 section 3.2.1.3", "no"],
  ["::1/128", "Loopback Address", "RFC 4291", "no"],
];

/**
 * IANA's special-purpose addresses of IPv4 and IPv6 with what Postern decides about each, multicast, and addresses that lead to a
 * cloud's keys. The longest range around an address decides.
 * Source: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190)
 */
export const SPECIAL_RANGES: readonly SpecialRange[] = [
  ...rowsOf(LOOPBACK, { verdict: "loopback", publicRanges: "never" }),
  ...rowsOf(NEVER_OPEN, { verdict: "special", publicRanges: "never" }),
  ...rowsOf(STAYS_CLOSED, { verdict: "special", publicRanges: "leaves" }),
  ...rowsOf(CLOSED, { verdict: "special", publicRanges: "opens" }),
  ...rowsOf(OPEN, { verdict: "public", publicRanges: "opens" }),
];

function rowsOf(
  rows: readonly Row[],
  decided: Pick<SpecialRange, "verdict" | "publicRanges">,
): readonly SpecialRange[] {
  return rows.map(([range, name, source, reachable]) => ({ range, name, source, reachable, ...decided }));
}

/** A special range with its numbers. */
export interface ParsedSpecialRange extends SpecialRange {
  readonly parsed: IpRange;
}

/** Returns the special ranges with their numbers, the longest first. */
export const specialRanges = lazily((): readonly ParsedSpecialRange[] =>
  SPECIAL_RANGES.flatMap((entry) => {
    const parsed = parseRange(entry.range);
    return parsed === undefined ? [] : [{ ...entry, parsed }];
  }).sort((one, other) => other.parsed.bits - one.parsed.bits)
);

/**
 * Tells why a range may not stand in `[url_access] public_ranges`.
 * @returns a sentence part, for example `it meets 127.0.0.0/8 (Loopback), which is never public`; undefined when it may
 */
export function publicRangeProblem(text: string): string | undefined {
  const range = parseRange(text);
  if (range === undefined) return "it is no range of addresses; give one such as 198.18.0.0/15 or 64:ff9b::/96";
  const closed = specialRanges().find((entry) => entry.publicRanges === "never" && rangesOverlap(range, entry.parsed));
  return closed === undefined ? undefined : `it meets ${closed.range} (${closed.name}), which is never public`;
}

import { BlockList, isIP } from "node:net";
import { lazily } from "../../base/lazily.ts";

/** What an address is to the URL policy: `special` ones lead to private networks, to another address, or to nobody. */
export type AddressKind = "public" | "loopback" | "special";

const LOOPBACK = ["127.0.0.0/8", "::1/128"] as const;

/** The ranges that are blocked, and what else reaches them (docs/design/network.md "Guarded fetch"). */
const SPECIAL = [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "240.0.0.0/4"],
  // Unique local, link-local and the older site-local addresses, the unspecified one
  ...["fc00::/7", "fe80::/10", "fec0::/10", "::/128"],
  // An IPv4 address inside: mapped, compatible, NAT64, 6to4, Teredo
  ...["::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"],
  // Multicast, protocol assignments, benchmarks, documentation
  ...["224.0.0.0/4", "192.0.0.0/24", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"],
  ...["ff00::/8", "2001:2::/48", "2001:db8::/32", "3fff::/20", "100::/64", "5f00::/16"],
] as const;

const loopback = lazily(() => listOf(LOOPBACK));
const special = lazily(() => listOf(SPECIAL));

/** @param address IPv4 or IPv6, without brackets; anything else is `special` */
export function addressKind(address: string): AddressKind {
  // The zone of a link-local address says through which interface, not where
  const [plain = ""] = address.split("%");
  const version = isIP(plain);
  if (version === 0) return "special";
  const family = version === 4 ? "ipv4" : "ipv6";
  if (loopback()[family].check(plain, family)) return "loopback";
  return special()[family].check(plain, family) ? "special" : "public";
}

/** One list for each family: in a common one a mapped address would match the IPv4 ranges on some runtimes alone. */
function listOf(ranges: readonly string[]): Readonly<Record<"ipv4" | "ipv6", BlockList>> {
  const lists = { ipv4: new BlockList(), ipv6: new BlockList() };
  for (const range of ranges) {
    const [network = "", bits = ""] = range.split("/");
    const family = isIP(network) === 4 ? "ipv4" : "ipv6";
    lists[family].addSubnet(network, Number(bits), family);
  }
  return lists;
}

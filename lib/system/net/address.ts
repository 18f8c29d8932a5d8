import { BlockList, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { lazily } from "../../base/lazily.ts";

/** Kind of an address for the URL policy. `special` addresses lead to private networks, to another address, or to nobody. */
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

/** Tells the kind of an address. @param address IPv4 or IPv6, without brackets; anything else is `special` */
export function addressKind(address: string): AddressKind {
  // The zone of a link-local address says through which interface, not where
  const [plain = ""] = address.split("%");
  const version = isIP(plain);
  if (version === 0) return "special";
  const family = version === 4 ? "ipv4" : "ipv6";
  if (loopback()[family].check(plain, family)) return "loopback";
  return special()[family].check(plain, family) ? "special" : "public";
}

/** Returns one list for each family: in a common list a mapped address would match the IPv4 ranges on some runtimes alone. */
function listOf(ranges: readonly string[]): Readonly<Record<"ipv4" | "ipv6", BlockList>> {
  const lists = { ipv4: new BlockList(), ipv6: new BlockList() };
  for (const range of ranges) {
    const [network = "", bits = ""] = range.split("/");
    const family = isIP(network) === 4 ? "ipv4" : "ipv6";
    lists[family].addSubnet(network, Number(bits), family);
  }
  return lists;
}

/** Tells whether a host name or address, with or without brackets, can only mean this machine: `localhost`, 127.0.0.0/8, `::1`. */
export function isLoopbackName(name: string): boolean {
  return name === "127.0.0.1" || name === "localhost" || name === "[::1]" || name === "::1" || LOOPBACK_V4.test(name);
}

const LOOPBACK_V4 = /^127(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}$/;

/** Tells where a URL leads: the name or address, IPv6 without brackets, and the port, that of the scheme where none is given. */
export function hostAndPort({ hostname, port, protocol }: URL): { readonly host: string; readonly port: number } {
  const usual = protocol === "https:" ? 443 : 80;
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? usual : Number(port) };
}

/** Returns user and password of an address as the value of an `authorization` header; undefined where it has none. Source: RFC 7617 */
export function basicCredentials({ username, password }: URL): string | undefined {
  if (username === "" && password === "") return undefined;
  return `Basic ${Buffer.from(`${decode(username)}:${decode(password)}`).toString("base64")}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Tells whether an address leads to this machine: by loopback, unspecified, or as an address of one of its interfaces. */
export function isThisMachine(address: string): boolean {
  const [plain = ""] = address.split("%");
  const inner = /^::(?:ffff:)?(\d+\.\d+\.\d+\.\d+)$/i.exec(plain)?.[1] ?? mappedAddress(plain);
  if (inner !== undefined) return isThisMachine(inner);
  // Unspecified addresses lead to this machine on most systems
  if (addressKind(plain) === "loopback" || plain === "0.0.0.0" || plain === "::") return true;
  return Object.values(networkInterfaces()).some((faces) => faces?.some((face) => face.address === plain));
}

/** Returns the IPv4 address inside a mapped one as URLs write it (`::ffff:7f00:1`). Undefined for any other address. */
function mappedAddress(address: string): string | undefined {
  const [, high, low] = /^::(?:ffff:)?([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(address) ?? [];
  if (high === undefined || low === undefined) return undefined;
  const [a, b] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return `${a >> 8}.${a & 255}.${b >> 8}.${b & 255}`;
}

/** Tells whether two texts are one address: IPv4 may come in its mapped form, and IPv6 is written in many ways. */
export function isSameAddress(address: string, other: string): boolean {
  return plainAddress(address) === plainAddress(other);
}

function plainAddress(address: string): string {
  const [text = ""] = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "").split("%");
  return isIP(text) === 6 ? new URL(`http://[${text}]`).hostname : text;
}

/** The gateway itself, which no tool may reach with its credentials. */
export interface OwnGateway {
  readonly port: number;
  /** Paths that hold no secret and may be read */
  readonly publicPaths: readonly string[];
}

/** Address of this gateway, known once a port is open. */
export interface OwnAddress {
  /** Takes the port that the gateway listens on. */
  listensOn(port: number): void;
  /** Returns what a guarded fetch must know of the gateway; undefined while no port is open. */
  gateway(): OwnGateway | undefined;
  /** Tells whether an origin is this gateway. */
  isOwn(origin: string): boolean;
}

/**
 * Creates the address of a gateway that listens on no port yet.
 * @param publicPaths paths of the gateway that anyone may read
 */
export function createOwnAddress(publicPaths: readonly string[]): OwnAddress {
  let ownPort: number | undefined;
  return {
    listensOn: (port) => void (ownPort = port),
    gateway: () => ownPort === undefined ? undefined : { port: ownPort, publicPaths },
    isOwn(origin) {
      const { hostname, port } = new URL(origin);
      return ownPort !== undefined && Number(port) === ownPort && isLoopbackName(hostname);
    },
  };
}

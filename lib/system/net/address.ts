import { networkInterfaces } from "node:os";
import { type IpNumber, type IpRange, isInRange, parseIp, parseRange } from "../../base/ip_range.ts";
import { type SpecialRange, specialRanges } from "../../base/special_addresses.ts";

/** Kind of an address for the URL policy. `special` addresses lead to private networks, to another address, or to nobody. */
export type AddressKind = "public" | "loopback" | "special";

/**
 * Tells the kind of an address: IPv6 is public inside 2000::/3 alone, and both versions only outside of the special ranges of
 * lib/base/special_addresses.ts.
 * @param address IPv4 or IPv6, without brackets; anything else is `special`
 * @param publicRanges `[url_access] public_ranges`: special ranges that count as public in this network. An address that carries an
 * IPv4 address there is public only when that one is
 */
export function addressKind(address: string, publicRanges: readonly string[] = []): AddressKind {
  const ip = parseIp(address);
  if (ip === undefined) return "special";
  const { verdict, publicRanges: mayOpen } = registered(ip);
  const range = mayOpen === "opens" ? publicRanges.map(parseRange).find((one) => one && isInRange(ip, one)) : undefined;
  if (range === undefined) return verdict;
  const inner = carriedAddress(ip, range);
  if (inner === undefined) return "public";
  return inner !== "malformed" && registered(inner).verdict === "public" ? "public" : "special";
}

function registered(ip: IpNumber): Pick<SpecialRange, "verdict" | "publicRanges"> {
  const entry = specialRanges().find(({ parsed }) => isInRange(ip, parsed));
  if (entry !== undefined) return entry;
  const isPublic = ip.version === 4 || isIn(ip, ["2000::/3"]);
  return { verdict: isPublic ? "public" : "special", publicRanges: "opens" };
}

function isIn(ip: IpNumber, ranges: readonly string[]): boolean {
  return ranges.map(parseRange).some((range) => range !== undefined && isInRange(ip, range));
}

/**
 * Returns the IPv4 address that an address of a NAT64 prefix carries. Such prefixes are 64:ff9b::/96, those inside of 64:ff9b:1::/48, and
 * whatever public range of 96 bits an operator names.
 * @returns undefined for an address that carries none
 * Source: RFC 6052 section 2.2
 */
function carriedAddress(ip: IpNumber, range: IpRange): IpNumber | "malformed" | undefined {
  if (ip.version === 4) return undefined;
  const isLocal = isIn(ip, ["64:ff9b:1::/48"]);
  const length = isIn(ip, ["64:ff9b::/96"]) ? 96 : range.bits;
  if (length === 96) return { version: 4, value: ip.value & 0xffff_ffffn };
  if (!isLocal) return undefined;
  // Bits 64 to 71 and all after the IPv4 address are zero, else the network has another prefix than the operator says
  const joined = ((ip.value >> 64n) << 56n) | (ip.value & ((1n << 56n) - 1n));
  const after = BigInt(88 - length);
  const isFilled = (ip.value >> 56n & 0xffn) !== 0n || (joined & ((1n << after) - 1n)) !== 0n;
  if (![48, 56, 64].includes(length) || isFilled) return "malformed";
  return { version: 4, value: joined >> after & 0xffff_ffffn };
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
  const ip = parseIp(address);
  return ip !== undefined && [ip, ...innerAddresses(ip)].some(isOwnAddress);
}

function isOwnAddress(ip: IpNumber): boolean {
  // Unspecified addresses lead to this machine on most systems
  if (ip.value === 0n || registered(ip).verdict === "loopback") return true;
  const faces = Object.values(networkInterfaces()).flatMap((face) => face ?? []);
  return faces.some((face) => {
    const own = parseIp(face.address);
    return own?.version === ip.version && own.value === ip.value;
  });
}

/** Forms that carry an IPv4 address in their last 32 bits: compatible, mapped, translated, NAT64. */
const CARRIERS = ["::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"];

function innerAddresses(ip: IpNumber): readonly IpNumber[] {
  if (isIn(ip, CARRIERS)) return [{ version: 4, value: ip.value & 0xffff_ffffn }];
  return isIn(ip, ["2002::/16"]) ? [{ version: 4, value: ip.value >> 80n & 0xffff_ffffn }] : [];
}

/** Tells whether two texts are one address: IPv4 may come in its mapped form, and IPv6 is written in many ways. */
export function isSameAddress(address: string, other: string): boolean {
  const [one, two] = [plainAddress(address), plainAddress(other)];
  return one !== undefined && one.version === two?.version && one.value === two.value;
}

function plainAddress(address: string): IpNumber | undefined {
  const ip = parseIp(address);
  return ip !== undefined && isIn(ip, ["::ffff:0:0/96"]) ? { version: 4, value: ip.value & 0xffff_ffffn } : ip;
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

/** An IP address as a number, which is the same however the address is written. */
export interface IpNumber {
  readonly version: 4 | 6;
  readonly value: bigint;
}

/** Range of IP addresses that share their first bits, for example 198.18.0.0/15. */
export interface IpRange {
  /** First address of the range. */
  readonly first: IpNumber;
  /** Length of the shared beginning, in bits. */
  readonly bits: number;
}

/**
 * Reads an address: four decimal numbers, or IPv6 in any of its spellings (RFC 4291 section 2.2), without brackets. A zone id (`%eth0`)
 * says through which interface, not where, and does not count.
 * @returns undefined for anything else, for example a name, `0x7f.1` or `127.0.0.1.`
 */
export function parseIp(text: string): IpNumber | undefined {
  if (text.length > MAX_CHARACTERS) return undefined;
  const [plain = "", zone] = text.split("%", 2);
  const four = plain.includes(":") ? undefined : parseFour(plain);
  if (four !== undefined) return zone === undefined ? { version: 4, value: four } : undefined;
  const value = parseSix(plain);
  return value === undefined ? undefined : { version: 6, value };
}

const MAX_CHARACTERS = 128;
const OCTET = /^(?:0|[1-9]\d{0,2})$/;

function parseFour(text: string): bigint | undefined {
  const octets = text.split(".");
  if (octets.length !== 4 || !octets.every((octet) => OCTET.test(octet) && Number(octet) <= 255)) return undefined;
  return octets.reduce((value, octet) => (value << 8n) | BigInt(octet), 0n);
}

function parseSix(text: string): bigint | undefined {
  const [head = "", tail, more] = text.split("::");
  if (more !== undefined) return undefined;
  const [before, after] = [groupsOf(head, tail === undefined), groupsOf(tail ?? "", true)];
  if (before === undefined || after === undefined) return undefined;
  const missing = 8 - before.length - after.length;
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined;
  const groups = [...before, ...new Array<bigint>(missing).fill(0n), ...after];
  return groups.reduce((value, group) => (value << 16n) | group, 0n);
}

/** @param isEnd whether an IPv4 address may stand in the place of the last two groups */
function groupsOf(text: string, isEnd: boolean): readonly bigint[] | undefined {
  if (text === "") return [];
  const groups: bigint[] = [];
  const parts = text.split(":");
  for (const [index, part] of parts.entries()) {
    const four = isEnd && index === parts.length - 1 ? parseFour(part) : undefined;
    if (four !== undefined) groups.push(four >> 16n, four & 0xffffn);
    else if (/^[0-9a-f]{1,4}$/i.test(part)) groups.push(BigInt(`0x${part}`));
    else return undefined;
  }
  return groups;
}

/**
 * Reads a range, such as `198.18.0.0/15` or `64:ff9b::/96`.
 * @returns undefined when it is no range, or when its address has bits beyond the length, as in 10.0.0.1/8
 */
export function parseRange(text: string): IpRange | undefined {
  const [address = "", length = "", more] = text.split("/");
  const first = address.includes("%") ? undefined : parseIp(address);
  if (first === undefined || more !== undefined || !OCTET.test(length)) return undefined;
  const bits = Number(length);
  const width = widthOf(first);
  if (bits > width || (first.value & restOf(width - bits)) !== 0n) return undefined;
  return { first, bits };
}

/** Tells whether an address lies in a range. An IPv4 address never lies in an IPv6 range. */
export function isInRange(address: IpNumber, { first, bits }: IpRange): boolean {
  const rest = BigInt(widthOf(first) - bits);
  return address.version === first.version && address.value >> rest === first.value >> rest;
}

/** Tells whether two ranges have an address in common: one of them then lies in the other. */
export function rangesOverlap(range: IpRange, other: IpRange): boolean {
  return range.bits < other.bits ? isInRange(other.first, range) : isInRange(range.first, other);
}

function widthOf({ version }: IpNumber): number {
  return version === 4 ? 32 : 128;
}

function restOf(bits: number): bigint {
  return (1n << BigInt(bits)) - 1n;
}

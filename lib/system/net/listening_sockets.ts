import { readFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { endianness } from "node:os";
import { systemCodeOf } from "../../base/errors.ts";
import { hostAndPort, isLoopbackName } from "./address.ts";

/** A socket that listens on this machine. */
export interface ListeningSocket {
  /** User id that the socket belongs to. */
  readonly uid: number;
  /** Number of the socket: no other one has it while this one is open. */
  readonly inode: string;
}

/** Reads a table of the kernel. @throws when it is not there */
export type ReadTable = (path: "/proc/net/tcp" | "/proc/net/tcp6") => Promise<string>;

const LISTEN = "0A";

/**
 * Lists the sockets that a connection to an origin of this machine could reach, by the kernel's own tables: those that listen on the
 * port at that very address or at every address. Rows of accepted connections say nothing about an owner (their uid reads 0 until the
 * server accepts them), so they are left out. Empty when nothing listens.
 * @param origin with a loopback host, such as `http://127.0.0.1:11434`
 * @returns undefined where there is no such table (anything but Linux), and for an origin that is not on loopback
 * Source: Linux Documentation/networking/proc_net_tcp.rst
 */
export async function listeningSockets(
  origin: string,
  read: ReadTable = (path) => readFile(path, "utf8"),
): Promise<readonly ListeningSocket[] | undefined> {
  const url = new URL(origin);
  if (!isLoopbackName(url.hostname)) return undefined;
  const { host, port } = hostAndPort(url);
  const address = host === "localhost" ? "127.0.0.1" : host;
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const [hosts4, hosts6] = isIPv4(address)
    ? [[toHex4(address), ANY4], [MAPPED + toHex4(address), ANY6]]
    : [[], [LOOPBACK6, ANY6]];
  try {
    const [table4, table6] = await Promise.all([
      read("/proc/net/tcp"),
      // A machine without IPv6 has the first table alone
      read("/proc/net/tcp6").catch((error) => isMissing(error) ? "" : Promise.reject(error)),
    ]);
    return [...rowsOf(table4, hosts4, suffix), ...rowsOf(table6, hosts6, suffix)];
  } catch {
    return undefined;
  }
}

/** Sockets of a table by `sl local_address rem_address st queues timer retransmits uid timeout inode`. */
function rowsOf(table: string, hosts: readonly string[], suffix: string): readonly ListeningSocket[] {
  return table.split("\n").flatMap((line) => {
    const [, local = "", , state, , , , uid = "", , inode = ""] = line.trim().split(/\s+/);
    if (state !== LISTEN || !local.endsWith(suffix) || !hosts.includes(local.slice(0, -suffix.length))) return [];
    // A row that cannot be read belongs to nobody
    return [{ uid: /^\d+$/.test(uid) ? Number(uid) : -1, inode }];
  });
}

/** Address as the table has it: a 32-bit number in the machine's own byte order. */
function toHex4(address: string): string {
  const bytes = address.split(".").map((part) => Number(part).toString(16).toUpperCase().padStart(2, "0"));
  return (IS_LITTLE ? bytes.reverse() : bytes).join("");
}

const IS_LITTLE = endianness() === "LE";
const word = (hex: string) => (IS_LITTLE ? hex.match(/../g)?.reverse().join("") ?? "" : hex);
const ANY4 = "0".repeat(8);
const ANY6 = "0".repeat(32);
const MAPPED = "0".repeat(16) + word("0000FFFF");
const LOOPBACK6 = "0".repeat(24) + word("00000001");

function isMissing(error: unknown): boolean {
  return systemCodeOf(error) === "ENOENT";
}

/** Users of this machine as `/etc/passwd` lists them, by name. */
export type UserNames = ReadonlyMap<string, number>;

const MAX_CHARACTERS = 4_194_304;

/** Reads which users there are. Empty where there is no such list. */
export async function readUserNames(): Promise<UserNames> {
  const text = await readFile("/etc/passwd", "utf8").catch(() => "");
  return parseUserNames(text.slice(0, MAX_CHARACTERS));
}

/** Reads the lines `name:password:uid:...`; of two with one name the first counts. */
export function parseUserNames(text: string): UserNames {
  const users = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [name = "", , uid = ""] = line.split(":");
    if (name !== "" && /^\d{1,10}$/.test(uid) && !users.has(name)) users.set(name, Number(uid));
  }
  return users;
}

import { isLoopbackName } from "../lib/system/net/is_loopback_name.ts";

/** Whether a peer's address is this machine's, IPv4 written as IPv6 (`::ffff:127.0.0.1`) included. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && isLoopbackName(address.replace(/^::ffff:/i, ""));
}

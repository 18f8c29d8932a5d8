import { isLoopbackName } from "../../lib/system/net/is_loopback_name.ts";

/**
 * Where this machine reaches a gateway that listens on `host`: over the loopback interface where it listens there too, else at that
 * host itself. As `http://127.0.0.1:42617/`.
 * @param options.host a name, an IPv4 or an IPv6 address, with or without brackets
 */
export function ownAddress({ host, port }: { readonly host: string; readonly port: number }): string {
  const name = host.replace(/^\[(.*)\]$/, "$1");
  // One way of writing for each address: ::0 is ::
  const { hostname = name } = URL.parse(`http://${name.includes(":") ? `[${name}]` : name}/`) ?? {};
  return `http://${LOOPBACK_OF.get(hostname) ?? hostname}:${port}/`;
}

const LOOPBACK_OF: ReadonlyMap<string, string> = new Map([["0.0.0.0", "127.0.0.1"], ["[::]", "[::1]"]]);

/** Whether an address as `ownAddress` gives it is on the loopback interface: the control token counts there alone. */
export function isOnLoopback(address: string): boolean {
  return isLoopbackName(new URL(address).hostname);
}

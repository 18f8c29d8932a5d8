import { ConfigError } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { isLoopbackName } from "../../lib/system/net/address.ts";
import { UsageError } from "../command.ts";

/** Flags that choose where a gateway listens. */
export const bindFlags = {
  host: { type: "string", valueHint: "address", description: "Address to listen on (default: 127.0.0.1)" },
  port: { type: "string", valueHint: "number", description: "Port to listen on, 0 for a free one (default: 42617)" },
} as const;

/** Returns the values of these flags by configuration key. @throws {UsageError} the port is no number of five digits */
export function bindKeys(
  { host, port }: { readonly host?: string | undefined; readonly port?: string | undefined },
): Record<string, unknown> {
  if (port !== undefined && !/^\d{1,5}$/.test(port)) {
    throw new UsageError(`Cannot use "--port": it must be a number from 0 to 65535, not "${port}"`);
  }
  return {
    ...(host === undefined ? {} : { "gateway.host": host }),
    ...(port === undefined ? {} : { "gateway.port": Number(port) }),
  };
}

/**
 * Refuses an address that other machines can reach, unless the user allowed it and clients need a token (docs/design/access.md "Bind rules").
 * Refuses an address with a zone, which holds on one network card only.
 * @param options.hasEnvironmentToken true where POSTERN_TOKEN is set
 * @throws {ConfigError} `public_bind`
 */
export function checkBind({ gateway }: Config, options: { readonly hasEnvironmentToken: boolean }): void {
  if (isLoopbackName(gateway.host.toLowerCase())) return;
  const refuse = (reason: string) =>
    new ConfigError("public_bind", `Cannot listen on "${gateway.host}": ${reason}`, { key: "gateway.host" });
  // No URL can name an address with a zone
  if (gateway.host.includes("%")) throw refuse('it names a zone; use "::" or an address without one');
  if (!gateway.allow_public_bind) {
    throw refuse(
      "other machines could reach it; set gateway.allow_public_bind = true if that is what you want, or use 127.0.0.1",
    );
  }
  if (!gateway.require_pairing && !options.hasEnvironmentToken) {
    throw refuse("it would be open to everyone; set gateway.require_pairing = true or give POSTERN_TOKEN");
  }
}

/**
 * Returns the URL by which this machine reaches a gateway that listens on `host`, such as `http://127.0.0.1:42617/`. A gateway that
 * listens on all interfaces is reached over the loopback interface.
 * @param options.host a name, an IPv4 or an IPv6 address, with or without brackets
 */
export function ownAddress({ host, port }: { readonly host: string; readonly port: number }): string {
  const name = host.replace(/^\[(.*)\]$/, "$1");
  // A URL has one spelling for each address: ::0 becomes ::
  const { hostname = name } = URL.parse(`http://${name.includes(":") ? `[${name}]` : name}/`) ?? {};
  return `http://${LOOPBACK_OF.get(hostname) ?? hostname}:${port}/`;
}

const LOOPBACK_OF: ReadonlyMap<string, string> = new Map([["0.0.0.0", "127.0.0.1"], ["[::]", "[::1]"]]);

/** Tells whether an address of `ownAddress` is on the loopback interface, the only one where the control token counts. */
export function isOnLoopback(address: string): boolean {
  return isLoopbackName(new URL(address).hostname);
}

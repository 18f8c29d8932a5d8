import { ConfigError } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { isLoopbackName } from "../../lib/system/net/is_loopback_name.ts";
import { UsageError } from "../cli_error.ts";

/** The flags that choose where a gateway listens. */
export const bindFlags = {
  host: { type: "string", valueHint: "address", description: "Address to listen on (default: 127.0.0.1)" },
  port: { type: "string", valueHint: "number", description: "Port to listen on, 0 for a free one (default: 42617)" },
} as const;

/** What the flags say as configuration keys. @throws {UsageError} a port that is none */
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
 * Refuses an address that other machines can reach unless the user allowed it and tokens are asked for (docs/design/access.md "Bind rules"), and
 * one of a single network card.
 * @param options.hasEnvironmentToken whether POSTERN_TOKEN is set
 * @throws {ConfigError} `public_bind`
 */
export function checkBind({ gateway }: Config, options: { readonly hasEnvironmentToken: boolean }): void {
  if (isLoopbackName(gateway.host.toLowerCase())) return;
  const refuse = (reason: string) =>
    new ConfigError("public_bind", `Cannot listen on "${gateway.host}": ${reason}`, { key: "gateway.host" });
  // No URL can name it
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

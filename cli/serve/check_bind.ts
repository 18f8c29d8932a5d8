import { ConfigError } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { isLoopbackName } from "../../lib/system/net/is_loopback_name.ts";

/**
 * Refuses an address that other machines can reach unless the user allowed it and tokens are asked for (DESIGN.md section 5), and
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

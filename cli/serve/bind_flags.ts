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

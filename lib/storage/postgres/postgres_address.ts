import { readFileSync } from "node:fs";
import { userInfo } from "node:os";
import { ConfigError, systemCodeOf } from "../../base/errors.ts";

/** Address of a PostgreSQL server, and how its connections are encrypted. */
export interface PostgresAddress {
  /** Host name, IP address, or the folder of a Unix socket */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  /** Undefined: the server asks for none, or `~/.pgpass` has it */
  readonly password: string | undefined;
  readonly database: string;
  /** False: without TLS */
  readonly ssl: false | PostgresTls;
}

/** Options of TLS, as `node:tls` takes them. */
export interface PostgresTls {
  readonly rejectUnauthorized: boolean;
  /** The certificate must be for this host. Without it, an IP address would be checked as "localhost" */
  readonly host: string;
  /** The certificate is checked for this name. Undefined: any name will do */
  readonly checkServerIdentity?: () => undefined;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Parameters of the address. Anything else in it is refused, so that no misspelt `sslmode` counts as its default. */
const PARAMETERS = ["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port", "user", "password", "dbname"];
const DEFAULT_PORT = 5432;
const ENCODE = "; in the password write / as %2F, # as %23, ? as %3F, @ as %40 and % as %25";

/**
 * Reads the address of a server: `postgres://user:password@host:port/database?sslmode=...`.
 *
 * A connection over a network is encrypted, and the server's certificate is checked against its name. `sslmode=disable` turns TLS off,
 * `verify-ca` checks no name, `no-verify` checks nothing; `require`, `prefer` and `allow` check like `verify-full`. Loopback addresses
 * and Unix sockets (`?host=/folder`) are plain unless `sslmode` is given. No message repeats the address, which may hold a password.
 * @param key key of the configuration that the address comes from, for the message
 * @throws {ConfigError} `config_invalid`: not such an address, or a file of a certificate that cannot be read
 */
export function parsePostgresAddress(url: string, key: string): PostgresAddress {
  const refuse = (reason: string) =>
    new ConfigError("config_invalid", `Cannot use ${key} as the address of a PostgreSQL server: ${reason}`, { key });
  const parsed = URL.parse(url);
  if (parsed === null || !["postgres:", "postgresql:"].includes(parsed.protocol)) {
    throw refuse(`it must look like postgres://user:password@host:5432/database${ENCODE}`);
  }
  // A password that is not encoded ends the host's name early, and its rest would be shown as the database's
  if (parsed.hash !== "" || parsed.pathname.includes("@")) throw refuse(`a part of it is in the wrong place${ENCODE}`);
  const { searchParams } = parsed;
  for (const name of searchParams.keys()) {
    if (!PARAMETERS.includes(name)) {
      throw refuse(`it has the parameter "${name.slice(0, 40)}"; known are ${PARAMETERS.join(", ")}`);
    }
  }
  const part = (text: string): string => {
    try {
      return decodeURIComponent(text);
    } catch {
      throw refuse('a "%" in it must be written as "%25"');
    }
  };
  const host = searchParams.get("host") ?? part(parsed.hostname).replace(/^\[|\]$/g, "");
  const port = Number(searchParams.get("port") ?? (parsed.port || DEFAULT_PORT));
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw refuse("its port must be 1-65535");
  const user = searchParams.get("user") ?? (part(parsed.username) || userInfo().username);
  const password = searchParams.get("password") ?? part(parsed.password);
  const database = searchParams.get("dbname") ?? (part(parsed.pathname.slice(1)) || user);
  return {
    host: host || "127.0.0.1",
    port,
    user,
    password: password === "" ? undefined : password,
    database,
    ssl: tlsOf(searchParams, { host, refuse }),
  };
}

/** Returns the address for messages and logs: without user and password. */
export function nameOfAddress({ host, port, database }: PostgresAddress): string {
  return host.startsWith("/") ? `${host} (port ${port}), database "${database}"` : `${host}:${port}/${database}`;
}

function tlsOf(
  parameters: URLSearchParams,
  { host, refuse }: { readonly host: string; readonly refuse: (reason: string) => ConfigError },
): PostgresAddress["ssl"] {
  const isNear = host === "" || host.startsWith("/") || host === "localhost" || host === "::1" ||
    /^127\.\d+\.\d+\.\d+$/.test(host);
  const mode = parameters.get("sslmode") ?? (isNear ? "disable" : "verify-full");
  const file = (name: string): string | undefined => {
    const path = parameters.get(name);
    if (path === null) return undefined;
    try {
      return readFileSync(path, "utf8");
    } catch (error) {
      const code = systemCodeOf(error) ?? "it cannot be read";
      throw refuse(`its ${name} "${path}" cannot be read: ${code}`);
    }
  };
  const [ca, cert, key] = [file("sslrootcert"), file("sslcert"), file("sslkey")];
  const files = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
  switch (mode) {
    case "disable":
      return false;
    case "no-verify":
      return { rejectUnauthorized: false, host, ...files };
    case "verify-ca":
      return { rejectUnauthorized: true, host, checkServerIdentity: () => undefined, ...files };
    case "allow":
    case "prefer":
    case "require":
    case "verify-full":
      return { rejectUnauthorized: true, host, ...files };
    default:
      throw refuse(
        'its sslmode must be "verify-full" (the default over a network), "verify-ca", "no-verify" or "disable"',
      );
  }
}

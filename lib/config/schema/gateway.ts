import * as v from "valibot";
import { LOG_LEVELS } from "../../base/telemetry/log.ts";
import { withoutEnd } from "../../base/text.ts";
import { about, boolean, choice, environmentName, httpUrl, integer, required, text, texts } from "./value.ts";

const websocketSchema = v.strictObject({
  heartbeat_secs: about("Seconds between two pings", integer(30, 1, 3600)),
  pong_timeout_secs: about("Seconds without a pong after which a socket is closed", integer(60, 1, 7200)),
  idle_timeout_secs: about(
    "Seconds without a run or a message after which a socket is closed",
    integer(300, 1, 86_400),
  ),
  max_message_bytes: about("Bytes of one frame", integer(2_097_152, 1024, 67_108_864)),
});

const nodeControlSchema = v.strictObject({
  enabled: about("Lets nodes connect", boolean(false)),
  auth_token: about("Secret that a node connects with. `auth_token_env` keeps it out of the file", text("")),
  auth_token_env: about("Environment variable that holds the secret that a node connects with", environmentName()),
  allowed_node_ids: about("Names of the nodes that may connect", texts([])),
});

/** `[gateway]`: where it listens, who may come in, and the bounds of a request (docs/design/access.md "Bind rules"). */
export const gatewaySchema = v.strictObject({
  host: about("Address to listen at: `localhost`, an IPv4 or an IPv6 address", v.optional(required(), "127.0.0.1")),
  port: about("Port to listen at. 0 takes a free one", integer(42_617, 0, 65_535)),
  require_pairing: about("Asks every client for a token", boolean(true)),
  allow_public_bind: about(
    "Allows a `host` that other machines can reach; pairing stays required there",
    boolean(false),
  ),
  allowed_hosts: about("Names that the Host header may have beside those of this machine", texts([])),
  public_url: about(
    "Address that people reach the gateway at from elsewhere, with the path of a mount. Its host counts as one of `allowed_hosts`. Empty: none is told",
    httpUrl(),
  ),
  answer_links: about(
    "Puts a link into messages of `[[notify]]` that answers one approval, once, for whoever has it",
    boolean(false),
  ),
  cors_origins: about("Web origins that may read replies, each exactly as a browser sends it. `*`: all", texts([])),
  rate_limit_max: about("Requests that one token may make in a window. 0: no limit", integer(600, 0, 10_000_000)),
  rate_limit_window_secs: about("Seconds of a window", integer(60, 1, 86_400)),
  rate_limit_per_identity: about(
    "Requests of a second window, for each token, or for each address without one. 0: no second window",
    integer(0, 0, 10_000_000),
  ),
  rate_limit_scope: about(
    "Counts requests at each `gateway` by itself, or in the whole `cluster` over PostgreSQL",
    choice(["gateway", "cluster"], "gateway"),
  ),
  max_request_bytes: about("Bytes of a request's body", integer(10_485_760, 1024, 1_073_741_824)),
  pairing_code_ttl_secs: about("Seconds that a pairing code can be used", integer(3600, 10, 86_400)),
  shutdown_grace_secs: about("Seconds that work may go on after the first signal to stop", integer(30, 0, 3600)),
  request_timeout_secs: about("Seconds after which a request is given up", integer(600, 1, 86_400)),
  websocket: about("WebSocket connections", v.optional(websocketSchema, {})),
  node_control: about("Nodes: other machines that offer their tools", v.optional(nodeControlSchema, {})),
});

/** Name of a schema that needs no quotes, so that people can type it in `psql`. */
const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,62}$/;

/** `[storage]`: everything but `driver` is for `postgres` alone. The addresses may hold a password. */
export const storageSchema = v.strictObject({
  driver: about(
    "Where records are kept: `sqlite` in the data directory, `postgres` in a PostgreSQL database, or `memory`, which forgets them at the end",
    choice(["sqlite", "memory", "postgres"], "sqlite"),
  ),
  url: about("Address of the PostgreSQL database: `postgres://user:password@host:5432/database`", text("")),
  url_env: about("Environment variable that holds the address of the database", environmentName()),
  url_file: about("File that holds the address of the database and nothing else", text("")),
  direct_url_env: about(
    "Environment variable that holds the address past a pooler such as PgBouncer, for locks and migrations",
    environmentName(),
  ),
  key_env: about(
    "Environment variable that holds the key for encrypted records: 32 bytes in base64, as `openssl rand -base64 32` prints them. The same at all gateways of a database. Empty: files of the data directory hold the keys, and gateways that share a database encrypt nothing",
    environmentName(),
  ),
  old_key_env: about(
    "Environment variable that holds the key before the one of `key_env`, while `postern storage rekey` changes it",
    environmentName(),
  ),
  schema: about(
    "Schema of the database that the tables are in. It is made where it is missing",
    v.optional(
      v.pipe(v.string(), v.regex(SCHEMA_NAME), v.description("a name of small letters, digits and _")),
      "postern",
    ),
  ),
  pool_size: about("Most connections of this gateway to the database", integer(10, 2, 500)),
  statement_timeout_secs: about("Seconds after which the database gives a statement up", integer(30, 1, 600)),
  engine_unchecked: about(
    "Takes a database that speaks PostgreSQL's protocol and is not PostgreSQL. Some of them ignore locks",
    boolean(false),
  ),
});

/** Form of `[cluster] workspace_id`; empty: none. Ids of workspaces of one gateway begin with `ws_` (lib/cluster/workspace_id.ts). */
const WORKSPACE_ID = /^(?!ws_)[A-Za-z0-9_.-]{0,64}$/;

/** Longest time that a run may wait for its workspace: 30 days. */
const MAX_WORKSPACE_WAIT_SECS = 2_592_000;

/** `[cluster]`: gateways that share a PostgreSQL database (docs/design/cluster.md "Rules"). */
export const clusterSchema = v.strictObject({
  lease_secs: about(
    "Seconds after which a gateway that is not heard of counts as gone. Its runs go on at others after one and a half times as long. The same at all gateways",
    integer(10, 1, 300),
  ),
  workspace_id: about(
    "Name of the workspace that this gateway shares with others: they have the same folder, such as on a network file system, and go on with each other's runs there. No name begins with `ws_`. Empty: the workspace is this gateway's own",
    v.optional(
      v.pipe(
        v.string(),
        v.regex(WORKSPACE_ID),
        v.description(
          "at most 64 letters, digits, dots, _ and -, without ws_ at the beginning: such an id is made of a data directory and a folder, and another folder with that name would go on with runs that are not its own",
        ),
      ),
      "",
    ),
  ),
  workspace_wait_secs: about(
    "Seconds that a run, or an execution of a procedure, waits for a gateway of its workspace when all of them are gone. It then ends. The same at all gateways",
    integer(86_400, 1, MAX_WORKSPACE_WAIT_SECS),
  ),
  advertise_url: about(
    "Address at which the other gateways reach this one, such as `https://gateway-1.example.com`. It gives them the text of runs as it comes, and the nodes of this gateway. Empty: they read each turn when it is complete, and cannot call the nodes",
    httpUrl(),
  ),
  token_env: about(
    "Environment variable that holds the token of the cluster, the same at all gateways: at least 32 characters. A gateway sends it to the others, and takes requests of the others with it alone",
    environmentName(),
  ),
  insecure: about(
    "Allows an `advertise_url` with http to another machine. Whoever reads that network then has the token",
    boolean(false),
  ),
  stale_auth_secs: about(
    "Seconds for which completions without tools go on with the tokens that the gateway knows while the database is down. Anything else is refused then",
    integer(30, 0, 3_600),
  ),
});

/** Longest address of a gateway for the others of its cluster, in characters. */
const MAX_ADDRESS = 2_048;

/**
 * Parses the address that a gateway gives the others of its cluster: https, or http to this machine, or any http where `insecure` allows it.
 *
 * The token of the cluster goes to this address, so both sides check it: the gateway that gives it, and each one that reads it in a record.
 * @returns the address without a slash at its end, or the reason why it is none
 */
export function parseLinkAddress(
  text: string,
  { insecure }: { readonly insecure: boolean },
): { readonly url: string } | { readonly problem: string } {
  const url = text.length > MAX_ADDRESS ? null : URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.hostname === "") {
    return { problem: 'it must be an http or https address, such as "https://gateway-1.example.com"' };
  }
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    return { problem: "it must have no user, no password, no query and no fragment" };
  }
  if (url.protocol === "http:" && !insecure && !isLoopback(url.hostname)) {
    return { problem: "it must be https, unless it leads to this machine or [cluster] insecure = true" };
  }
  return { url: `${url.origin}${withoutEnd(url.pathname, "/")}` };
}

/** Tells whether a host of a parsed URL is this machine. A name that only resolves to it does not count. */
function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** `[logging]`: lines go to stderr, or to the daemon's log file. */
export const loggingSchema = v.strictObject({
  level: about("Least important line that is written", choice(LOG_LEVELS, "info")),
  format: about("Lines for people or for programs", choice(["pretty", "json"], "pretty")),
});

/** Longest id of a node, in characters. */
const MAX_NODE_ID = 24;

const NODE_ID = /^[a-z0-9]+(?:[_-][a-z0-9]+)*$/;

/**
 * Tells whether a text can be the id of a node (`[gateway.node_control] allowed_node_ids`): lower-case letters and digits, single `_` or
 * `-` between them, 1-24 characters. Two `_` end the id in the name of a tool, `node__<id>__<tool>`.
 */
export function isNodeId(text: string): boolean {
  return text.length <= MAX_NODE_ID && NODE_ID.test(text);
}

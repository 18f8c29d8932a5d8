import * as v from "valibot";
import { LOG_LEVELS } from "../../base/telemetry/log.ts";
import { about, boolean, choice, environmentName, integer, required, text, texts } from "./value.ts";

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
  cors_origins: about("Web origins that may read replies, each exactly as a browser sends it. `*`: all", texts([])),
  rate_limit_max: about("Requests that one token may make in a window. 0: no limit", integer(600, 0, 10_000_000)),
  rate_limit_window_secs: about("Seconds of a window", integer(60, 1, 86_400)),
  rate_limit_per_identity: about(
    "Requests of a second window, for each token, or for each address without one. 0: no second window",
    integer(0, 0, 10_000_000),
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

/** Default of `[cluster] lease_secs`. */
export const DEFAULT_LEASE_SECS = 10;

/** `[cluster]`: gateways that share a PostgreSQL database (docs/design/cluster.md "Rules"). */
export const clusterSchema = v.strictObject({
  lease_secs: about(
    "Seconds after which a gateway that is not heard of counts as gone. Its runs go on at others after one and a half times as long. The same at all gateways. Does nothing in this version, in which one gateway at a time uses a database",
    integer(DEFAULT_LEASE_SECS, 1, 300),
  ),
});

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

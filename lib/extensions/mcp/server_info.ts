import type { Config } from "../../config/config.ts";
import type { McpConnection, McpEra, McpState } from "./mcp_connection.ts";
import type { McpErrorCode } from "./mcp_error.ts";
import { mcpToolName } from "../../tools/mcp/mcp.ts";
import type { SignInState } from "./oauth/sign_in.ts";
import type { ToolChange } from "./accepted_tools.ts";

/** Tool of a server: the description is the server's. */
export interface McpServerTool {
  /** Name that the server gives it */
  readonly name: string;
  /** Name that the agent calls it by */
  readonly tool: string;
  readonly description: string;
  /** The server's claims. They decide nothing */
  readonly claims: { readonly read_only: boolean; readonly destructive: boolean; readonly idempotent: boolean };
}

/** Sign-in of a person at a server: see SignInState. */
export interface McpSignInInfo {
  readonly state: "none" | "needed" | "signed_in";
  /** Authorization server. Null: nobody is signed in */
  readonly issuer: string | null;
  readonly scopes: readonly string[];
  /** End of the present token. Null: none is known */
  readonly expires_at: string | null;
  /** True: the token is renewed by itself */
  readonly renewed: boolean;
}

/** MCP server, as `/v1/mcp-servers` shows it. Times are in ISO 8601; words of the server are those of a stranger. */
export interface McpServerInfo {
  readonly name: string;
  readonly object: "mcp_server";
  readonly transport: "stdio" | "http";
  readonly state: McpState;
  /** Why it is off, with what turns it on. Null while it may run */
  readonly reason: string | null;
  readonly era: McpEra | null;
  readonly protocol_version: string | null;
  readonly server: { readonly name: string; readonly version: string } | null;
  /** Sign-in of a person. `needed`: postern mcp login. It has no token */
  readonly sign_in: McpSignInInfo;
  /** The server's advice to models */
  readonly instructions: string | null;
  readonly tools: readonly McpServerTool[];
  /** Sentences about tools that it lists and that are not offered, each with the reason */
  readonly left_out: readonly string[];
  /** Tools that are not offered until a person accepts them */
  readonly changes: readonly ToolChange[];
  readonly last_error: { readonly code: McpErrorCode; readonly message: string; readonly at: string } | null;
  /** `[mcp.servers.<name>] sandbox`. Null for a server by `url` */
  readonly sandbox: "off" | "auto" | "require" | null;
  /** Sentence about the rights that its program runs with */
  readonly rights: string;
  /** Start of its session. Null without one */
  readonly since: string | null;
  /** Time at which its list of tools was read. Null: never */
  readonly listed_at: string | null;
  /** End of what it wrote to its error output and its log */
  readonly log_tail: string;
}

/** Describes a server. @param options.reason see McpServerInfo */
export function toServerInfo(
  name: string,
  { config, connection, changes, reason, signIn }: {
    readonly config: Config;
    readonly connection: McpConnection | undefined;
    readonly changes: readonly ToolChange[];
    readonly reason: string | null;
    readonly signIn: SignInState;
  },
): McpServerInfo {
  const settings = config.mcp.servers[name];
  const isProgram = settings?.url === "";
  const status = connection?.status();
  const { lastError: failed, server } = status ?? {};
  return {
    name,
    object: "mcp_server",
    transport: isProgram ? "stdio" : "http",
    state: status?.state ?? "disabled",
    reason,
    era: status?.era ?? null,
    protocol_version: status?.protocolVersion ?? null,
    server: server === undefined ? null : { name: server.name, version: server.version },
    sign_in: toSignInInfo(signIn),
    instructions: status?.instructions ?? null,
    tools: (connection?.tools() ?? []).map(({ name: own, description, hints }) => ({
      name: own,
      tool: mcpToolName(name, own),
      description,
      claims: { read_only: hints.readOnly, destructive: hints.destructive, idempotent: hints.idempotent },
    })),
    left_out: status?.leftOut ?? [],
    changes,
    last_error: failed === undefined ? null : { code: failed.code, message: failed.message, at: toTime(failed.at) },
    sandbox: settings === undefined || !isProgram ? null : settings.sandbox,
    rights: rightsOf(settings),
    since: status?.since === undefined ? null : toTime(status.since),
    listed_at: status?.listedAt === undefined ? null : toTime(status.listedAt),
    log_tail: connection?.logTail() ?? "",
  };
}

function toSignInInfo(signIn: SignInState): McpSignInInfo {
  if (signIn.state !== "signed_in") {
    return { state: signIn.state, issuer: null, scopes: [], expires_at: null, renewed: false };
  }
  const { issuer, scope, expiresAt, isRenewed } = signIn;
  return {
    state: "signed_in",
    issuer,
    scopes: scope?.split(" ").filter((each) => each !== "") ?? [],
    expires_at: expiresAt === null ? null : toTime(expiresAt),
    renewed: isRenewed,
  };
}

function rightsOf(settings: Config["mcp"]["servers"][string] | undefined): string {
  if (settings === undefined || settings.url !== "") return "It runs elsewhere, and gets what calls of its tools send";
  const { sandbox, network, paths } = settings;
  if (sandbox === "off") return "Its program runs with your rights and the network";
  const reached = paths.length === 0 ? "its own folder" : `its own folder and ${paths.join(", ")}`;
  const contained = `Its program reaches ${reached}, ${network ? "and the network" : "and no network"}`;
  return sandbox === "require"
    ? contained
    : `${contained}; without bubblewrap it runs with your rights and the network`;
}

function toTime(at: number): string {
  return new Date(at).toISOString();
}

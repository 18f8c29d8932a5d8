import type { Config } from "../../config/config.ts";
import type { McpServerInfo } from "../../base/records/extension_views.ts";
import type { McpConnection } from "./mcp_connection.ts";
import { mcpToolName } from "../../tools/mcp/mcp.ts";
import type { SignInState } from "./oauth/sign_in.ts";
import type { ToolChange } from "./accepted_tools.ts";

/** Describes a server. @param options.reason why it is off, with what turns it on. Null while it may run */
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

function toSignInInfo(signIn: SignInState): McpServerInfo["sign_in"] {
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

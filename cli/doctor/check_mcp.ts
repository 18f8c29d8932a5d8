import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { exactLine } from "../../lib/base/text.ts";
import type { McpServerInfo } from "../../lib/base/records/extension_views.ts";
import type { GatewayClient } from "../../lib/system/net/gateway_client.ts";
import { askRoute } from "../reach_gateway.ts";
import { clientOf } from "./ask_gateway.ts";
import { type Check, type Finding, fine, type Installation, warning } from "./finding.ts";

const NAME = "mcp";
/** Milliseconds for the start of one server. All start at once. */
const START_MS = 30_000;
/** Milliseconds beside that, for the services around the servers and their end */
const MARGIN_MS = 15_000;

/** Checks the MCP servers that may run: each is started once, unless the gateway has a session with it. */
export const mcpCheck: Check = {
  name: NAME,
  limitMs: START_MS + MARGIN_MS,
  async run(installation) {
    const { mcp, security: { mcp: { enabled, allowed_servers: allowed } } } = installation.loaded.config;
    const left = await checkLeft(installation);
    if (!enabled) return left;
    const names = [...new Set(allowed)];
    const missing = names.filter((name) => !Object.hasOwn(mcp.servers, name)).map((name) =>
      warning(NAME, `allowed_servers names "${name}", and there is no [mcp.servers.${name}]`, "correct security.mcp")
    );
    const there = names.filter((name) => Object.hasOwn(mcp.servers, name));
    if (there.length === 0) return [...left, ...missing];
    const client = clientOf(installation, START_MS);
    const found = await (client === undefined ? startAlone(installation, there) : askGateway(client, there));
    return [...left, ...missing, ...found];
  },
};

/** Asks the running gateway for servers that left the configuration, and of which something is kept. */
async function checkLeft(installation: Installation): Promise<readonly Finding[]> {
  const client = clientOf(installation);
  const list = client && await askRoute(client, "GET /v1/mcp-records").catch(() => undefined);
  return (list?.data ?? []).map(({ name, accepted_tools: count, sign_in: isSignedIn }) =>
    warning(
      NAME,
      `"${exactLine(name)}" left the configuration, and ${count} accepted tools${
        isSignedIn ? " and a sign-in" : ""
      } are kept`,
      `postern mcp forget ${exactLine(name)}`,
    )
  );
}

/** Asks the running gateway, which starts the servers that have no session. */
async function askGateway(client: GatewayClient, names: readonly string[]): Promise<readonly Finding[]> {
  return await Promise.all(names.map(async (name) => {
    try {
      const now = await askRoute(client, "GET /v1/mcp-servers/:name", { params: { name } });
      const isOpen = now === undefined || now.state === "ready" || now.state === "disabled";
      return toFinding(
        name,
        isOpen ? now : await askRoute(client, "POST /v1/mcp-servers/:name/restart", { params: { name } }),
      );
    } catch {
      return tooSlow(name);
    }
  }));
}

/** Starts the servers in services of their own, whose data directory is removed afterwards, and ends them. */
async function startAlone({ context, loaded }: Installation, names: readonly string[]): Promise<readonly Finding[]> {
  const { randomControlToken, startServices } = await import("../serve/start_services.ts");
  const dataDir = await mkdtemp(join(tmpdir(), "postern-doctor-"));
  try {
    const services = await startServices(context, {
      loaded: { ...loaded, dataDir },
      agent: false,
      controlToken: randomControlToken(),
      quiet: true,
      // Faults of a server are told by its finding, so its log lines are dropped
      log: { write: () => {}, healthy: () => true },
    });
    try {
      const servers = await services.mcpServers();
      const limit = systemClock.timeoutSignal(START_MS);
      const found = await Promise.all(names.map(async (name) => {
        try {
          return toFinding(name, await servers.start(name, limit.signal));
        } catch (error) {
          if (limit.signal.aborted) return tooSlow(name);
          throw error;
        }
      }));
      limit.clear();
      return found;
    } finally {
      await services.close();
    }
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
}

function toFinding(name: string, server: McpServerInfo | undefined): Finding {
  if (server === undefined) return warning(NAME, `The gateway does not tell of "${name}"`, "postern mcp list");
  const { state, reason, tools, server: self, protocol_version: version, last_error: failed } = server;
  if (state === "disabled") return fine(NAME, `"${name}" was not started: ${reason}`);
  if (state !== "ready") {
    return warning(NAME, failed?.message ?? `"${name}" has no session`, `postern mcp logs ${name}`);
  }
  const called = self === null ? "" : ` (${self.name} ${self.version})`;
  return fine(NAME, `"${name}"${called} has ${tools.length} tools, by the protocol of ${version ?? "an unknown date"}`);
}

function tooSlow(name: string): Finding {
  return warning(NAME, `"${name}" did not start within ${START_MS / 1000} s`, `postern mcp show ${name}`);
}

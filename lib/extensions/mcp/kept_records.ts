import { refuse } from "../../base/errors.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import type { Config } from "../../config/config.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { KeptMcpRecord } from "../../base/records/extension_views.ts";
import { ACCEPTED_MCP_TOOLS } from "./accepted_tools.ts";
import { MCP_CREDENTIALS } from "./oauth/mcp_credential.ts";
import { MCP_SERVERS } from "./server_record.ts";
import { MCP_SWITCHES } from "./server_switches.ts";

/** Services that the records are read and removed with. */
export interface KeptRecordsOptions {
  readonly store: Store;
  readonly audit: AuditAppend;
  readonly config: () => Config;
}

/** Records of one server: their keys, and what they say. */
interface Found {
  readonly writes: Write[];
  tools: number;
  isSignedIn: boolean;
}

/** Returns the servers that left the configuration and of which something is kept, by name. */
export async function keptRecords(options: KeptRecordsOptions): Promise<readonly KeptMcpRecord[]> {
  const found = await findRecords(options);
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, { tools, isSignedIn }]) => ({
    name,
    object: "mcp_record",
    accepted_tools: tools,
    sign_in: isSignedIn,
  }));
}

/**
 * Forgets a server that left the configuration: its tools, its sign-in, and whether somebody turned it off. A later server of its name is
 * seen for the first time. The audit has it, in one transaction.
 * @throws {HttpError} 409 `conflict` for a server of the configuration, 404 `not_found` where nothing is kept
 */
export async function forgetRecords(name: string, by: Actor, options: KeptRecordsOptions): Promise<void> {
  const shown = JSON.stringify(name.slice(0, 64));
  if (Object.hasOwn(options.config().mcp.servers, name)) {
    const reason =
      `the configuration has it, and its tools would be accepted unseen; run postern mcp remove ${name} first`;
    throw refuse("conflict", `Cannot forget the MCP server ${shown}: ${reason}`);
  }
  const found = (await findRecords(options)).get(name);
  if (found === undefined) throw refuse("not_found", `Cannot forget the MCP server ${shown}: nothing is kept of it`);
  const event = {
    ...{ type: "mcp_server", action: "forgotten", server: name, source: null, integrity: null } as const,
    by: storedActor(by),
  };
  await options.audit(event, found.writes);
}

async function findRecords({ store, config }: KeptRecordsOptions): Promise<ReadonlyMap<string, Found>> {
  const { servers } = config().mcp;
  const all = new Map<string, Found>();
  const note = (name: string, remove: Write): Found | undefined => {
    if (Object.hasOwn(servers, name)) return undefined;
    const found = all.get(name) ?? { writes: [], tools: 0, isSignedIn: false };
    found.writes.push(remove);
    all.set(name, found);
    return found;
  };
  for await (const { key, value } of ACCEPTED_MCP_TOOLS.all(store)) {
    const found = note(value.server, ACCEPTED_MCP_TOOLS.remove(key));
    if (found !== undefined && value.tool !== "") found.tools++;
  }
  for await (const { key } of MCP_CREDENTIALS.all(store)) {
    const found = note(key, MCP_CREDENTIALS.remove(key));
    if (found !== undefined) found.isSignedIn = true;
  }
  for await (const { key } of MCP_SERVERS.all(store)) note(key, MCP_SERVERS.remove(key));
  for await (const { key } of MCP_SWITCHES.all(store)) note(key, MCP_SWITCHES.remove(key));
  return all;
}

import type { ToolInfo } from "../base/records/tool_info.ts";
import { ConfigError, type HttpError, refuse } from "../base/errors.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Config } from "../config/config.ts";
import type { Reloads } from "../config/create_reloads.ts";
import type { AuditAppend } from "../guard/audit/audit_chain.ts";
import type { ToolExecutor } from "./runtime/tool_executor.ts";

/** Writer of the gateway's own configuration file. */
export interface ConfigWriter {
  /**
   * Sets one key in the file in use, or in a new one of the user. A file that the user accepted stays accepted.
   * @returns the configuration that is loaded then
   * @throws {ConfigError} nothing was written
   */
  set(key: string, value: unknown): Promise<Config>;
}

/** Parts of a gateway that turn a tool on. */
export interface TurnOnOptions {
  readonly tools: Pick<ToolExecutor, "get">;
  /** undefined: the configuration is not the gateway's to write */
  readonly writer: ConfigWriter | undefined;
  readonly reload: Reloads["reload"];
  readonly audit: AuditAppend;
}

/**
 * Turns a tool on for good, as a person says: writes its key and takes the configuration over. The next turn has the tool.
 * @returns the tool as it is then; undefined for an unknown one
 * @throws {HttpError} 409 `conflict` where this gateway cannot, or may not, write the key
 */
export async function turnOnTool(
  name: string,
  by: Actor,
  { tools, writer, reload, audit }: TurnOnOptions,
): Promise<ToolInfo | undefined> {
  const before = tools.get(name);
  if (before === undefined || before.enabled) return before;
  const change = before.turn_on;
  if (writer === undefined || change === null) throw conflict(name, before.reason ?? "");
  const { key, value } = change;
  // A change that the audit cannot record does not happen
  await audit({ type: "config", action: "set", keys: [key], needs_restart: [], by: storedActor(by) });
  const config = await writer.set(key, value).catch((error: unknown) => {
    throw error instanceof ConfigError ? conflict(name, error.message, error) : error;
  });
  await reload(() => Promise.resolve(config));
  const after = tools.get(name);
  if (after?.enabled === false) {
    throw conflict(name, `"${key}" is set, and the gateway has not taken it over; postern doctor says why`);
  }
  return after;
}

function conflict(name: string, reason: string, cause?: unknown): HttpError {
  return refuse("conflict", `Cannot turn on "${name}": ${reason}`, { cause });
}

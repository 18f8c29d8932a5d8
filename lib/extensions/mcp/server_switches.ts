import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";

const recordSchema = v.object({
  v: v.literal(1),
  name: v.string(),
  state: v.picklist(["enabled", "disabled"]),
  /** ISO 8601 */
  changed_at: v.string(),
});

/** Collection of the servers that a person turned on or off, by name. A server without a record is on. */
export const MCP_SWITCHES = new Collection("mcp_switches", recordSchema, { replaced: "a decision of a person" });

/** Options of ServerSwitches. */
export interface ServerSwitchesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
}

/** Stored answers of people whether a server may run. Every change is in the audit, in one transaction with its record. */
export class ServerSwitches {
  readonly #options: ServerSwitchesOptions;

  constructor(options: ServerSwitchesOptions) {
    this.#options = options;
  }

  /** Returns the names of the servers that somebody turned off. */
  async disabled(): Promise<ReadonlySet<string>> {
    const names = new Set<string>();
    for await (const { value } of MCP_SWITCHES.all(this.#options.store)) {
      if (value.state === "disabled") names.add(value.name);
    }
    return names;
  }

  /** Keeps an answer. */
  async set(name: string, state: "enabled" | "disabled", by: Actor): Promise<void> {
    const changed_at = new Date(this.#options.clock.now()).toISOString();
    await this.#options.audit(toEvent(name, state, by), [MCP_SWITCHES.put(name, { v: 1, name, state, changed_at })]);
  }

  /** Records that a server was restarted. */
  async noteRestart(name: string, by: Actor): Promise<void> {
    await this.#options.audit(toEvent(name, "restarted", by));
  }
}

function toEvent(server: string, action: "enabled" | "disabled" | "restarted", by: Actor) {
  return { type: "mcp_server", action, server, source: null, integrity: null, by: storedActor(by) } as const;
}

import { hash } from "node:crypto";
import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { canonicalDigest } from "../../base/json.ts";
import { lineDifference } from "../../base/line_difference.ts";
import { type Actor, storedActor } from "../../base/records/caller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { exactText } from "../../base/text.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import type { McpToolsEvent } from "../../guard/audit/audit_event.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { McpToolDefinition } from "./mcp_connection.ts";

const table = v.record(v.string(), v.unknown());

const recordSchema = v.object({
  v: v.literal(1),
  server: v.string(),
  /** Name of the tool. Empty in the record of a server that had none when it was seen first */
  tool: v.string(),
  /** Digest of the definition, as McpToolDefinition has it */
  digest: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  /** Definition as a person is shown it, which a later change is compared with */
  text: v.string(),
  accepted_at: v.string(),
  /** null: the first sight of a server that the operator allows */
  by: v.nullable(table),
});
type AcceptedTool = v.InferOutput<typeof recordSchema>;

/** Collection of the definitions of servers' tools that count as accepted. The key is made from the names of server and tool. */
export const ACCEPTED_MCP_TOOLS = new Collection("accepted_mcp_tools", recordSchema, {
  replaced: "a decision about one definition of a tool",
});

/** Tool of a server that is held back until a person accepts it. */
export interface ToolChange {
  readonly tool: string;
  /** `changed`: another definition was accepted; `new`: the server had no such tool when it was accepted */
  readonly state: "changed" | "new";
  /** Digest of the definition, for `accept` */
  readonly digest: string;
  /** Lines that differ from the accepted definition; the whole definition of a new tool */
  readonly difference: string;
}

/** Services that the accepted tools work with. */
export interface AcceptedToolsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditAppend;
}

/** Reads what was accepted. */
export async function openAcceptedTools(options: AcceptedToolsOptions): Promise<AcceptedTools> {
  const accepted: AcceptedTool[] = [];
  for await (const { value } of ACCEPTED_MCP_TOOLS.all(options.store)) accepted.push(value);
  return new AcceptedTools(options, accepted);
}

/**
 * Definitions of servers' tools that may be offered. All tools of a server that is seen for the first time are accepted, since the operator
 * allows it by name. From then on a tool with another definition, and one that was not there, waits for a person: its words reach the model.
 * Every acceptance is in the audit, in one transaction with its records.
 */
export class AcceptedTools {
  readonly #options: AcceptedToolsOptions;
  readonly #servers = new Map<string, Map<string, AcceptedTool>>();

  constructor(options: AcceptedToolsOptions, accepted: readonly AcceptedTool[]) {
    this.#options = options;
    for (const each of accepted) this.#keep(each);
  }

  /**
   * Accepts the tools of a server that is seen for the first time. They count at once. Called with each list as it is read from the server,
   * before anybody is shown it: a list that nobody looked at must not let the next one pass for the first. An empty list is recorded too, since
   * the server could add any tool later.
   * @returns resolves when they are on the disk. A failure is logged
   */
  async see(server: string, tools: readonly McpToolDefinition[]): Promise<void> {
    if (this.#servers.has(server)) return;
    try {
      await this.#accept(server, tools, null);
    } catch (error) {
      // The tools are offered all the same. The next gateway accepts them as the last list has them
      this.#options.log.error("The tools of an MCP server could not be recorded as accepted", { server, error });
    }
  }

  /** Drops what was accepted of a server, whose records are gone. */
  forgotten(server: string): void {
    this.#servers.delete(server);
  }

  /** Returns the names of the tools that are held back until a person accepts them. */
  held(server: string, tools: readonly McpToolDefinition[]): ReadonlyMap<string, ToolChange["state"]> {
    const known = this.#servers.get(server);
    return new Map(
      tools.filter(({ name, digest }) => known?.get(name)?.digest !== digest)
        .map(({ name }) => [name, known?.has(name) === true ? "changed" : "new"]),
    );
  }

  /** Returns the tools that are held back, with what a person has to know. */
  changes(server: string, tools: readonly McpToolDefinition[]): readonly ToolChange[] {
    const known = this.#servers.get(server);
    const held = this.held(server, tools);
    return tools.flatMap((tool): ToolChange[] => {
      const { name, digest } = tool;
      const state = held.get(name);
      if (state === undefined) return [];
      const difference = lineDifference(known?.get(name)?.text ?? "", textOf(tool), { ofParts: true });
      return [{ tool: name, state, digest, difference }];
    });
  }

  /**
   * Accepts definitions that a person has seen.
   * @param digests digests from `changes`
   * @throws {HttpError} 409 conflict when a tool has changed since, or is none that waits
   */
  async accept(
    server: string,
    { tools, digests, by }: {
      readonly tools: readonly McpToolDefinition[];
      readonly digests: readonly string[];
      readonly by: Actor;
    },
  ): Promise<void> {
    const waiting = this.changes(server, tools);
    const strange = digests.find((digest) => !waiting.some((change) => change.digest === digest));
    if (strange !== undefined) throw changedSince(server, strange);
    await this.#accept(server, tools.filter(({ digest }) => digests.includes(digest)), by);
  }

  async #accept(server: string, tools: readonly McpToolDefinition[], by: Actor | null): Promise<void> {
    const { audit, clock } = this.#options;
    const accepted_at = new Date(clock.now()).toISOString();
    const actor = by === null ? null : storedActor(by);
    const definitions = tools.map((tool) => ({ tool: tool.name, digest: tool.digest, text: textOf(tool) }));
    if (by === null && tools.length === 0) definitions.push({ tool: "", digest: canonicalDigest(null), text: "" });
    const records = definitions.map((each): AcceptedTool => ({ v: 1, server, ...each, accepted_at, by: actor }));
    // Two lists of one server may come at once: the second one is compared with the first
    if (by === null) { for (const record of records) this.#keep(record); }
    const event: McpToolsEvent = {
      type: "mcp_tools",
      action: by === null ? "first_seen" : "accepted",
      server,
      tools: tools.map(({ name }) => name),
      digest: canonicalDigest(tools.map(({ digest }) => digest)),
      by: actor,
    };
    await audit(event, records.map((body) => ACCEPTED_MCP_TOOLS.put(keyOf(body), body)));
    for (const record of records) this.#keep(record);
  }

  #keep(record: AcceptedTool): void {
    const tools = this.#servers.get(record.server) ?? new Map<string, AcceptedTool>();
    this.#servers.set(record.server, tools.set(record.tool, record));
  }
}

function keyOf({ server, tool }: Pick<AcceptedTool, "server" | "tool">): string {
  return hash("sha256", JSON.stringify([server, tool]));
}

/** Returns a definition as a person reads it: everything that a model or the policy is told. What cannot be seen is spelled out. */
function textOf({ name, title, description, inputSchema, outputSchema, hints }: McpToolDefinition): string {
  const claims = Object.entries(hints).filter(([, isClaimed]) => isClaimed).map(([claim]) => claim).join(", ");
  return exactText([
    `name: ${name}`,
    ...(title === undefined ? [] : [`title: ${title}`]),
    "description:",
    description,
    `input: ${JSON.stringify(inputSchema, null, 2)}`,
    ...(outputSchema === undefined ? [] : [`output: ${JSON.stringify(outputSchema, null, 2)}`]),
    `claims: ${claims === "" ? "none" : claims}`,
  ].join("\n"));
}

function changedSince(server: string, digest: string): HttpError {
  const message =
    `Cannot accept the tool with the digest "${
      digest.slice(0, 64)
    }": the MCP server "${server}" has changed its tools since; ` +
    "look at them again";
  return refuse("conflict", message, { param: "digests" });
}

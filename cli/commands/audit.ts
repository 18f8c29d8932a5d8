import type { AuditRecord } from "../../lib/guard/audit/audit_chain.ts";
import {
  AUDIT_TYPES,
  type ChainEvent,
  type DrainEvent,
  type PairedEvent,
  type TokenIssuedEvent,
} from "../../lib/guard/audit/audit_event.ts";
import type { AuditReport } from "../../lib/guard/audit/verify_audit.ts";
import { type CommandContext, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

/** Command `postern audit show`: the newest records, in the order of a log: the oldest of them first. */
export const auditShowCommand = defineCliCommand({
  args: {
    limit: { type: "string", valueHint: "number", description: "How many records, 1-1000 (default: 50)" },
    before: { type: "string", valueHint: "position", description: "Only records before this position" },
    type: { type: "string", valueHint: "type", description: `Only one of ${AUDIT_TYPES.join(", ")}` },
    tool: { type: "string", valueHint: "name", description: "Only records of this tool" },
    run: { type: "string", valueHint: "id", description: "Only records of this run" },
  },
  example: "postern audit show --type decision --limit 20",
  async run(context, { limit, before, type, tool, run }) {
    const query = { limit, after: before, type, tool, run_id: run };
    const list = await ask(context, ({ call }) => call("GET /v1/audit", { query }));
    // The schema of the reply says which fields all records have, and no more
    const records: readonly AuditRecord[] = (list.data as unknown as readonly AuditRecord[]).toReversed();
    const none = "No audit record fits";
    const isCluster = records.some(({ chain }) => chain !== undefined);
    const titles = [...(isCluster ? ["CHAIN"] : []), "SEQ", "TIME", "TYPE", "BY", "WHAT"];
    const rows = records.map((record) => [...(isCluster ? [record.chain ?? ""] : []), ...toRow(record)]);
    context.print(
      { records, has_more: list.has_more, ...placeOf(list.last_id) },
      records.length === 0 ? none : toTable(titles, rows, context.io.columns),
    );
    if (list.has_more && !context.flags.json) context.say(`Older records: --before ${list.last_id}`);
    return EXIT.ok;
  },
});

/** Command `postern audit verify`: exit code 0 for an unbroken chain, 1 for a chain that was changed. */
export const auditVerifyCommand = defineCliCommand({
  args: {
    head: {
      type: "string",
      valueHint: "position:hash",
      description: "Head noted earlier; the log shows one each hour. Also checks that no record up to it was rewritten",
    },
  },
  example: "postern audit verify",
  async run(context, { head }) {
    if (head !== undefined && !/^(?:[\w.-]{1,100}:)?[1-9]\d{0,14}:[0-9a-f]{64}$/.test(head)) {
      throw new UsageError(
        'Cannot use "--head": it must be a position, a colon and 64 hexadecimal digits, in a cluster behind the chain and a colon',
      );
    }
    const report = await ask(context, ({ call }) => call("GET /v1/audit/verify", { query: { head } }));
    context.print(report, toText(report));
    return report.ok ? EXIT.ok : EXIT.failed;
  },
});

/** Returns the place of the oldest record: a number for a gateway alone, a text in a cluster. */
function placeOf(last: string | null) {
  const seq = last === null ? null : Number(last);
  return seq === null || Number.isInteger(seq) ? { last_seq: seq } : { last_seq: null, last_id: last };
}

async function ask<T>(context: CommandContext, question: (gateway: ReachedGateway) => Promise<T>): Promise<T> {
  const { config } = await context.loadConfig();
  if (!config.security.audit.enabled) context.say("Nothing new is recorded: [security.audit] enabled is false");
  const gateway = await reachGateway(context, { agent: false });
  try {
    return await question(gateway);
  } finally {
    await gateway.close();
  }
}

function toText({ ok, records, first_seq, last_seq, head, problems, problem_count, chains }: AuditReport): string {
  const place = chains !== undefined
    ? ` in ${chains.length} chains`
    : first_seq === null
    ? ""
    : `, ${first_seq} to ${last_seq}`;
  const kept = chains === undefined
    ? head === null ? [] : [`head ${head.seq}:${head.hash}`]
    : chains.filter(({ state }) => state === "open").map((open) =>
      `head ${open.chain}:${open.head?.seq}:${open.head?.hash}`
    );
  if (ok) return [`intact: ${records} records${place}`, ...kept].join("\n");
  const more = problem_count > problems.length ? [`... and ${problem_count - problems.length} more`] : [];
  return [`CHANGED: ${records} records${place}`, ...kept, ...problems.map(({ message }) => message), ...more].join(
    "\n",
  );
}

function toRow(record: AuditRecord): readonly string[] {
  return [String(record.seq), record.time, record.type, byOf(record), whatOf(record)];
}

function byOf(record: AuditRecord): string {
  switch (record.type) {
    case "decision":
    case "call":
    case "approval":
    case "question":
    case "rule":
    case "review":
    case "token":
    case "trust":
    case "plugin":
    case "skill":
    case "browser_login":
    case "mcp_tools":
    case "mcp_server":
    case "offer":
    case "cluster":
    case "halt":
    case "storage":
      return actorOf(record.by);
    case "pairing":
      return record.address ?? (record.action === "paired" ? "" : actorOf(record.by));
    case "config":
      return actorOf(record.by ?? null);
    case "access_failures":
      return record.address ?? "";
    case "node":
    case "answer_link":
      return record.address ?? "";
    case "retention":
    case "audit_chain":
      return "";
  }
}

/** Describes a new token on one line: its label, its scopes and when it ends. */
function endsOf({ label, scopes, expires_at, idle_ttl_seconds }: TokenIssuedEvent | PairedEvent): string {
  const ends = expires_at === null ? [] : [`until ${expires_at}`];
  const idle = idle_ttl_seconds === null ? [] : [`ends ${idle_ttl_seconds} s after its last use`];
  return [JSON.stringify(label), scopes.join(","), ...ends, ...idle].join(" ");
}

function actorOf(actor: DrainEvent["by"] | null): string {
  if (actor === null) return "";
  return actor.token_id === null ? actor.via : `${actor.via}:${actor.token_id}`;
}

function whatOf(record: AuditRecord): string {
  switch (record.type) {
    case "decision": {
      const { decision, tool, effects, rule } = record;
      const touched = [effects.command?.join(" ") ?? "", ...effects.paths ?? [], ...effects.urls ?? []];
      return [decision, tool, ...touched.filter((text) => text !== ""), `(${rule})`].join(" ");
    }
    case "call":
      return `${record.outcome} ${record.tool} in ${record.duration_ms} ms, ${record.output_bytes ?? 0} bytes`;
    case "approval":
      return `${record.action} ${record.approval_id} ${record.tool}`;
    case "answer_link":
      return `${record.action} link ${record.link ?? "that is not known"}: ${record.reason}`;
    case "question":
      return `${record.action} ${record.kind} of ${record.tool}${
        record.message === undefined ? "" : `: ${record.message}`
      }`;
    case "rule":
      return `${record.action} ${record.rule_id} ${record.decision} ${record.tool}`;
    case "token":
      return record.action === "issued"
        ? `issued ${record.token_id} ${endsOf(record)}`
        : `revoked ${record.count === 1 ? record.token_ids.join() : `${record.count} tokens`}`;
    case "pairing":
      return record.action === "paired" ? `paired ${record.token_id} ${endsOf(record)}` : record.action;
    case "config":
      return [record.action, ...record.keys, ...record.needs_restart.map((key) => `${key} (needs a restart)`)].join(
        " ",
      );
    case "trust":
      return `${record.action === "withdrawn" ? "no longer trusts" : "trusted"} ${record.subject} ${record.name}`;
    case "review":
      return [record.action, record.run_id ?? "", ...record.tools, record.outcome ?? ""].join(" ").trim();
    case "access_failures":
      return Object.entries(record.codes).map(([code, count]) => `${code}=${count}`).join(" ");
    case "node":
      return `${record.action} node ${record.node_id}${record.reason === null ? "" : `: ${record.reason}`}`;
    case "plugin":
      return `${record.action} plugin ${record.plugin_id} ${record.version} ${record.digest.slice(0, 12)}`;
    case "skill":
      return `${record.action} skill ${record.name} ${record.digest.slice(0, 12)} from ${record.source} ${record.from}`;
    case "browser_login":
      return `${record.action} login ${record.site}${record.run_id === undefined ? "" : ` in ${record.run_id}`}`;
    case "mcp_tools": {
      const words = record.action === "first_seen" ? "first saw" : "accepted";
      return `${words} ${record.tools.length} tools of the MCP server ${record.server}: ${record.tools.join(", ")}`;
    }
    case "mcp_server":
      return `${record.action} MCP server ${record.server}${record.source === null ? "" : `: ${record.source}`}`;
    case "offer":
      return `${record.kind} ${record.name}: ${record.outcome}`;
    case "halt":
      return `${record.action} ${record.halts.join(", ")}`;
    case "cluster":
      if (record.action === "folder_forgotten") return `forgot which folder the workspace ${record.workspace} is`;
      return `${record.action === "drain_asked" ? "drained" : "begins the drain of"} gateway ${record.gateway}`;
    case "storage":
      return `re-encrypted ${record.rewritten} records, ${record.left} are left`;
    case "retention":
      return `forgot the records up to ${record.through}`;
    case "audit_chain":
      return toChainWords(record);
  }
}

function toChainWords(event: ChainEvent): string {
  switch (event.action) {
    case "opened":
      return `began the chain of gateway ${event.gateway}`;
    case "closed":
      return "ended its chain";
    case "left_off":
      return `ended chain ${event.last.chain} at ${event.last.seq}: its gateway is gone`;
    case "witnessed":
      return "named the heads of other chains";
    case "forgot":
      return `forgot the oldest records of ${event.through.length} chains`;
  }
}

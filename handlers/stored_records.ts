import type { Clock } from "../lib/base/clock.ts";
import { Yielder } from "../lib/base/tick.ts";
import { PAIRING_CODES, PAIRING_GUARD } from "../lib/access/pairing.ts";
import { WS_TICKETS } from "../lib/access/shared_tickets.ts";
import { TOKEN_CHANGES } from "../lib/access/token_sharing.ts";
import { TOKENS } from "../lib/access/stored_token.ts";
import { DELIVERIES, OPEN_DELIVERIES } from "../lib/automation/channels/delivery_record.ts";
import { DONE_SCHEDULES, FIRINGS, SCHEDULE_CHANGES, SCHEDULES } from "../lib/automation/cron/schedule_record.ts";
import { OPEN_SOPS, SOP_EXECUTIONS, SOP_PLANS, SOP_RESULTS } from "../lib/automation/sops/execution_record.ts";
import { ANSWER_LINKS } from "../lib/guard/answer_links.ts";
import { APPROVAL_RULES, APPROVALS, OPEN_APPROVALS } from "../lib/guard/approval_records.ts";
import { RATE_WINDOWS } from "../lib/access/rate_records.ts";
import { AUDIT_CHAINS } from "../lib/guard/audit/chain_records.ts";
import { AUDIT_HEAD, AUDIT_RECORDS } from "../lib/guard/audit/audit_chain.ts";
import { RECORDED_TRUST } from "../lib/guard/audit/record_trust.ts";
import { TAINT_CHANGES, TAINTED_FILES } from "../lib/guard/tainted_files.ts";
import { HALTS } from "../lib/guard/halts.ts";
import { TRUSTED_DOCUMENTS } from "../lib/guard/trusted_documents.ts";
import { MCP_CREDENTIALS } from "../lib/extensions/mcp/oauth/mcp_credential.ts";
import { BROWSER_LOGINS, COOKIE_JARS } from "../lib/memory/browser_records.ts";
import { MAILBOXES } from "../lib/memory/mailbox.ts";
import { MEMORY } from "../lib/memory/memory.ts";
import { COMMAND_FOLDERS } from "../lib/memory/command_folders.ts";
import { PLANS } from "../lib/memory/plans.ts";
import { CONVERSATION_UPLOADS, parseUploadPart, UPLOAD_CHANGES, UPLOADS } from "../lib/memory/uploads.ts";
import { PROVIDERS } from "../lib/providers/discovery/provider_memory.ts";
import { CONVERSATIONS, parseConversationEntry } from "../lib/runs/conversations/conversation_records.ts";
import { BUDGET_DAYS } from "../lib/runs/supervisor/day_budget.ts";
import { OPEN_RUNS, parseJournalRecord, RUN_INPUTS, RUN_RESPONSES, RUNS } from "../lib/runs/journal/run_records.ts";
import { ACCEPTED_MCP_TOOLS } from "../lib/extensions/mcp/accepted_tools.ts";
import { PLUGIN_KEYS } from "../lib/extensions/plugins/plugin_registry.ts";
import { MCP_SERVERS } from "../lib/extensions/mcp/server_record.ts";
import { MCP_SWITCHES } from "../lib/extensions/mcp/server_switches.ts";
import { NODE_LINKS } from "../lib/extensions/nodes/shared_nodes.ts";
import { PLUGINS } from "../lib/extensions/plugins/plugin_record.ts";
import { SKILLS } from "../lib/extensions/skills/skill_record.ts";
import {
  CLUSTER_DRAINS,
  CLUSTER_DUTIES,
  CONVERSATION_HOLDS,
  FILE_LOCKS,
  GATEWAY_FENCES,
  GATEWAY_LEASES,
  parseWorkMark,
  RUN_CLAIMS,
  RUN_SIGNALS,
  WORKSPACE_MEMBERS,
  WORKSPACES,
} from "../lib/cluster/cluster_records.ts";
import { SUB_AGENT_TASKS, SUB_AGENTS } from "../lib/runs/sub_agents/sub_agent_records.ts";
import { PARKED_CALLS } from "../lib/runs/conversations/parked_records.ts";
import { DOCUMENTS } from "../lib/storage/documents.ts";
import { STORAGE_KEYS } from "../lib/storage/record_keys.ts";
import { Collection, type ParseRecord, scanAll } from "../lib/storage/read_records.ts";
import type { Store } from "../lib/storage/store.ts";
import { parseMarker, PROCESSES } from "../lib/system/process/leftover_processes.ts";
import { IDEMPOTENT_REPLIES } from "./middleware/reply_store.ts";
import { WEBHOOK_MESSAGES, WEBHOOK_SIGNATURES } from "../lib/automation/channels/webhooks.ts";

const DECLARED: readonly Collection<unknown>[] = [
  ...[PAIRING_CODES, PAIRING_GUARD, RATE_WINDOWS, TOKEN_CHANGES, TOKENS, WS_TICKETS],
  ...[DELIVERIES, DONE_SCHEDULES, FIRINGS, SCHEDULE_CHANGES, SCHEDULES, SOP_EXECUTIONS, SOP_PLANS, SOP_RESULTS],
  ...[ACCEPTED_MCP_TOOLS, MCP_CREDENTIALS, MCP_SERVERS, MCP_SWITCHES, NODE_LINKS, PLUGIN_KEYS, PLUGINS, SKILLS],
  ...[CLUSTER_DRAINS, CLUSTER_DUTIES, CONVERSATION_HOLDS, FILE_LOCKS, GATEWAY_FENCES, GATEWAY_LEASES],
  ...[RUN_CLAIMS, RUN_SIGNALS, WORKSPACE_MEMBERS, WORKSPACES],
  ...[
    BUDGET_DAYS,
    CONVERSATIONS,
    OPEN_RUNS,
    PARKED_CALLS,
    RUN_INPUTS,
    RUN_RESPONSES,
    RUNS,
    SUB_AGENT_TASKS,
    SUB_AGENTS,
  ],
  ...[BROWSER_LOGINS, COMMAND_FOLDERS, COOKIE_JARS, DOCUMENTS, MAILBOXES, MEMORY, PLANS, PROVIDERS, STORAGE_KEYS],
  ...[ANSWER_LINKS, APPROVAL_RULES, APPROVALS, AUDIT_CHAINS, AUDIT_HEAD, AUDIT_RECORDS, OPEN_APPROVALS, RECORDED_TRUST],
  ...[HALTS, TAINT_CHANGES, TAINTED_FILES, TRUSTED_DOCUMENTS],
  ...[CONVERSATION_UPLOADS, UPLOAD_CHANGES, UPLOADS],
  ...[IDEMPOTENT_REPLIES, WEBHOOK_MESSAGES, WEBHOOK_SIGNATURES],
  // Marks of open work: their whole form is that of the cluster, which a gateway alone does not load
  ...[OPEN_DELIVERIES, OPEN_SOPS].map(({ name, options }) => new Collection(name, parseWorkMark, options)),
  // Processes stand on the floor of records, and do not import them
  new Collection(PROCESSES, parseMarker, { replaced: "never changed" }),
];

/** Declarations of every collection that Postern writes, by name. */
export const COLLECTIONS: Readonly<Record<string, Collection<unknown>>> = Object.fromEntries(
  DECLARED.map((each) => [each.name, each]),
);

/** Parsers of the records of every kind of stream, by the part of the stream's name before the slash. */
export const STREAMS: Readonly<Record<string, ParseRecord<unknown>>> = {
  conversation: parseConversationEntry,
  run: parseJournalRecord,
  upload: parseUploadPart,
};

/** Milliseconds that one look at all records takes at most. */
const LOOK_MS = 3_000;

/**
 * Parses every record of every collection of an open store, for 3 s at most. Those that cannot be read are set aside, as by whoever reads
 * them.
 * @returns false when the time was over before the last record
 */
export async function lookAtRecords(
  { store, clock, signal }: { readonly store: Store; readonly clock: Clock; readonly signal: AbortSignal },
): Promise<boolean> {
  const end = clock.monotonic() + LOOK_MS;
  const yielder = new Yielder({ clock, signal });
  for (const collection of Object.values(COLLECTIONS)) {
    for await (const stored of scanAll(store, collection.name)) {
      collection.parsed(store, stored);
      if (!yielder.isDue()) continue;
      await yielder.yield();
      if (clock.monotonic() > end) return false;
    }
  }
  return true;
}

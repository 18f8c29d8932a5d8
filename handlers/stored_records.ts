import type { Clock } from "../lib/base/clock.ts";
import { createYielder } from "../lib/base/tick.ts";
import { PAIRING_CODES, PAIRING_GUARD, parsePairingCode, parsePairingGuard } from "../lib/access/pairing.ts";
import { parseTicket, WS_TICKETS } from "../lib/access/shared_tickets.ts";
import { parseTokenChange, TOKEN_CHANGES } from "../lib/access/token_sharing.ts";
import { TOKENS } from "../lib/access/tokens.ts";
import { parseTokenBody } from "../lib/access/stored_token.ts";
import { DELIVERIES, OPEN_DELIVERIES, parseDelivery } from "../lib/automation/channels/delivery_record.ts";
import {
  DONE_SCHEDULES,
  FIRINGS,
  parseFiring,
  parseScheduleRecord,
  SCHEDULE_CHANGES,
  SCHEDULES,
} from "../lib/automation/cron/schedule_record.ts";
import {
  OPEN_SOPS,
  parseExecution,
  parseExecutionPlan,
  parseResult,
  SOP_EXECUTIONS,
  SOP_PLANS,
  SOP_RESULTS,
} from "../lib/automation/sops/execution_record.ts";
import { APPROVAL_RULES, APPROVALS, OPEN_APPROVALS, parseApproval, parseRule } from "../lib/guard/approval_records.ts";
import { parseRateWindows, RATE_WINDOWS } from "../lib/access/rate_records.ts";
import { AUDIT_CHAINS, parseChainHead } from "../lib/guard/audit/chain_records.ts";
import { AUDIT_HEAD, AUDIT_RECORDS, readAuditHead, readAuditRecord } from "../lib/guard/audit/audit_chain.ts";
import { parseRecordedTrust, RECORDED_TRUST } from "../lib/guard/audit/record_trust.ts";
import { parseTaintedFile, TAINT_CHANGES, TAINTED_FILES } from "../lib/guard/tainted_files.ts";
import { parseTrustedDocument, TRUSTED_DOCUMENTS } from "../lib/guard/trusted_documents.ts";
import { MCP_CREDENTIALS, parseMcpCredential } from "../lib/base/records/mcp_credential.ts";
import { BROWSER_LOGINS, parseBrowserLogin } from "../lib/base/records/browser_login.ts";
import { COOKIE_JARS, parseCookieJar } from "../lib/base/records/cookie_jar.ts";
import { MAILBOXES, parseMailbox } from "../lib/memory/mailbox.ts";
import { MEMORY, parseMemoryRecord } from "../lib/memory/memory.ts";
import { COMMAND_FOLDERS, parseCommandFolder } from "../lib/memory/command_folders.ts";
import { parsePlan, PLANS } from "../lib/memory/plans.ts";
import { parseProviders, PROVIDERS } from "../lib/providers/discovery/provider_memory.ts";
import {
  CONVERSATIONS,
  parseConversation,
  parseConversationEntry,
} from "../lib/runs/conversations/conversation_records.ts";
import { BUDGET_DAYS, parseDay } from "../lib/runs/supervisor/day_budget.ts";
import {
  OPEN_RUNS,
  parseJournalRecord,
  parseOpenRun,
  parseRunInput,
  parseRunRecord,
  RUN_INPUTS,
  RUNS,
} from "../lib/runs/journal/run_records.ts";
import { ACCEPTED_MCP_TOOLS, parseAcceptedTool } from "../lib/extensions/mcp/accepted_tools.ts";
import { parsePluginKey, PLUGIN_KEYS } from "../lib/extensions/plugins/plugin_registry.ts";
import { MCP_SERVERS, parseMcpServer } from "../lib/extensions/mcp/server_record.ts";
import { MCP_SWITCHES, parseServerSwitch } from "../lib/extensions/mcp/server_switches.ts";
import { NODE_LINKS, parseNodeLink } from "../lib/extensions/nodes/shared_nodes.ts";
import { parsePluginRecord, PLUGINS } from "../lib/extensions/plugins/plugin_record.ts";
import { parseSkillRecord, SKILLS } from "../lib/extensions/skills/skill_record.ts";
import {
  CLUSTER_DRAINS,
  CLUSTER_DUTIES,
  CONVERSATION_HOLDS,
  FILE_LOCKS,
  GATEWAY_FENCES,
  GATEWAY_LEASES,
  parseClaim,
  parseDrains,
  parseDuty,
  parseHold,
  parseLease,
  parseLock,
  parseMember,
  parseWorkMark,
  parseWorkspace,
  RUN_CLAIMS,
  RUN_SIGNALS,
  WORKSPACE_MEMBERS,
  WORKSPACES,
} from "../lib/cluster/cluster_records.ts";
import { parseSubAgent, parseTask, SUB_AGENT_TASKS, SUB_AGENTS } from "../lib/runs/sub_agents/sub_agent_records.ts";
import { PARKED_CALLS, parseParkedRecord } from "../lib/runs/conversations/parked_records.ts";
import { DOCUMENTS, parseDocument } from "../lib/storage/documents.ts";
import { parseStorageKey, STORAGE_KEYS } from "../lib/storage/record_keys.ts";
import { parseMark, type ParseRecord, readable, scanAll } from "../lib/storage/read_records.ts";
import type { Store } from "../lib/storage/store.ts";
import { parseMarker, PROCESSES } from "../lib/system/process/leftover_processes.ts";
import { IDEMPOTENT_REPLIES, parseReply } from "./middleware/reply_store.ts";
import { parseAccepted, parseDated } from "./wire/accept_once.ts";
import { WEBHOOK_MESSAGES, WEBHOOK_SIGNATURES } from "./routes/webhook.ts";

/** Parsers of the records of every collection that Postern writes, by collection. */
export const COLLECTIONS: Readonly<Record<string, ParseRecord<unknown>>> = {
  [ACCEPTED_MCP_TOOLS]: parseAcceptedTool,
  [APPROVALS]: parseApproval,
  [APPROVAL_RULES]: parseRule,
  [AUDIT_CHAINS]: parseChainHead,
  [AUDIT_HEAD]: readAuditHead,
  [AUDIT_RECORDS]: readAuditRecord,
  [BUDGET_DAYS]: parseDay,
  [CONVERSATIONS]: parseConversation,
  [BROWSER_LOGINS]: parseBrowserLogin,
  [CONVERSATION_HOLDS]: parseHold,
  [COOKIE_JARS]: parseCookieJar,
  [DELIVERIES]: parseDelivery,
  [DOCUMENTS]: parseDocument,
  [DONE_SCHEDULES]: parseScheduleRecord,
  [FILE_LOCKS]: parseLock,
  [FIRINGS]: parseFiring,
  [CLUSTER_DUTIES]: parseDuty,
  [CLUSTER_DRAINS]: parseDrains,
  [GATEWAY_FENCES]: parseMark,
  [GATEWAY_LEASES]: parseLease,
  [IDEMPOTENT_REPLIES]: parseReply,
  [MAILBOXES]: parseMailbox,
  [MCP_CREDENTIALS]: parseMcpCredential,
  [MCP_SERVERS]: parseMcpServer,
  [MCP_SWITCHES]: parseServerSwitch,
  [MEMORY]: parseMemoryRecord,
  [NODE_LINKS]: parseNodeLink,
  [OPEN_APPROVALS]: parseMark,
  [OPEN_DELIVERIES]: parseWorkMark,
  [OPEN_RUNS]: parseOpenRun,
  [OPEN_SOPS]: parseWorkMark,
  [PAIRING_CODES]: parsePairingCode,
  [PAIRING_GUARD]: parsePairingGuard,
  [COMMAND_FOLDERS]: parseCommandFolder,
  [PLANS]: parsePlan,
  [PLUGINS]: parsePluginRecord,
  [PLUGIN_KEYS]: parsePluginKey,
  [PROCESSES]: parseMarker,
  [PROVIDERS]: parseProviders,
  [RATE_WINDOWS]: parseRateWindows,
  [RECORDED_TRUST]: parseRecordedTrust,
  [RUNS]: parseRunRecord,
  [RUN_CLAIMS]: parseClaim,
  [RUN_INPUTS]: parseRunInput,
  [RUN_SIGNALS]: parseMark,
  [SCHEDULE_CHANGES]: parseMark,
  [SCHEDULES]: parseScheduleRecord,
  [STORAGE_KEYS]: parseStorageKey,
  [TAINT_CHANGES]: parseMark,
  [TOKEN_CHANGES]: parseTokenChange,
  [WS_TICKETS]: parseTicket,
  [SKILLS]: parseSkillRecord,
  [SOP_EXECUTIONS]: parseExecution,
  [SOP_PLANS]: parseExecutionPlan,
  [SOP_RESULTS]: parseResult,
  [SUB_AGENTS]: parseSubAgent,
  [SUB_AGENT_TASKS]: parseTask,
  [PARKED_CALLS]: parseParkedRecord,
  [TAINTED_FILES]: parseTaintedFile,
  [TOKENS]: parseTokenBody,
  [TRUSTED_DOCUMENTS]: parseTrustedDocument,
  [WEBHOOK_MESSAGES]: parseAccepted,
  [WEBHOOK_SIGNATURES]: parseDated,
  [WORKSPACES]: parseWorkspace,
  [WORKSPACE_MEMBERS]: parseMember,
};

/** Parsers of the records of every kind of stream, by the part of the stream's name before the slash. */
export const STREAMS: Readonly<Record<string, ParseRecord<unknown>>> = {
  conversation: parseConversationEntry,
  run: parseJournalRecord,
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
  const yielder = createYielder({ clock, signal });
  for (const [collection, parse] of Object.entries(COLLECTIONS)) {
    for await (const stored of scanAll(store, collection)) {
      readable(store, collection, [stored], parse);
      if (!yielder.isDue()) continue;
      await yielder.yield();
      if (clock.monotonic() > end) return false;
    }
  }
  return true;
}

import type { AccessChange } from "../../access/identity.ts";
import type { TokenRecord } from "../../base/records/token.ts";
import type { ReviewOutcome } from "../../base/records/agent_event.ts";
import { type Actor, type Caller, type Scope, storedActor } from "../../base/records/caller.ts";
import type { LoginEvent } from "../../memory/browser_logins.ts";
import type { Access, Decision, Effects } from "../policy.ts";

/** The actor of an event: the door it came by and the id of its token, never the token. */
export interface AuditActor {
  readonly via: Caller["via"];
  readonly token_id: string | null;
}

/** The request, run, call and conversation that an event belongs to. Null or absent where there is none. */
export interface AuditPlace {
  readonly request_id?: string | null | undefined;
  readonly run_id?: string | null | undefined;
  readonly call_id?: string | null | undefined;
  readonly conversation_id?: string | null | undefined;
}

/** A call's input is kept as its digest and by what it touches, never as a whole. */
interface AuditedCall extends AuditPlace {
  readonly tool: string;
  /** SHA-256 of the input's canonical JSON, hexadecimal; null for an input that could not be prepared */
  readonly input_digest: string | null;
  readonly by: AuditActor;
}

/** The decision of the policy, or the answer of a person or of the program in its place. Written before the call runs; the last decision of a `call_id` counts. */
export interface DecisionEvent extends AuditedCall {
  readonly type: "decision";
  readonly access: Access | null;
  readonly effects: Effects;
  readonly decision: Decision["kind"];
  /**
   * The policy's rule; `approval` for the answer of a person or of the program; `nobody_could_answer` where nobody was asked; `approval_expired`,
   * `approval_waits`, `approval_failed`; `remembered:<id>`, `screen`, `binding`, `unknown_tool`, `bad_input`, `audit`;
   * `owner` where the call found a thing of another token, after it was let through
   */
  readonly rule: string;
  /** Why not; empty for an allow */
  readonly reason: string;
  readonly approval_id?: string | undefined;
}

/** How a call that ran ended; a decision to allow without one was interrupted. */
export interface CallEvent extends AuditedCall {
  readonly type: "call";
  /** As `postern_tool_calls_total` counts it */
  readonly outcome: string;
  readonly duration_ms: number;
  /** Bytes of UTF-8 of the output given to the caller; null where there is none */
  readonly output_bytes: number | null;
  /** SHA-256 of that output, hexadecimal */
  readonly output_digest: string | null;
  /** SHA-256 of each picture given to the model beside the output, hexadecimal. Absent: none */
  readonly picture_digests?: readonly string[];
}

/** A new state of an approval. */
export interface ApprovalEvent extends AuditPlace {
  readonly type: "approval";
  /** `used`: it has let its one call through */
  readonly action: "asked" | "approved" | "denied" | "expired" | "cancelled" | "used";
  readonly approval_id: string;
  readonly tool: string;
  /** Digest of everything that the approval is bound to */
  readonly digest: string;
  /** null: nobody, as for an expiry */
  readonly by: AuditActor | null;
  readonly remember: string | null;
  /** The rule that the answer stored */
  readonly rule_id: string | null;
  readonly note: string | null;
  /** Absent for an approval of a call */
  readonly kind?: "elicitation" | undefined;
  /** MCP server that asks, for an elicitation */
  readonly server?: string | undefined;
  /** Names of the fields that a person filled in; what was filled in is recorded nowhere. Absent: the answer has no content */
  readonly fields?: readonly string[] | undefined;
}

/** Something that came by an answer link was refused. */
export interface AnswerLinkEvent {
  readonly type: "answer_link";
  readonly action: "refused";
  /** Id of the link; null for one that is not known */
  readonly link: string | null;
  readonly approval_id: string | null;
  readonly reason: string;
  /** Address of the peer; null where the server beneath does not say */
  readonly address: string | null;
}

/** A running call, or a prompt, asked the client of MCP that made the request. */
export interface QuestionEvent extends AuditPlace {
  readonly type: "question";
  /**
   * `asked` is written before the client is asked. `answered`: its model or its list of folders; `failed`: it gave no answer that fits;
   * `unanswered`: it gave none in time, or the question was taken back
   */
  readonly action: "asked" | "accepted" | "declined" | "cancelled" | "answered" | "failed" | "unanswered";
  readonly kind: "form" | "url" | "sample" | "roots";
  /** Tool, or `prompt <name>` */
  readonly tool: string;
  /** MCP server that asks. Absent: the program */
  readonly server?: string | undefined;
  /** Words to the client's user; absent where the client's model or its folders are asked for */
  readonly message?: string | undefined;
  /** SHA-256 of the question's canonical JSON, hexadecimal */
  readonly digest: string;
  /** Names of the fields that were filled in; what was filled in is recorded nowhere. Absent: the answer has no content */
  readonly fields?: readonly string[] | undefined;
  readonly by: AuditActor;
}

/** A remembered answer was stored or revoked. */
export interface RuleEvent {
  readonly type: "rule";
  readonly action: "stored" | "revoked";
  readonly rule_id: string;
  readonly tool: string;
  /** null for a rule that stands for more than one input */
  readonly input_digest: string | null;
  readonly decision: "approve" | "deny";
  /** Sentence that the rule says. Absent from older records */
  readonly text?: string | undefined;
  readonly by: AuditActor;
}

/** Rights of a token and when it ends, as its record says. */
interface AuditedToken {
  readonly label: string;
  readonly scopes: readonly Scope[];
  readonly expires_at: string | null;
  readonly idle_ttl_seconds: number | null;
}

/** A token was issued. */
export interface TokenIssuedEvent extends AuditedToken {
  readonly type: "token";
  readonly action: "issued";
  readonly token_id: string;
  readonly by: AuditActor | null;
}

/** Tokens were revoked. */
export interface TokensRevokedEvent {
  readonly type: "token";
  readonly action: "revoked";
  readonly token_ids: readonly string[];
  readonly count: number;
  readonly by: AuditActor | null;
}

/** A client has paired: the code was exchanged for a token. */
export interface PairedEvent extends AuditedToken {
  readonly type: "pairing";
  readonly action: "paired";
  readonly token_id: string;
  /** Address of the peer; null when the server does not say */
  readonly address: string | null;
}

/** A pairing code was made, or too many wrong ones have locked pairing. */
export interface PairingEvent {
  readonly type: "pairing";
  readonly action: "code_made" | "locked";
  /** Address of the peer whose wrong code locked pairing; null otherwise */
  readonly address: string | null;
  /** null: the gateway itself, at its start */
  readonly by: AuditActor | null;
}

/** The running gateway took a changed configuration over, or writes a key for a person who turns a tool on. */
export interface ConfigEvent {
  readonly type: "config";
  readonly action: "taken_over" | "set";
  /** Names of the keys that changed; none where only the files that the configuration names were read again */
  readonly keys: readonly string[];
  /** Keys whose change waits for the next start */
  readonly needs_restart: readonly string[];
  /** Person of a `set`. Absent: the file was changed otherwise */
  readonly by?: AuditActor;
}

/**
 * A person gave trust to a configuration file of a workspace, a model server of another user, a file made from outside content, a skill or
 * the instructions of a workspace, or took it back.
 */
export interface TrustEvent {
  readonly type: "trust";
  /** Absent: given */
  readonly action?: "given" | "withdrawn";
  /** `unknown`: trust was taken back whose record is damaged */
  readonly subject: "config_file" | "model_server" | "tainted_file" | "skill" | "workspace_instructions" | "unknown";
  /** Path of the file or folder, or origin of the server */
  readonly name: string;
  /** SHA-256 of the content as it was accepted, hexadecimal; null for a model server, a tainted file and a damaged record of trust */
  readonly sha256: string | null;
  /** User who ran the server when it was trusted; null for a file, and where owners cannot be seen */
  readonly uid: number | null;
  /** ISO 8601. `postern trust` works without the gateway, which records the trust when it sees it */
  readonly given_at: string;
  readonly by: AuditActor | null;
}

/** A person decided about a run that a crash interrupted in the middle of an effect. */
export interface ReviewEvent extends AuditPlace {
  readonly type: "review";
  readonly action: "resumed" | "closed";
  /** Outcome that the reviewer gives for calls whose end nobody saw. Null for a close */
  readonly outcome: ReviewOutcome | null;
  /** Tools of these calls */
  readonly tools: readonly string[];
  readonly by: AuditActor;
  readonly note: string | null;
}

/** Refused credentials of one address within one minute. */
export interface AccessFailuresEvent {
  readonly type: "access_failures";
  /** Peer address; null when the server does not say */
  readonly address: string | null;
  /** How often, by error code */
  readonly codes: Readonly<Record<string, number>>;
  /** ISO 8601: begin of the minute */
  readonly since: string;
}

/** A link between a gateway and a node began or ended; both sides write one. */
export interface NodeEvent {
  readonly type: "node";
  readonly action: "connected" | "disconnected";
  readonly node_id: string;
  /** Address of the peer, or URL of the gateway. Null when the server does not say */
  readonly address: string | null;
  /** Why it ended; null for a beginning */
  readonly reason: string | null;
}

/** A plugin was installed, enabled, disabled or removed, or turned itself off. */
export interface PluginEvent {
  readonly type: "plugin";
  /**
   * `updated`: another version took the place of the installed one; `turned_off`: its content changed, or its new version asks for more;
   * `served`, `serving_ended`: `postern plugin dev` serves it, or has ended; `key_trusted`: the key of a publisher was accepted in place of the pinned one
   */
  readonly action:
    | "installed"
    | "updated"
    | "enabled"
    | "disabled"
    | "removed"
    | "turned_off"
    | "served"
    | "serving_ended"
    | "key_trusted";
  readonly plugin_id: string;
  readonly version: string;
  /** Digest over the whole content, hexadecimal */
  readonly digest: string;
  /** Folder that it was found in; null for a package */
  readonly folder: string | null;
  /** Rights that count from now on, each as a line; empty while it is off */
  readonly granted: readonly string[];
  readonly by: AuditActor | null;
}

/** A skill was installed, updated or removed. */
export interface SkillEvent {
  readonly type: "skill";
  readonly action: "installed" | "updated" | "removed";
  readonly name: string;
  /** Digest over all its files, hexadecimal */
  readonly digest: string;
  /** Kind of the source that it was installed from */
  readonly source: "folder" | "archive" | "git";
  /** Path or URL of the source; empty for a skill that nobody installed through Postern */
  readonly from: string;
  /** Commit of a git repository; null for others */
  readonly commit: string | null;
  readonly by: AuditActor;
}

/** Definitions of the tools of an MCP server count as accepted from now on. */
export interface McpToolsEvent {
  readonly type: "mcp_tools";
  /** `first_seen`: the first tools of a server that the operator allows; `accepted`: a person has looked at them */
  readonly action: "first_seen" | "accepted";
  readonly server: string;
  /** Names that the server gives them */
  readonly tools: readonly string[];
  /** SHA-256 over the digests of their definitions, hexadecimal */
  readonly digest: string;
  /** null for `first_seen` */
  readonly by: AuditActor | null;
}

/** A login of the agent's browser was stored or removed, or a run got it. Never holds a value of it. */
export interface BrowserLoginEvent extends AuditPlace {
  readonly type: "browser_login";
  readonly action: "stored" | "used" | "removed";
  /** Host that the person signed in at */
  readonly site: string;
  /** Hosts that the login counts for; empty for a removed one that could not be read */
  readonly hosts: readonly string[];
  readonly by: AuditActor;
}

/**
 * An MCP server was entered into the configuration or taken out of it by a command, or a person turned it on or off, restarted it, or
 * signed in at it or out.
 */
export interface McpServerEvent {
  readonly type: "mcp_server";
  readonly action:
    | "added"
    | "imported"
    | "removed"
    | "enabled"
    | "disabled"
    | "restarted"
    | "forgotten"
    | "signed_in"
    | "signed_out";
  /** Name in `[mcp.servers.<name>]` */
  readonly server: string;
  /** Package with its exact version, such as `npm:@scope/name@1.2.3`, or address. Null for another program */
  readonly source: string | null;
  /** Digest of the package, as its registry names it. Null where there is none */
  readonly integrity: string | null;
  readonly by: AuditActor | null;
}

/** A client of MCP asked for a prompt or a resource of the program that mounts the gateway. Its content is kept as a digest. */
export interface OfferEvent extends AuditPlace {
  readonly type: "offer";
  readonly kind: "prompt" | "resource";
  /** Name of the prompt; address of the resource, or of its template, as the program gave it */
  readonly name: string;
  /** SHA-256 of the canonical JSON of the arguments, or of the address that was read, hexadecimal */
  readonly input_digest: string;
  readonly outcome: "ok" | "not_found" | "error" | "timeout" | "cancelled";
  readonly duration_ms: number;
  /** Bytes of the JSON given to the client. Null where there is none */
  readonly output_bytes: number | null;
  /** SHA-256 of that JSON, hexadecimal */
  readonly output_digest: string | null;
  readonly by: AuditActor;
}

/** A person has halted work, or lets it go on. */
export interface HaltEvent {
  readonly type: "halt";
  readonly action: "halted" | "resumed";
  /** Ids of the halts: `all`, `network`, `writes`, `tool:<name>`, `run:<id>` */
  readonly halts: readonly string[];
  readonly by: AuditActor;
}

/** Somebody has drained a gateway of the cluster. */
export interface DrainEvent {
  readonly type: "cluster";
  /** `drain_asked`: at the gateway that was asked, with the wish itself; `drain_begun`: at the drained gateway, however it was asked for */
  readonly action: "drain_asked" | "drain_begun";
  /** Gateway that is drained */
  readonly gateway: string;
  /** ISO 8601, by the database's clock */
  readonly requested_at: string;
  /** Tells whether the last gateway that takes work may be drained too. Absent for `drain_begun` */
  readonly force?: boolean | undefined;
  readonly by: { readonly via: string; readonly token_id: string | null };
}

/** Somebody has said that a workspace of the cluster may be another folder. */
export interface FolderForgottenEvent {
  readonly type: "cluster";
  readonly action: "folder_forgotten";
  /** `[cluster] workspace_id` */
  readonly workspace: string;
  /** ISO 8601, by the database's clock */
  readonly requested_at: string;
  readonly by: { readonly via: string; readonly token_id: string | null };
}

/** Records were re-encrypted with another key: an event for each call that changed some, and for the last one. */
export interface RekeyEvent {
  readonly type: "storage";
  readonly action: "rekeyed";
  /** Records that the call changed, and those that wait for the next call */
  readonly rewritten: number;
  readonly left: number;
  /** Records that no key opens; at most 100 are counted */
  readonly unreadable: number;
  /** Tells whether every record that can be opened has the new key */
  readonly complete: boolean;
  readonly by: AuditActor;
}

/** Records up to `through` were older than the retention and are gone; their last hash is kept so that the chain still begins somewhere. */
export interface RetentionEvent {
  readonly type: "retention";
  readonly through: number;
  readonly through_hash: string;
}

/** A place in a chain of audit records: everything up to it is vouched for by its hash. */
export interface ChainPoint {
  /** Id of the chain, see gateway_chain.ts */
  readonly chain: string;
  readonly seq: number;
  readonly hash: string;
}

/** Begin, end or upkeep of a chain of a cluster, in which each gateway writes a chain of its own. */
export type ChainEvent =
  /** The first record of a chain */
  | { readonly type: "audit_chain"; readonly action: "opened"; readonly gateway: string; readonly fence: number }
  /** The last record of a chain, by an orderly stop */
  | { readonly type: "audit_chain"; readonly action: "closed" }
  /** Another chain ends with `last`, since its gateway is gone */
  | { readonly type: "audit_chain"; readonly action: "left_off"; readonly last: ChainPoint }
  /** Event for the heads of other chains alone, where nothing else was recorded for a minute */
  | { readonly type: "audit_chain"; readonly action: "witnessed" }
  /** Records up to these places were older than the retention and are gone */
  | { readonly type: "audit_chain"; readonly action: "forgot"; readonly through: readonly ChainPoint[] };

/** Any event that the audit records. */
export type AuditEvent =
  | DecisionEvent
  | CallEvent
  | ApprovalEvent
  | AnswerLinkEvent
  | QuestionEvent
  | RuleEvent
  | TokenIssuedEvent
  | TokensRevokedEvent
  | PairedEvent
  | PairingEvent
  | ConfigEvent
  | TrustEvent
  | ReviewEvent
  | AccessFailuresEvent
  | NodeEvent
  | PluginEvent
  | SkillEvent
  | McpToolsEvent
  | BrowserLoginEvent
  | McpServerEvent
  | OfferEvent
  | DrainEvent
  | HaltEvent
  | FolderForgottenEvent
  | RekeyEvent
  | RetentionEvent
  | ChainEvent;

/** Types of events, for a filter. */
export const AUDIT_TYPES = [
  "decision",
  "call",
  "approval",
  "answer_link",
  "question",
  "rule",
  "token",
  "pairing",
  "config",
  "trust",
  "review",
  "access_failures",
  "node",
  "plugin",
  "skill",
  "mcp_tools",
  "browser_login",
  "mcp_server",
  "offer",
  "cluster",
  "halt",
  "storage",
  "retention",
  "audit_chain",
] as const satisfies readonly AuditEvent["type"][];

/** Returns what the audit is told of a change of who may call. */
export function accessEvent(change: AccessChange): AuditEvent {
  switch (change.kind) {
    case "issued":
      return { type: "token", action: "issued", ...tokenFields(change.record), by: actorOf(change.by) };
    case "revoked": {
      const { tokenIds } = change;
      return { type: "token", action: "revoked", token_ids: tokenIds, count: tokenIds.length, by: actorOf(change.by) };
    }
    case "paired":
      return { type: "pairing", action: "paired", ...tokenFields(change.record), address: change.address };
    case "code_made":
      return { type: "pairing", action: "code_made", address: null, by: actorOf(change.by) };
    case "locked":
      return { type: "pairing", action: "locked", address: change.address, by: null };
  }
}

/** Returns what the audit is told of a login of the agent's browser. */
export function loginEvent(event: LoginEvent): BrowserLoginEvent {
  const { action, site, hosts } = event;
  if (action !== "used") {
    return { type: "browser_login", action, site, hosts, by: storedActor(event.by) };
  }
  const { runId, callId, requestId = null, conversationId, caller } = event.use;
  const place = { request_id: requestId, run_id: runId, call_id: callId, conversation_id: conversationId };
  return { type: "browser_login", action, site, hosts, ...place, by: storedActor(caller) };
}

function tokenFields({ id, label, scopes, expires_at, idle_ttl_seconds, tools }: TokenRecord) {
  return { token_id: id, label, scopes, expires_at, idle_ttl_seconds, ...(tools === null ? {} : { tools }) };
}

function actorOf(by: Actor | null): AuditActor | null {
  return by === null ? null : storedActor(by);
}

const MAX_CHARACTERS = 512;
const MAX_ITEMS = 32;

/** A copy of an event without known secrets, of bounded size: long texts and lists are cut with a mark. */
export function plainEvent<E extends AuditEvent>(event: E, redact: (text: string) => string): E {
  // Ids and hashes of the audit's own, which a verification reads whole
  if (event.type === "audit_chain") return event;
  // The copy has the shape of what came in: texts stay texts, lists stay lists
  return plain(event, redact) as E;
}

function plain(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return cut(redact(value));
  if (Array.isArray(value)) {
    const kept = value.slice(0, MAX_ITEMS).map((item) => plain(item, redact));
    return value.length > MAX_ITEMS ? [...kept, `... ${value.length - MAX_ITEMS} more`] : kept;
  }
  if (value === null || typeof value !== "object") return value;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) if (item !== undefined) copy[key] = plain(item, redact);
  return copy;
}

function cut(text: string): string {
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}...` : text;
}

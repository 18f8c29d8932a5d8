import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import type { Identity, IssuedToken, TokenTerms } from "../../lib/access/identity.ts";
import type { TokenRecord } from "../../lib/base/records/token.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { type Scope, SCOPES } from "../../lib/base/records/caller.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { createLogger, createRecentLog, type LogRecord } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { DeliveryService } from "../../lib/automation/channels/delivery_service.ts";
import { CronService } from "../../lib/automation/cron/cron_service.ts";
import type { Config } from "../../lib/config/config.ts";
import type { GatewayState } from "../../lib/base/records/gateway_status.ts";
import type { Services } from "../../lib/services.ts";
import { AnswerLinks } from "../../lib/guard/answer_links.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { Halts } from "../../lib/guard/halts.ts";
import { lazily } from "../../lib/base/lazily.ts";
import { ClientCalls } from "../../lib/runs/client_calls.ts";
import { createStoredConversations } from "../../lib/runs/conversations/stored_conversations.ts";
import { Memory } from "../../lib/memory/memory.ts";
import { Uploads } from "../../lib/memory/uploads.ts";
import { createStoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import { StoredTaintedFiles } from "../../lib/guard/tainted_files.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createAlone } from "../../lib/coordination.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { createFakeAudit, type FakeAudit } from "./fake_audit.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createSeededRandom } from "./seeded_random.ts";

export interface FakeServicesOptions {
  /** Over the defaults of `[gateway]` */
  readonly gateway?: Partial<Config["gateway"]>;
  readonly agent?: Services["agent"];
  readonly tools?: ToolExecutor;
  readonly nodes?: Services["nodes"];
  /** Default: no run has used a browser */
  readonly browserOf?: Services["browserOf"];
  /** Default: every use of plugins fails, and so for skills */
  readonly plugins?: Services["plugins"];
  /** Default: those of a gateway alone, which has none */
  readonly links?: Services["cluster"]["links"] | undefined;
  readonly skills?: Services["skills"];
}

/** Services in memory, with a token of each scope (`token_chat`, `token_admin` ...) and the pairing code `GOOD-CODE`. */
export interface FakeServices extends Services {
  readonly clock: FakeClock;
  readonly audit: FakeAudit;
  readonly logged: LogRecord[];
  configure(gateway: Partial<Config["gateway"]>): void;
  enter(state: GatewayState): void;
}

const GATEWAY = {
  host: "127.0.0.1",
  port: 42617,
  require_pairing: true,
  allow_public_bind: false,
  public_url: "",
  answer_links: false,
  allowed_hosts: ["gateway.test"],
  cors_origins: [] as string[],
  rate_limit_max: 600,
  rate_limit_window_secs: 60,
  rate_limit_per_identity: 0,
  max_request_bytes: 10_485_760,
  max_file_bytes: 10_000_000,
  max_files_bytes: 1_073_741_824,
  pairing_code_ttl_secs: 3600,
  shutdown_grace_secs: 30,
  request_timeout_secs: 600,
  websocket: { heartbeat_secs: 30, pong_timeout_secs: 60, idle_timeout_secs: 300, max_message_bytes: 2_097_152 },
  node_control: { enabled: false, auth_token: "", auth_token_env: "", allowed_node_ids: [] },
};

export function createFakeServices(options: FakeServicesOptions = {}): FakeServices {
  const clock = createFakeClock();
  const random = createSeededRandom();
  const logged: LogRecord[] = [];
  const recentLog = createRecentLog();
  const log = createLogger({
    level: "debug",
    now: clock.now,
    sink: (record) => {
      recentLog.add(record);
      logged.push(record);
    },
    redact: (text) => text,
  });
  const metrics = createMetrics();
  const store = createMemoryStore();
  const audit = createFakeAudit(store);
  const alone = createAlone({ clock, store });
  const tools = options.tools ?? createFakeTools();
  let config = withGateway({ ...GATEWAY, ...options.gateway });
  let state: GatewayState = "ok";
  const halts = new Halts({ store, clock, log, audit: audit.append, tell: () => {} });
  const approvals = new StoredApprovals({ store, clock, random, log, metrics, audit: audit.append });
  const answerLinks = new AnswerLinks({ store, clock, random, audit: audit.append, approvals, config: () => config });
  return {
    version: "0.0.0-test",
    programName: "postern",
    clock,
    random,
    log,
    logged,
    metrics,
    turnOnTool: (name) => Promise.resolve(tools.get(name)),
    offers: { prompts: new Map(), resources: [] },
    redactor: createRedactor(),
    sharedWindows: undefined,
    browserOf: options.browserOf ?? (() => Promise.resolve(undefined)),
    browserLogins: { list: absent, save: absent, remove: absent } as unknown as Services["browserLogins"], // none of the rest is called
    mcpServers: absent,
    plugins: options.plugins ?? absent,
    skills: options.skills ?? absent,
    instructions: absent,
    mcpSignIn: { begin: absent, complete: absent, remove: absent, provider: absent, credential: absent, state: absent },
    config: () => config,
    store,
    tokens: createFakeTokens(() => random.id("")),
    pairing: {
      isPending: () => Promise.resolve(false),
      isLongCode: () => false,
      createCode: () => Promise.resolve({ code: "ABCD-EFGH", expiresInSeconds: 3600 }),
      redeem(code, terms) {
        if (code === "GOOD-CODE") return Promise.resolve(issued("pst_paired", ["admin"], terms));
        const [status, type, name] = code === null
          ? [401, "authentication_error", "pairing_code_required"] as const
          : [403, "permission_error", "pairing_code_invalid"] as const;
        return Promise.reject(new HttpError(name, "Cannot pair", { status, type }));
      },
    },
    tickets: createFakeTickets(),
    audit,
    approvals,
    answerLinks: () => Promise.resolve(answerLinks),
    halts,
    taintedFiles: new StoredTaintedFiles({ store, clock, audit: audit.append }),
    tools,
    readWritten: absent,
    calls: lazily(() =>
      Promise.resolve(new ClientCalls({ tools, approvals, clock, random, cluster: alone, config: () => config }))
    ),
    cron: new CronService({
      store,
      clock,
      random,
      log,
      settings: () => ({ enabled: true, timezone: "Europe/Berlin", maxTasks: 100 }),
      runs: () => options.agent?.runs,
      scopesOf: () => SCOPES,
      tools: () => tools,
    }),
    webhooks: absent,
    deliveries: new DeliveryService({
      store,
      clock,
      random,
      log,
      metrics,
      runs: () => options.agent?.runs,
      fetch: () => Promise.reject(new Error("Nothing is sent")),
      targetOf: () => undefined,
      rules: () => config.url_access,
      environment: () => undefined,
      retentionDays: () => 0,
    }),
    storedRuns: createStoredRuns({ store }),
    memory: new Memory({ store, clock }),
    uploads: new Uploads({ store, kit: { clock, random }, config: () => config }),
    recentLog,
    conversations: createStoredConversations({
      store,
      runIn: (id) => options.agent?.runs.runIn(id),
    }),
    nodes: options.nodes,
    agent: options.agent,
    startedAt: clock.now(),
    workspaceRoot: "/workspace",
    containment: () => Promise.resolve({ kind: "uncontained", text: "Commands are not contained: this is a test" }),
    environment: () => undefined,
    rekey: absent,
    trustModelServer: absent,
    facts: {
      health: () => ({ status: state, version: "0.0.0-test", uptime_seconds: 0 }),
      status: () =>
        Promise.resolve({
          ...{ status: state, version: "0.0.0-test", started_at: AT, uptime_seconds: 0, workspace: "/workspace" },
          halts: [],
          provider: null,
          containment: { kind: "uncontained", text: "Commands are not contained: this is a test" },
          notify_problems: [],
          unreadable_records: [],
          config: { loaded_at: AT, needs_restart: [], last_reload: null },
        }),
    },
    isDraining: () => state === "draining",
    stateReason: () => undefined,
    onDrain: () => {},
    cluster: { ...alone, links: options.links ?? alone.links },
    configure: (gateway) => void (config = withGateway({ ...config.gateway, ...gateway })),
    enter: (next) => void (state = next),
  };
}

/** Fails: a test that uses more of the services brings its own, or a gateway. */
const absent = () => Promise.reject(new TypeError("This test has no such service"));

/** Time of the start, as status shows it. */
const AT = "2026-01-01T00:00:00.000Z";

/** Handlers read nothing but `[gateway]`, the driver of the storage, the channels and how long approvals and questions wait. */
function withGateway(gateway: Partial<Config["gateway"]>): Config {
  const waits = { runs: { approval_timeout_secs: 86_400 }, autonomy: { approval_timeout_secs: 300 } };
  const storage = { driver: "sqlite" };
  return { gateway, storage, channels: {}, ...waits } as unknown as Config;
}

function issued(token: string, scopes: readonly Scope[], terms: Partial<TokenTerms> = {}): IssuedToken {
  const record = {
    id: `id_${token}`,
    label: terms.label ?? "",
    scopes: scopes.filter((scope) => scope !== "cluster"),
    created_at: "2026-01-01T00:00:00.000Z",
    expires_at: null,
    idle_ttl_seconds: terms.idleTtlSeconds ?? null,
    plain: terms.plain ?? false,
    tools: terms.tools ?? null,
    last_used_at: null,
  };
  return { token, record };
}

/** Tokens of a gateway alone, which are always certain. */
const CERTAIN: Pick<
  Services["tokens"],
  "isShared" | "confirm" | "standing" | "isUnknown" | "isUncertain" | "isFixed" | "changeBy" | "close"
> = {
  isShared: false,
  confirm: () => undefined,
  standing: () => ({ isConfirmed: true }),
  isUnknown: () => false,
  isUncertain: () => false,
  isFixed: () => false,
  changeBy: (_by, write) => write([]),
  close: () => {},
};

function createFakeTokens(nextId: () => string): Services["tokens"] {
  const records = new Map<string, TokenRecord>();
  const byToken = new Map<string, Identity>(
    [...SCOPES, "cluster" as const].map((scope) => [`token_${scope}`, { tokenId: scope, scopes: [scope] }]),
  );
  return {
    verify: (token) => byToken.get(token),
    issue({ scopes, ...terms }) {
      const made = issued(`pst_${nextId()}`, scopes, terms);
      records.set(made.record.id, made.record);
      byToken.set(made.token, { tokenId: made.record.id, scopes });
      return Promise.resolve(made);
    },
    ...CERTAIN,
    isLive: () => true,
    scopesOf: () => SCOPES,
    use: () => true,
    onRevoke: () => {},
    list: () => Promise.resolve([...records.values()]),
    revoke: (id) => Promise.resolve(records.delete(id)),
    revokeAll() {
      const { size } = records;
      records.clear();
      return Promise.resolve(size);
    },
    count: () => Promise.resolve(records.size),
  };
}

function createFakeTickets(): Services["tickets"] {
  const tickets = new Map<string, Identity>();
  return {
    issue(identity) {
      const ticket = `ticket_${tickets.size}`;
      tickets.set(ticket, identity);
      return { ticket, expiresInSeconds: 30 };
    },
    take(ticket) {
      const identity = tickets.get(ticket);
      tickets.delete(ticket);
      return identity;
    },
    takeAnywhere: () => Promise.resolve(undefined),
  };
}

const READ_FILE: ToolInfo = {
  name: "read_file",
  description: "Reads a file",
  access: "read",
  enabled: true,
  reason: null,
  turn_on: null,
  source: "builtin",
  origin: null,
  input_schema: {
    type: "object",
    properties: { path: { type: "string" } },
    required: ["path"],
    additionalProperties: false,
  },
};

/** Creates an executor with one tool, `read_file`. The tool answers with its input, and asks first when the input says `{"ask":true}`. */
function createFakeTools(): ToolExecutor {
  return {
    list: () => [READ_FILE],
    get: (name) => (name === READ_FILE.name ? READ_FILE : undefined),
    enabled: () => [],
    accessOf: () => "read",
    bind: () => Promise.resolve({ ok: false, reason: "It is not bound" }),
    shown: (input) => input,
    masked: () => [],
    judge: () => undefined,
    explain: () => Promise.resolve(undefined),
    async call({ input, approver, callId, scope }) {
      if (input === '{"ask":true}') {
        const prepared = {
          input: { ask: true },
          digest: "",
          access: "read",
          effects: {},
          run: () => Promise.reject(new Error("unused")),
        } as const;
        const answer = await approver({
          tool: READ_FILE.name,
          prepared,
          input: prepared.input,
          binding: { digest: "digest", files: [], bound: [], containment: null, versions: new Map() },
          subject: { tool: READ_FILE.name, workspace: "/workspace", inputDigest: "" },
          reason: "Asking is the rule",
          rule: "always_ask",
          callId,
          scope,
        }, scope.signal);
        if (answer.decision === "deny") {
          return { result: { output: answer.reason, isError: true }, ran: false, access: "read", approvalId: "apr_1" };
        }
      }
      return { result: { output: input, isError: false, data: { length: input.length } }, ran: true, access: "read" };
    },
  };
}

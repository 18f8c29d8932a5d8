import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { loadDashboard } from "../../lib/dashboard/dashboard.ts";
import { describeApproval, type DescribedApproval } from "../../lib/guard/describe_approval.ts";
import { createFakeRuns, type FakeRuns } from "./fake_runs.ts";
import { createFakeSchedules, type FakeSchedules } from "./fake_schedules.ts";

/** A stand-in for the gateway with the routes the dashboard uses (docs/design/processes.md "Dashboard"), steered by the test. */
export interface FakeGateway {
  /** Address of the page, with a slash at its end */
  readonly url: string;
  readonly code: string;
  /** Paths asked for, in order, without the base path */
  readonly asked: readonly string[];
  /** Body of the last request to /pair */
  readonly pairedBy: string;
  /** Commands that came over the socket, beside `hello` */
  readonly commands: readonly Record<string, unknown>[];
  /** Answers that were posted, and ids of rules that were revoked, in order */
  readonly answers: readonly unknown[];
  readonly runs: FakeRuns;
  readonly schedules: FakeSchedules;
  /** Puts another provider and model to use, as a changed configuration does */
  use(name: string, model: string): void;
  /** Puts one more call that waits */
  ask(change?: Readonly<Record<string, unknown>>): void;
  /** The token lacks the scope for these paths, and what lies under them */
  forbid(...paths: readonly string[]): void;
  /** Makes every token invalid */
  revoke(): void;
  /** Ends the connections of all sockets */
  dropSockets(): void;
  /** Stops and starts answering HTTP, as a gateway that is gone and comes back */
  setGone(gone: boolean): void;
  /** Lets a reply to a message that begins with "slow" go on to its end */
  release(): void;
  /** Lets the reply take in the last message that was to steer it */
  takeIn(): void;
  close(): Promise<void>;
}

const TOKEN = "pst_test";
const METRICS = (requests: number) =>
  `# TYPE postern_http_requests_total counter
postern_http_requests_total{method="GET",route="/metrics",status="200"} 900
postern_http_requests_total{method="POST",route="/v1/chat/completions",status="200"} ${requests * 7}
postern_http_requests_total{method="POST",route="/pair",status="403"} 2
postern_http_requests_total{method="GET",route="/v1/tools",status="200"} ${requests}
postern_http_request_duration_seconds_bucket{route="/v1/chat/completions",le="0.01"} ${requests * 5}
postern_http_request_duration_seconds_bucket{route="/v1/chat/completions",le="0.05"} ${requests * 7}
postern_http_request_duration_seconds_bucket{route="/v1/chat/completions",le="+Inf"} ${requests * 7}
postern_http_requests_in_flight 1
postern_runs_active 1
postern_ws_connections 1
postern_tool_calls_total{tool="read_file",outcome="ok"} ${requests * 2}
postern_provider_tokens_total{provider="offline",kind="prompt"} ${requests * 410}
process_resident_memory_bytes ${88_000_000 + (requests % 5) * 900_000}
`;
const schema = (name: string) => ({
  type: "object",
  properties: { [name]: { type: "string", description: `The ${name}` } },
  required: [name],
  additionalProperties: false,
});
const TOOLS = [
  [
    "content_search",
    "Searches the text of files with a regular expression and gives path, line and text of each match.",
    "read",
    null,
  ],
  ["memory_store", "Keeps a value under a key.", "state", null],
  ["read_file", "Reads a text file of the workspace.", "read", null],
  ["shell", "Runs an allowed command without a shell.", "write", null],
  ["web_fetch", "Fetches a page as Markdown.", "network", "Set [web_fetch] enabled = true in postern.toml"],
  ["write_file", "Writes a text file.", "write", "Set [security.write_file] enabled = true in postern.toml"],
].map(([name, description, access, reason]) => ({
  name,
  description,
  access,
  reason,
  enabled: reason === null,
  turn_on: null,
  source: "builtin",
  input_schema: schema("path"),
}));

export interface FakeGatewayOptions {
  /** Path it is mounted under, such as `/agent`. Default: none */
  readonly base?: string;
  /** Default true */
  readonly pairingRequired?: boolean;
}

export async function startFakeGateway(options: FakeGatewayOptions = {}): Promise<FakeGateway> {
  const { base = "", pairingRequired = true } = options;
  const asked: string[] = [];
  const commands: Record<string, unknown>[] = [];
  const approvals: FakeApproval[] = [];
  const answers: unknown[] = [];
  const runs = createFakeRuns();
  const schedules = createFakeSchedules();
  const forbidden: string[] = [];
  let rules: { id: string; scope: string; text: string; created_at: string }[] = [];
  const { html, contentSecurityPolicy } = await loadDashboard({ pairingRequired });
  let valid = true;
  let pairedBy = "";
  let gone = false;
  let metricsRead = 10;
  let inUse = { name: "ollama", model: "llama3.2" };
  let release = () => {};
  let onSteered = () => {};

  const server = createServer((request, response) => {
    const path = pathOf(request, base);
    asked.push(path);
    if (gone) return void request.socket.destroy();
    if (path === "/" || path === "") {
      response.setHeader("content-security-policy", contentSecurityPolicy);
      return send(response, 200, html, "text/html; charset=utf-8");
    }
    if (path === "/health") {
      return send(response, 200, { status: "ok", version: "0.1.0", uptime_seconds: 4210, workspace: "~/code/garden" });
    }
    if (path === "/metrics") {
      return send(response, 200, METRICS(metricsRead += (metricsRead * 7) % 11 + 1), "text/plain");
    }
    if (path === "/pair") {
      const right = request.headers["x-pairing-code"] === "ABCD-EFGH";
      if (!right) return fail(response, 403, "pairing_code_invalid");
      valid = true;
      return void readBody(request).then((body) => {
        pairedBy = JSON.stringify(body);
        send(response, 200, { paired: true, token: TOKEN, token_id: "tok_1" });
      });
    }
    if (pairingRequired && !valid) return fail(response, 401, "auth_invalid");
    if (pairingRequired && request.headers.authorization !== `Bearer ${TOKEN}`) {
      return fail(response, 401, "auth_invalid");
    }
    if (forbidden.some((start) => path === start || path.startsWith(`${start}/`))) {
      return fail(response, 403, "insufficient_scope");
    }
    if (path === "/v1/models") return send(response, 200, list([model("offline/assistant"), model("openai/gpt-5")]));
    if (path === "/v1/status") {
      return send(response, 200, {
        workspace: "/home/me/work",
        provider: { ...inUse, reason: "Ollama answers at 127.0.0.1:11434" },
        config: { needs_restart: ["gateway.port"], last_reload: { problem: 'Cannot use "agent.x"' } },
      });
    }
    if (path === "/v1/tools") return send(response, 200, list(TOOLS));
    if (path === "/v1/approvals") {
      const query = new URL(request.url ?? "/", "http://gateway.test").searchParams;
      const [only, limit] = [query.get("status"), Number(query.get("limit") ?? 50)];
      const found = approvals.filter(({ status }) => only === null || status === only);
      return send(response, 200, { ...list(found.slice(0, limit)), has_more: found.length > limit });
    }
    if (path === "/v1/approval-rules") return send(response, 200, list(rules));
    if (path.startsWith("/v1/approval-rules/")) {
      rules = rules.filter(({ id }) => !path.endsWith(id));
      answers.push(path);
      return send(response, 200, { deleted: true });
    }
    if (path.startsWith("/v1/approvals/")) {
      return void readBody(request).then((body) => {
        answers.push({ path, ...body });
        const approval = approvals.find(({ id, status }) => path.endsWith(id) && status === "pending");
        if (approval === undefined) return fail(response, 409, "conflict");
        approval.status = body["decision"] === "approve" ? "approved" : "denied";
        if (body["remember"] === "always") {
          rules = [{ id: "rule_1", scope: "always", text: String(approval["always_rule"]), created_at: "" }];
        }
        send(response, 200, approval);
      });
    }
    if (path === "/v1/runs/run_1/messages") {
      return void readBody(request).then((body) => {
        answers.push({ path, ...body });
        const id = `run_${answers.length + 1}`;
        const steers = body["mode"] === "steer" ? { run_id: "run_1", mode: "steer" } : undefined;
        send(response, 202, { id, status: "queued", steers });
        const taken = { type: "message_taken", message_id: id, text: body["message"], by: "tok_1" };
        if (steers !== undefined) onSteered = () => sockets.clients.forEach((socket) => event(socket, taken));
      });
    }
    if (runs.answer(request, response, path)) return;
    if (schedules.answer(request, response, path)) return;
    if (path === "/v1/ws-ticket") return send(response, 200, { ticket: "t1", expires_in: 30 });
    if (path === "/v1/tokens/tok_1" && request.method === "DELETE") return send(response, 200, { deleted: true });
    fail(response, 404, "not_found");
  });
  const sockets = new WebSocketServer({ server, path: `${base}/ws/chat` });
  sockets.on("connection", (socket) => {
    socket.on("message", (data) => {
      const command = JSON.parse(String(data));
      if (command.type === "hello") return;
      commands.push(command);
      if (command.type === "message") {
        void answer(socket, command.text, new Promise<void>((resolve) => (release = resolve)));
      }
      if (command.type === "resume" && command.run_id !== "run_1") return void answer(socket, "", Promise.resolve());
      if (command.type === "resume") {
        event(socket, { type: "error", code: "not_found", message: "There is no such run" });
      }
      if (command.type === "cancel") {
        event(socket, { type: "error", code: "cancelled", message: "The work was cancelled" });
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server's address
  return {
    url: `http://127.0.0.1:${port}${base}/`,
    code: "ABCD-EFGH",
    asked,
    commands,
    get pairedBy() {
      return pairedBy;
    },
    answers,
    runs,
    schedules,
    use: (name, model) => void (inUse = { name, model }),
    ask: (change = {}) =>
      void approvals.unshift(described({
        id: `apr_${approvals.length + 1}`,
        status: "pending",
        tool: "write_file",
        access: "write",
        input: { path: "notes.md", content: "<b>Water</b> the beans" },
        reason: 'Cannot call "write_file" without approval: it can change files',
        rule: "level:supervised/write",
        files: [{ path: "notes.md", sha256: null }],
        created_at: "2026-01-01T00:00:00.000Z",
        expires_at: new Date(Date.now() + 600_000).toISOString(),
        always_rule: 'Allow "write_file" in "/garden" with exactly the input {"path":"notes.md"}',
        offers: [
          {
            remember: "always",
            match: "call",
            text: 'Allow "write_file" in "/garden" with exactly the input {"path":"notes.md"}',
          },
          { remember: "run", match: "folder", text: 'Allow "write_file" in the folder "/garden/\u202esrc"' },
        ],
        answered_at: null,
        remember: null,
        ...change,
      })),
    forbid: (...paths) => void forbidden.push(...paths),
    revoke: () => void (valid = false),
    dropSockets: () => sockets.clients.forEach((socket) => socket.terminate()),
    setGone: (next) => void (gone = next),
    release: () => release(),
    takeIn: () => onSteered(),
    async close() {
      sockets.clients.forEach((socket) => socket.terminate());
      sockets.close();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Adds what the gateway says of an approval. */
function described<T extends object>(approval: T): T & { readonly description: unknown } {
  // The fake's fields are those of an approval
  const given = { access: "write", workspace: "/garden", files: [], input_digest: "", ...approval };
  return { ...approval, description: describeApproval(given as unknown as DescribedApproval) };
}

interface FakeApproval {
  readonly id: string;
  status: string;
  readonly [field: string]: unknown;
}

async function readBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const part of request) text += part;
  return JSON.parse(text) as Record<string, unknown>; // the page sends an object
}

async function answer(socket: WebSocket, text: string, released: Promise<void>): Promise<void> {
  event(socket, {
    type: "run_start",
    kind: "chat",
    model: "offline/assistant",
    conversation_id: "conv_1",
    parent_id: null,
  });
  event(socket, { type: "turn_start", turn: 1 });
  const call = { call_id: "call_1", tool: "read_file" };
  event(socket, { type: "tool_start", ...call, input: { path: "README.md" } });
  const output = "# Garden\n\nWater the beans on <b>Tuesday</b>.\n";
  event(socket, { type: "tool_end", ...call, output, is_error: false, duration_ms: 3.2 });
  if (text.startsWith("slow")) {
    event(socket, { type: "tool_start", call_id: "call_2", tool: "content_search", input: { pattern: "beans" } });
  }
  if (text.startsWith("ask")) {
    event(
      socket,
      described({
        type: "approval_needed",
        approval_id: "apr_1",
        call_id: "call_3",
        tool: "write_file",
        input: { path: "notes.md", content: "<b>x</b>" },
        reason: "it can change files",
        rule: "level:supervised/write",
        offers: [{ remember: "run", match: "call", text: 'Allow "write_file" in run run_1' }],
        expires_at: new Date(Date.now() + 120_000).toISOString(),
      }),
    );
    await released;
    event(socket, { type: "approval_answered", approval_id: "apr_1", decision: "approve", by: null });
  }
  if (text === "many marks") event(socket, { type: "text_delta", delta: `${"\\!".repeat(300_000)}\n\nThe end.\n\n` });
  event(socket, { type: "text_delta", delta: "The **README** says: <img src=x onerror=alert(1)> water " });
  if (text.startsWith("slow")) await released;
  event(socket, {
    type: "text_delta",
    delta: "the beans on Tuesday.\n\n- `README.md:3`\n\n    Water the beans\n\nThat is all",
  });
  event(socket, {
    type: "done",
    finish_reason: "stop",
    usage: { prompt_tokens: 90, completion_tokens: 30, total_tokens: 120, estimated: true },
  });
}

let seq = 0;
function event(socket: WebSocket, body: Record<string, unknown>): void {
  socket.send(JSON.stringify({ ...body, seq: ++seq, time: "2026-01-01T00:00:00.000Z", run_id: "run_1" }));
}

function pathOf(request: IncomingMessage, base: string): string {
  const { pathname } = new URL(request.url ?? "/", "http://gateway.test");
  return pathname.startsWith(base) ? pathname.slice(base.length) : `outside ${pathname}`;
}

function send(response: ServerResponse, status: number, body: unknown, type = "application/json"): void {
  response.writeHead(status, { "content-type": type });
  response.end(typeof body === "string" ? body : JSON.stringify(body));
}

function fail(response: ServerResponse, status: number, code: string): void {
  send(response, status, { error: { message: `Refused: ${code}`, type: "permission_error", code, param: null } });
}

const list = (data: readonly unknown[]) => ({ object: "list", data, has_more: false, last_id: null });
const model = (id: string) => ({
  id,
  object: "model",
  created: 0,
  owned_by: id.startsWith("offline") ? "postern" : "openai",
});

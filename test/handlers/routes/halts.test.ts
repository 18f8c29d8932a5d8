import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../../fixtures/scripted_provider.ts";
import { createRouter } from "../../../handlers/router.ts";
import { ROUTES } from "../../../handlers/routes.ts";
import { createServices } from "../../../lib/gateway.ts";
import type { GatewayServices } from "../../../lib/services.ts";
import type { SopExecutionView } from "../../../lib/tools/sops/sops.ts";
import { toConfig } from "../../support/config_edits.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { toToolCall } from "../../support/tool_call.ts";
import { until } from "../../support/until.ts";

const HOUR_MS = 3_600_000;
const OWNER = { via: "cli", tokenId: null, scopes: ["admin"] } as const;
const HI = [{ role: "user", content: "Hi" }];

interface Bench {
  readonly services: GatewayServices;
  readonly clock: FakeClock;
  /** Sends with a token of every scope. */
  send(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Starts a gateway over the records of a folder, and closes it after the test. */
async function withGateway(
  folder: string,
  use: (bench: Bench) => Promise<void>,
  { script = ["Hello"], isReal = false }: {
    readonly script?: Script;
    /** True: time passes, as programs need it. Default false */
    readonly isReal?: boolean;
  } = {},
) {
  const clock = createFakeClock();
  const workspaceRoot = join(folder, "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const services = await createServices({
    config: toConfig({
      autonomy: { level: "full" },
      cron: { enabled: true, timezone: "UTC" },
      security: { allowed_commands: ["tail"], shell: { sandbox: "off" } },
      sops: { dirs: [join(folder, "sops")] },
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment: {},
    about: { version: "0.0.0-test" },
    log: { sink: () => {} },
    kit: isReal ? {} : { clock },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
  const { token } = await services.tokens.issue({ scopes: ["admin"], label: "test" });
  const router = createRouter({ services, routes: ROUTES });
  try {
    await use({
      services,
      clock,
      async send(method, path, body, headers = {}) {
        const json = body === undefined ? {} : { "content-type": "application/json" };
        const request = new Request(`http://127.0.0.1${path}`, {
          method,
          headers: {
            authorization: `Bearer ${token}`,
            accept: "application/json, text/event-stream",
            ...json,
            ...headers,
          },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        const reply = await router.fetch(request, { remoteAddress: "127.0.0.1" });
        return { status: reply.status, text: await reply.text() };
      },
    });
  } finally {
    await services.drain(0);
    await services.close();
  }
}

/** Ways in by which work begins. */
const WAYS_IN: Readonly<Record<string, object>> = {
  "/v1/chat/completions": { messages: HI },
  "/v1/responses": { input: "Hi" },
  "/v1/responses/compact": { input: "Hi" },
  "/v1/messages": { max_tokens: 10, messages: HI },
  "/api/chat": { message: "Hi" },
  "/webhook": { message: "Hi" },
  "/v1/webhook/default": { message: "Hi" },
  "/v1/runs": { message: "Hi" },
  "/v1/tools/glob_search/call": { input: { pattern: "*" } },
};

test("while all work is halted no way in takes any, and each says what lets it go on", () =>
  withTemporaryFolder((folder) =>
    withGateway(folder, async ({ send }) => {
      assert.equal((await send("POST", "/v1/halts", { kind: "all" })).status, 200);
      for (const [path, body] of Object.entries(WAYS_IN)) {
        const { status, text } = await send("POST", path, body);
        const { error } = JSON.parse(text) as { readonly error: { readonly code?: string; readonly message: string } };
        // The status of the Messages API for all that is 503
        assert.equal(status, path === "/v1/messages" ? 529 : 503, `${path}: ${text}`);
        assert.match(error.message, /a person has halted all work .*postern resume"/, path);
        assert.equal(error.code, "halted", path);
      }
      const mcp = await send("POST", "/mcp", {
        ...{ jsonrpc: "2.0", id: 1, method: "tools/call" },
        params: {
          ...{ name: "glob_search", arguments: { pattern: "*" } },
          _meta: {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
          },
        },
      }, { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "glob_search" });
      assert.match(mcp.text, /halted all work/);
      assert.match((await send("GET", "/health")).text, /"status":"ok".*"halted":"all"/);
      assert.equal((await send("GET", "/v1/models")).status, 200, "what begins nothing goes on");
      assert.deepEqual(JSON.parse((await send("DELETE", "/v1/halts")).text), { resumed: ["all"] });
      assert.equal((await send("POST", "/v1/chat/completions", { messages: HI })).status, 200);
      assert.deepEqual(JSON.parse((await send("DELETE", "/v1/halts?id=all")).text), { resumed: [] });
    })
  ));

test("a halt stops runs and programs at work, is in the audit, and holds after a restart", () =>
  withTemporaryFolder(async (folder) => {
    const asked = Promise.withResolvers<void>();
    const hangs: Script = () => {
      asked.resolve();
      return { hang: "before" };
    };
    await withGateway(folder, async ({ services, send }) => {
      writeFileSync(join(folder, "work", "notes.txt"), "");
      const command = "tail -f notes.txt";
      const process = async (input: object) =>
        await services.tools.call(toToolCall("process_tool", JSON.stringify(input), { caller: OWNER }));
      const started = await process({ op: "start", command });
      assert.equal(started.result.isError, false, started.result.output);
      const accepted = await send("POST", "/v1/runs", { message: "Hi" });
      const { id } = JSON.parse(accepted.text) as { readonly id: string };
      await asked.promise;
      await send("POST", "/v1/halts", { kind: "all" });
      const run = () => services.agent?.runs.get(id);
      await until(async () => (await run())?.status === "cancelled", "the run goes on");
      assert.equal((await run())?.error?.code, "halted");
      await services.halts.resume("all", { via: "cli", tokenId: null });
      const isKilled = async () => /killed/.test((await process({ op: "list" })).result.output);
      await until(isKilled, "the program goes on");
      await send("POST", "/v1/halts", { kind: "network" });
      const { records } = await services.audit.list({ type: "halt", limit: 10 });
      assert.deepEqual(
        records.map((record) => record.type === "halt" && [record.action, ...record.halts, record.by.via]),
        [["halted", "network", "http"], ["resumed", "all", "cli"], ["halted", "all", "http"]],
      );
    }, { script: hangs, isReal: true });
    await withGateway(folder, async ({ send }) => {
      assert.match((await send("GET", "/health")).text, /"halted":"partly"/);
      const { halts } = JSON.parse((await send("GET", "/v1/status")).text) as { readonly halts: readonly object[] };
      assert.equal(halts.length, 1);
      assert.equal((await send("POST", "/v1/chat/completions", { messages: HI })).status, 200);
    });
  }));

test("a run that was at work when the gateway ended does not go on while it is halted", () =>
  withTemporaryFolder(async (folder) => {
    const asked = Promise.withResolvers<void>();
    let id = "";
    await withGateway(folder, async ({ send }) => {
      id = (JSON.parse((await send("POST", "/v1/runs", { message: "Hi" })).text) as { readonly id: string }).id;
      await asked.promise;
    }, {
      script() {
        asked.resolve();
        return { hang: "before" };
      },
    });
    // As a command does while no gateway runs
    const services = await createServices({
      config: toConfig({}),
      folders: { dataDir: join(folder, "data"), workspaceRoot: join(folder, "work"), home: folder },
      environment: {},
      about: { version: "0.0.0-test" },
      log: { sink: () => {} },
      models: { agent: false },
    });
    await services.halts.halt({ kind: "run", name: id }, { via: "cli", tokenId: null });
    await services.close();
    let turns = 0;
    await withGateway(folder, async ({ services }) => {
      const run = () => services.agent?.runs.get(id);
      await until(async () => (await run())?.status === "cancelled", "the run goes on");
      assert.equal(turns, 0);
    }, {
      script() {
        turns++;
        return "Hello";
      },
    });
  }));

test("schedules hold while all work is halted, and fire once it goes on", () =>
  withTemporaryFolder((folder) =>
    withGateway(folder, async ({ services, send, clock }) => {
      const input = { id: "ask", schedule: "hourly", prompt: "Hi" };
      await services.tools.call(toToolCall("cron_add", JSON.stringify(input), { caller: OWNER }));
      await send("POST", "/v1/halts", { kind: "all" });
      const now = await send("POST", "/v1/schedules/ask/run");
      assert.deepEqual([now.status, /"code":"halted"/.test(now.text)], [503, true], now.text);
      await clock.advance(HOUR_MS + 10_000);
      const firings = async () => (await services.cron.history("ask", { limit: 10 }))?.firings ?? [];
      assert.deepEqual(await firings(), []);
      await send("DELETE", "/v1/halts");
      await clock.advance(10_000);
      await until(async () => {
        await clock.advance(0);
        return (await firings())[0]?.run_status === "completed";
      }, "it has not fired");
    })
  ));

test("a procedure holds before its next step while all work is halted, and a sub-agent at work is stopped", () =>
  withTemporaryFolder(async (folder) => {
    mkdirSync(join(folder, "sops"));
    const steps = '[[steps]]\nid = "look"\ntool = "glob_search"\ninput = { pattern = "*" }\nrequires_approval = true\n';
    writeFileSync(join(folder, "sops", "look.toml"), steps);
    const asked = Promise.withResolvers<void>();
    const script: Script = ({ messages }) => {
      const [last] = messages.slice(-1);
      if (last?.role === "user" && last.content === "Hang") asked.resolve();
      else if (last?.role === "user") return { toolCalls: [{ name: "subagent_spawn", arguments: { task: "Hang" } }] };
      return { hang: "before" };
    };
    await withGateway(folder, async ({ services, send, clock }) => {
      const call = async (name: string, input: object) => {
        const { result } = await services.tools.call(toToolCall(name, JSON.stringify(input), { caller: OWNER }));
        return result;
      };
      const { id: execution_id } = (await call("sop_execute", { sop: "look" })).data as SopExecutionView;
      const isIn = (wanted: string) =>
        until(async () => {
          await clock.advance(1000);
          return ((await call("sop_status", { execution_id })).data as SopExecutionView).status === wanted;
        }, `it is not ${wanted}`);
      await isIn("waiting_for_approval");
      await send("POST", "/v1/runs", { message: "Begin" });
      await asked.promise;
      await send("POST", "/v1/halts", { kind: "all" });
      const runs = async () => (await services.agent?.runs.list({ limit: 10 }))?.runs ?? [];
      await until(async () => (await runs()).every(({ status }) => status === "cancelled"), "a run goes on");
      assert.deepEqual((await runs()).map(({ kind, error }) => [kind, error?.code]).sort(), [
        ["chat", "halted"],
        ["subagent", "halted"],
      ]);
      const { approvals: [approval] } = await services.approvals.list({ status: "pending", limit: 10 });
      await send("POST", `/v1/approvals/${approval?.id}`, { decision: "approve" });
      for (let each = 0; each < 20; each++) await clock.advance(1000);
      assert.ok((await runs()).every(({ kind }) => kind !== "sop"), "a step began");
      await send("DELETE", "/v1/halts");
      await isIn("completed");
    }, { script });
  }));

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { ScriptedToolCall } from "../../fixtures/scripted_provider.ts";
import { assertNoCanary, bytesBelow, canaryText } from "../support/canaries.ts";
import { jsonOf, withWorld } from "../support/world.ts";

const ENVIRONMENT = {
  POSTERN_TOKEN: "canary+of/the=environment-token-Kx81",
  PROVIDER_KEY: "sk-canary-of-the-provider-key-Zq27",
  CHANNEL_SECRET: "canary-of-the-channel-secret-Wm93",
  GITHUB_TOKEN: "ghp_canaryNamedByNothingButItself55",
  DATABASE_URL: "postgres://me:canary-of-a-database-Rt41@db.example/app",
};
const FILE_KEY = "sk-canary-of-the-key-file-Yb66-and-more";
const CANARIES = {
  ...ENVIRONMENT,
  DATABASE_URL: "canary-of-a-database-Rt41",
  api_key_file: FILE_KEY,
  auth_token: "canary-of-the-node-token-Op12",
  "mcp env": "canary-of-an-mcp-env-Lq88",
  "mcp header": "canary-of-an-mcp-header-Hd19",
  "mcp argument": "canary-of-an-mcp-argument-Gf73",
  "mcp url": "canary-of-an-mcp-query-Vn50",
  proxy: "canary-of-the-proxy-Ds37",
};
const skip = process.platform === "win32" ? "there are no commands on Windows" : false;

/** Every way to make a tool show what lies in files and in its environment. */
const shell = (command: string) => ({ name: "shell", arguments: { command } });
const CALLS: readonly ScriptedToolCall[] = [
  { name: "read_file", arguments: { path: "leak.txt" } },
  { name: "read_file", arguments: { path: "cut.txt" } },
  { name: "read_file", arguments: { path: "binary.dat" } },
  { name: "read_file", arguments: { path: "provider.key.txt" } },
  { name: "read_file", arguments: { path: "nothing/of/that/name" } },
  { name: "content_search", arguments: { pattern: "canary" } },
  { name: "content_search", arguments: { pattern: "[A-Za-z0-9+/_%-]{30,}" } },
  { name: "glob_search", arguments: { pattern: "**" } },
  shell("cat leak.txt"),
  shell("cat cut.txt"),
  shell("sh drip.sh"),
  shell("env"),
  shell("base64 leak.txt"),
  shell("ls"),
  { name: "process_tool", arguments: { op: "start", command: "sh drip.sh" } },
  { name: "process_tool", arguments: { op: "list" } },
  { name: "process_tool", arguments: { op: "output", id: "p1" } },
  { name: "process_tool", arguments: { op: "output", id: "p1", offset: 12 } },
  { name: "file_edit", arguments: { path: "leak.txt", edits: [{ old_text: "not there", new_text: "x" }] } },
  { name: "memory_recall", arguments: { query: "canary" } },
  { name: "cli_discovery", arguments: { op: "check_command", command: "cat" } },
];

test(
  "no planted secret reaches a model, a client, a log, the audit, the metrics or the disk",
  { skip },
  () =>
    withWorld(async (world) => {
      const folder = await world.folder();
      const keyFile = join(folder, "provider.key");
      writeFileSync(keyFile, `${FILE_KEY}\n`);
      const dataDir = join(folder, "data");
      mkdirSync(dataDir);
      const text = canaryText(CANARIES);
      // Each secret lies across the limits of read_file and of shell
      const cut = (limit: number, secret: string) =>
        `${"-".repeat(limit - Math.floor(secret.length * 0.7))}${secret}\n`;
      const drip = Object.values(CANARIES).map((secret) =>
        [...secret.match(/.{1,5}/g) ?? []].map((piece) => `printf %s '${piece}'`).join("\n")
      ).join("\nsleep 0.01\necho\n");
      const seen = new Map<string, string>();
      const see = (sink: string, content: string) => void seen.set(sink, `${seen.get(sink) ?? ""}\n${content}`);
      const config = {
        provider: { kind: "openai_compatible", base_url: "http://127.0.0.1:1", api_key_env: "PROVIDER_KEY" },
        providers: { file: { kind: "openai_compatible", base_url: "http://127.0.0.1:1", api_key_file: keyFile } },
        channels: { signed: { kind: "generic", secret_env: "CHANNEL_SECRET" } },
        proxy: { https: `http://me:${CANARIES.proxy}@127.0.0.1:9` },
        gateway: { node_control: { auth_token: CANARIES.auth_token }, rate_limit_max: 0 },
        mcp: {
          servers: {
            a: { command: "a", args: ["--token", CANARIES["mcp argument"]], env: { KEY: CANARIES["mcp env"] } },
            b: {
              url: `http://127.0.0.1:1/?api_key=${CANARIES["mcp url"]}`,
              headers: { Authorization: `Bearer ${CANARIES["mcp header"]}` },
            },
          },
        },
        autonomy: { level: "full" },
        agent: { max_tool_calls: 1000, max_iterations: 1000 },
        security: {
          allowed_commands: ["cat", "sh", "env", "base64", "ls"],
          read_file: { allow_binary: true, max_read_bytes: 20_000 },
          write_file: { enabled: true },
          shell: { max_output_bytes: 12_000 },
        },
        logging: { level: "debug" },
      };
      const files = {
        "leak.txt": text,
        "cut.txt": cut(12_000, CANARIES.PROVIDER_KEY) + cut(8_000 - 40, FILE_KEY),
        "binary.dat": `\0\xff${text}`,
        "provider.key.txt": FILE_KEY,
        "drip.sh": drip,
        [`${CANARIES.GITHUB_TOKEN}.txt`]: "named",
      };
      // The model calls one tool in each turn of a run, and answers in text after the last of CALLS
      let turn = 0;
      const script = () => {
        const call = CALLS[turn++ % (CALLS.length + 1)];
        return call === undefined ? { text: "Done" } : { toolCalls: [{ ...call, id: `call_${turn}` }] };
      };
      await world.during(
        world.gateway({ config, environment: ENVIRONMENT, files, script, dataDir }),
        async (gateway) => {
          const headers = { authorization: `Bearer ${ENVIRONMENT.POSTERN_TOKEN}` };
          const call = (path: string, body?: unknown) => gateway.call(path, { headers, body });
          const ask = async (path: string, body?: unknown) => see(path, await (await call(path, body)).text());

          await ask("/v1/chat/completions", { stream: true, messages: [{ role: "user", content: "Go" }] });
          await ask("/api/chat", { message: "Go", conversation_id: "new" });
          await ask("/v1/webhook/default?wait=1", { message: "Go" });
          const socket = await gateway.chat(ENVIRONMENT.POSTERN_TOKEN);
          socket.send({ type: "hello", events: true });
          socket.send("Go");
          await socket.readReply();
          socket.socket.close();
          see("WebSocket", JSON.stringify(socket.frames));
          for (const { name, arguments: input } of CALLS) await ask(`/v1/tools/${name}/call`, { input });
          for (const path of ["/metrics", "/health", "/openapi.json", "/v1/tools", "/v1/tokens", "/v1/models"]) {
            await ask(path);
          }
          for (const path of ["/v1/audit?limit=1000", "/v1/audit/verify", "/v1/approvals", "/v1/approval-rules"]) {
            await ask(path);
          }
          await ask(`/v1/tools/${encodeURIComponent("nothing")}/call`, {});

          const ran = (await jsonOf(call("/v1/audit?limit=1000&type=call"))).data;
          assert.ok(ran.length >= 4 * (CALLS.length - 2), String(ran.length));
          see("what the model was told", JSON.stringify(gateway.provider.requests));
          see("log", JSON.stringify(gateway.log));
          assert.match(seen.get("what the model was told") ?? "", /\[redacted\]/);
          assert.match(seen.get("WebSocket") ?? "", /tool_end/);
        },
      );
      see("data directory", bytesBelow(dataDir));
      for (const [sink, content] of seen) {
        assertNoCanary(sink, content, CANARIES);
        // As it would be read once more: JSON inside of JSON, escapes undone
        assertNoCanary(sink, content.replaceAll("\\\\", "\\").replaceAll('\\"', '"').replaceAll("\\n", "\n"), CANARIES);
      }
    }),
);

test("a provider that cannot be reached, behind a proxy with a password, is told of without any key", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const keyFile = join(folder, "provider.key");
    writeFileSync(keyFile, FILE_KEY);
    const provider = { kind: "openai_compatible", model: "m", max_retries: 1 };
    const config = {
      provider: { ...provider, base_url: "https://upstream.invalid/v1", api_key_env: "PROVIDER_KEY" },
      providers: { file: { ...provider, base_url: "http://127.0.0.1:9/v1", api_key_file: keyFile } },
      proxy: { https: `http://me:${CANARIES.proxy}@127.0.0.1:9` },
      logging: { level: "debug" },
    };
    const gateway = await world.gateway({ config, environment: ENVIRONMENT });
    const headers = { authorization: `Bearer ${ENVIRONMENT.POSTERN_TOKEN}` };
    for (const model of ["m", "file/m"]) {
      const messages = [{ role: "user", content: "Hi" }];
      const ask = (path: string, body: unknown) => gateway.call(path, { headers, body });
      for (const stream of [false, true]) {
        const reply = await ask("/v1/chat/completions", { model, messages, stream });
        assert.equal(reply.status, 502);
        assertNoCanary("an error", await reply.text(), CANARIES);
      }
      assertNoCanary("an error", await (await ask("/api/chat", { message: "Hi", model })).text(), CANARIES);
    }
    assertNoCanary("a list", await (await gateway.call("/v1/models", { headers })).text(), CANARIES);
    assert.ok(gateway.log.length > 0);
    assertNoCanary("log", JSON.stringify(gateway.log), CANARIES);
    assertNoCanary("data directory", bytesBelow(gateway.dataDir), CANARIES);
  }));

test("an argument that is a secret reaches the tool, and is masked in the events, the log and the audit", () =>
  withWorld(async (world) => {
    const secret = ENVIRONMENT.GITHUB_TOKEN;
    const script = [{ toolCalls: [{ name: "read_file", arguments: { path: `${secret}.txt` } }] }, "Done"];
    const options = { environment: ENVIRONMENT, files: { [`${secret}.txt`]: "found" }, script };
    const gateway = await world.gateway({ ...options, config: { logging: { level: "debug" } } });
    const headers = { authorization: `Bearer ${ENVIRONMENT.POSTERN_TOKEN}` };
    const socket = await gateway.chat(ENVIRONMENT.POSTERN_TOKEN);
    socket.send({ type: "hello", events: true });
    socket.send("Go");
    await socket.readReply();
    socket.socket.close();
    const outputs = socket.frames.filter(({ type }) => type === "tool_end").map(({ output }) => output);
    assert.deepEqual(outputs, ["found"]);
    assertNoCanary("WebSocket", JSON.stringify(socket.frames), CANARIES);
    assertNoCanary("audit", await (await gateway.call("/v1/audit", { headers })).text(), CANARIES);
    assertNoCanary("log", JSON.stringify(gateway.log), CANARIES);
  }));

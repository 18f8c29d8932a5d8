import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { writeControlFile } from "../../lib/host/control_file.ts";
import { type Machine, onMachine } from "../cli/support/run_in.ts";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

/** No way in may take longer, whatever the policy says: questions expire after a second here. */
const LIMIT_MS = 60_000;

/** The model writes a file named like the message, then says "Done". */
const WRITER: Script = ({ messages }) => {
  const last = messages.at(-1);
  if (last?.role === "tool") return "Done";
  return { toolCalls: [{ name: "write_file", arguments: { path: String(last?.content), content: "x" } }] };
};

interface EntryPath {
  readonly name: string;
  /** True when the way in itself says that a person approves */
  readonly approved?: boolean;
  /** Comes in and waits for the end. `file` is what is to be written */
  enter(gateway: RunningGateway, file: string, machine: Machine): Promise<void>;
}

const ok = async (reply: Promise<Response>, status = 200) => {
  const response = await reply;
  assert.equal(response.status, status, await response.text());
};
const completion = (file: string, stream: boolean) => ({ messages: [{ role: "user", content: file }], stream });
const key = (name: string) => ({ "idempotency-key": name });

/** Waits until the run of a webhook has ended. */
function followRun({ services }: RunningGateway, runId: string): Promise<void> {
  return until(async () => Boolean((await services.agent?.runs.get(runId))?.ended_at));
}

async function overSocket(gateway: RunningGateway, file: string, options: { scope?: "chat"; events?: true } = {}) {
  const token = options.scope === undefined
    ? gateway.token
    : (await gateway.services.tokens.issue({ scopes: [options.scope], label: "" })).token;
  const client = await gateway.chat(token);
  if (options.events) client.send({ type: "hello", events: true });
  client.send(file);
  assert.equal((await client.readReply()).at(-1)?.type, "done");
  await client.leave();
}

async function onTerminal({ dataDir }: RunningGateway, { run }: Machine, argv: readonly string[], codes = [0]) {
  const { code, stderr } = await run([...argv, "--data-dir", dataDir]);
  assert.ok(codes.includes(code), `${code}: ${stderr}`);
}

const toolCall = (file: string) => ({ input: { path: file, content: "x" } });
const CALL = (file: string) => ["tools", "call", "write_file", "--input", JSON.stringify(toolCall(file).input)];

const PATHS: readonly EntryPath[] = [
  { name: "chat", enter: (gateway, file) => ok(gateway.call("/api/chat", { body: { message: file } })) },
  {
    name: "durable chat",
    enter: (gateway, file) => ok(gateway.call("/api/chat", { body: { message: file }, headers: key(file) })),
  },
  { name: "legacy webhook", enter: (gateway, file) => ok(gateway.call("/webhook", { body: { message: file } })) },
  {
    name: "completions",
    enter: (gateway, file) => ok(gateway.call("/v1/chat/completions", { body: completion(file, false) })),
  },
  {
    name: "completions stream",
    enter: (gateway, file) => ok(gateway.call("/v1/chat/completions", { body: completion(file, true) })),
  },
  {
    name: "durable completions",
    enter: (gateway, file) =>
      ok(gateway.call("/v1/chat/completions", { body: completion(file, false), headers: key(file) })),
  },
  {
    name: "durable completions stream",
    enter: (gateway, file) =>
      ok(gateway.call("/v1/chat/completions", { body: completion(file, true), headers: key(file) })),
  },
  {
    name: "webhook",
    async enter(gateway, file) {
      const reply = await gateway.call("/v1/webhook/default", { body: { message: file } });
      assert.equal(reply.status, 202);
      await followRun(gateway, (JSON.parse(await reply.text()) as { run_id: string }).run_id);
    },
  },
  {
    name: "webhook that waits",
    enter: (gateway, file) => ok(gateway.call("/v1/webhook/default?wait=1", { body: { message: file } })),
  },
  { name: "socket", enter: (gateway, file) => overSocket(gateway, file) },
  { name: "socket with events", enter: (gateway, file) => overSocket(gateway, file, { events: true }) },
  {
    name: "socket with events, without the scope",
    enter: (gateway, file) => overSocket(gateway, file, { events: true, scope: "chat" }),
  },
  {
    name: "tool call",
    enter: (gateway, file) => ok(gateway.call("/v1/tools/write_file/call", { body: toolCall(file) })),
  },
  {
    name: "approved tool call",
    approved: true,
    enter: (gateway, file) =>
      ok(gateway.call("/v1/tools/write_file/call", { body: { ...toolCall(file), approved: true } })),
  },
  {
    name: "command line",
    enter: (gateway, file, machine) => onTerminal(gateway, machine, CALL(file), [0, 1]),
  },
  {
    name: "command line with yes",
    approved: true,
    enter: (gateway, file, machine) => onTerminal(gateway, machine, [...CALL(file), "--yes"], [0, 1]),
  },
  { name: "command line chat", enter: (gateway, file, machine) => onTerminal(gateway, machine, ["chat", file]) },
];

for (const level of ["read_only", "supervised", "full"] as const) {
  test(
    `at level ${level} every way in comes to its end, and writes only what was allowed`,
    { timeout: LIMIT_MS },
    () =>
      withWorld(async (world) => {
        const machine = await world.enter(onMachine);
        const config = {
          security: { write_file: { enabled: true } },
          autonomy: { level, approval_timeout_secs: 1 },
          runs: { approval_timeout_secs: 1 },
        };
        const gateway = await world.gateway({ script: WRITER, config });
        const { url, token, dataDir, workspace } = gateway;
        const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "" };
        await writeControlFile(dataDir, { ...record, workspace: workspace.root });
        const fileOf = (name: string) => `${name.replaceAll(/\W+/g, "_")}.txt`;
        await Promise.all(PATHS.map(({ name, enter }) =>
          enter(gateway, fileOf(name), machine).catch((cause) => {
            throw new Error(`${name} at level ${level}`, { cause });
          })
        ));
        for (const { name, approved = false } of PATHS) {
          const written = level === "full" || (level === "supervised" && approved);
          assert.equal(existsSync(workspace.path(fileOf(name))), written, name);
        }
        assert.equal(gateway.services.agent?.runs.active(), 0);
      }),
  );
}

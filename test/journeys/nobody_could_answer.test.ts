import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { writeControlFile } from "../../lib/host/control_file.ts";
import { onMachine } from "../cli/support/run_in.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const WRITE = { path: "notes.txt", content: "new\n", overwrite: true };
const SCRIPT: Script = [{ toolCalls: [{ name: "write_file", arguments: WRITE }] }, "Done"];
const CONFIG = { security: { write_file: { enabled: true } } };
const REASON = /^Denied \(nobody_could_answer\): nobody who may approve follows this run, so nobody was asked: /;

/** Sends one message over a WebSocket and gives the frames of its reply. */
async function overSocket(gateway: RunningGateway, hello?: Readonly<Record<string, unknown>>, token = gateway.token) {
  const client = await gateway.chat(token);
  if (hello !== undefined) client.send({ type: "hello", ...hello });
  client.send("Change the notes");
  const frames = await client.readReply();
  await client.leave();
  return JSON.stringify(frames);
}

async function post(gateway: RunningGateway, path: string, body: unknown): Promise<string> {
  return await (await gateway.call(path, { body })).text();
}

const MESSAGES = { messages: [{ role: "user", content: "Change the notes" }] };

/** Every door by which work begins that nobody can be asked about; `shows`: its reader sees the run's events. */
const DOORS: readonly {
  readonly name: string;
  readonly shows?: boolean;
  readonly drive: (gateway: RunningGateway) => Promise<string>;
}[] = [
  { name: "/v1/chat/completions", drive: (gateway) => post(gateway, "/v1/chat/completions", MESSAGES) },
  {
    name: "/v1/chat/completions, streamed",
    drive: (gateway) => post(gateway, "/v1/chat/completions", { ...MESSAGES, stream: true }),
  },
  ...[false, true].flatMap((stream) => [
    {
      name: `/v1/responses${stream ? ", streamed" : ""}`,
      drive: (gateway: RunningGateway) => post(gateway, "/v1/responses", { input: "Change the notes", stream }),
    },
    {
      name: `/v1/messages${stream ? ", streamed" : ""}`,
      drive: (gateway: RunningGateway) =>
        post(gateway, "/v1/messages", { ...MESSAGES, model: "m", max_tokens: 99, stream }),
    },
  ]),
  { name: "/api/chat", drive: (gateway) => post(gateway, "/api/chat", { message: "Change the notes" }) },
  { name: "/webhook", drive: (gateway) => post(gateway, "/webhook", { message: "Change the notes" }) },
  { name: "a WebSocket that did not say hello", drive: (gateway) => overSocket(gateway) },
  {
    name: "a WebSocket whose token may not approve",
    shows: true,
    async drive(gateway) {
      const { token } = await jsonOf(gateway.call("/v1/tokens", { body: { label: "chat", scopes: ["chat"] } }));
      return await overSocket(gateway, { events: true }, token);
    },
  },
  {
    name: "a WebSocket where nobody answers questions",
    shows: true,
    drive: (gateway) => overSocket(gateway, { events: true, approvals: false }),
  },
  {
    name: "postern chat without a terminal",
    shows: true,
    async drive({ url, token, dataDir, workspace }) {
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "" };
      await writeControlFile(dataDir, { ...record, workspace: workspace.root });
      let shown = "";
      await onMachine(async ({ run }) => {
        const { stdout, stderr } = await run(["chat", "Change the notes", "--data-dir", dataDir]);
        shown = stdout + stderr;
      });
      return shown;
    },
  },
];

for (const { name, shows = false, drive } of DOORS) {
  test(`${name}: the record of a call that nobody was asked about is nobody_could_answer`, () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: SCRIPT, config: CONFIG, files: { "notes.txt": "old\n" } });
      const shown = await drive(gateway);
      const { data: decisions } = await jsonOf(gateway.call("/v1/audit?type=decision"));
      const denied = decisions.find(({ decision }: { decision: string }) => decision === "deny");
      assert.equal(denied?.rule, "nobody_could_answer", "in the audit");
      assert.match(denied.reason, REASON);
      assert.equal(denied.approval_id, undefined);
      assert.match(String(gateway.provider.requests.at(-1)?.messages.at(-1)?.content), REASON, "to the model");
      if (shows) assert.match(shown, /Denied \(nobody_could_answer\)/, "to the reader");
      assert.doesNotMatch(shown, /a person denied|approval_answered|approval_needed/);
      assert.deepEqual((await jsonOf(gateway.call("/v1/approvals"))).data, [], "no question was filed");
      assert.equal(readFileSync(gateway.workspace.path("notes.txt"), "utf8"), "old\n");
    }));
}

test("the run's events say it with the code nobody_could_answer", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: SCRIPT, config: CONFIG, files: { "notes.txt": "old\n" } });
    const frames = JSON.parse(await overSocket(gateway, { events: true, approvals: false }));
    const notice = frames.find(({ type }: { type: string }) => type === "notice");
    assert.equal(notice?.code, "nobody_could_answer");
    assert.match(notice.message, REASON);
  }));

test("a person at the terminal who leaves the question has not denied it: the reply stops, and the question is withdrawn", () =>
  onMachine(async ({ run }) => {
    const env = { POSTERN__SECURITY__WRITE_FILE__ENABLED: "true" };
    const chat = await run(["chat", `/write_file ${JSON.stringify(WRITE)}`], { env, answers: [] });
    assert.equal(chat.code, 1);
    assert.doesNotMatch(chat.stderr, /\[approval\] deny|a person denied/);
    assert.match((await run(["approvals", "list", "--status", "any"], { env })).stdout, /cancelled +write_file/);
  }));

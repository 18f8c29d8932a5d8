import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { ProviderError } from "../../lib/base/errors.ts";
import { APPROVALS } from "../../lib/guard/approval_records.ts";
import { journalOf, RUN_INPUTS, RUNS } from "../../lib/runs/journal/run_records.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";
import { comparePicture, outlineOf, regular } from "./picture.ts";

const READ = { name: "read_file", arguments: { path: "notes.txt" } };
const WRITE = { name: "write_file", arguments: { path: "notes.txt", content: "new\n", overwrite: true } };
const WEATHER = { name: "weather", arguments: { city: "Graz" } };
const REJECTED = new ProviderError("provider_rejected", "There is no such model", {
  provider: "scripted",
  status: 404,
});
const BROKEN_OFF = new ProviderError("provider_error", "The provider broke off", { provider: "scripted" });

/** The turns of a model that reads, writes, asks its client, answers, and fails before its reply and within it. */
const SCRIPT = {
  work: [{ text: "I read it.", toolCalls: [READ] }, { toolCalls: [WRITE] }],
  client: [{ reasoning: "Hm", toolCalls: [WEATHER] }],
  end: [{ text: "It is done." }],
  failure: [{ errorBefore: REJECTED }, { text: "Half", errorAfter: BROKEN_OFF }],
} as const satisfies Readonly<Record<string, Script>>;

const CLIENT_TOOL = {
  type: "function",
  function: { name: "weather", description: "Tells the weather", parameters: { type: "object" } },
};

/** Headers of a reply that differ from machine to machine, or with the time that something took. */
const OTHER_HEADERS = ["date", "connection", "keep-alive", "transfer-encoding", "content-length"];

/** Runs `use` with a gateway whose clock stands still and whose model plays the script. */
function withScript(script: Script, use: (gateway: RunningGateway) => Promise<void>): Promise<void> {
  return withWorld(async (world) => {
    const agent = { tools: ["read_file", "write_file"] };
    const config = { agent, security: { write_file: { enabled: true } }, gateway: { rate_limit_max: 0 } };
    await use(await world.gateway({ script, clock: createFakeClock(), files: { "notes.txt": "old\n" }, config }));
  });
}

/** Returns status, headers and body of a reply as they came, line by line. */
async function linesOf(reply: Response): Promise<readonly string[]> {
  const headers = [...reply.headers].filter(([name]) => !OTHER_HEADERS.includes(name)).sort();
  const text = await reply.text();
  return [String(reply.status), ...headers.map(([name, value]) => `${name}: ${value}`), "", ...text.split("\n")];
}

/** Returns the records of a journal as one: the lists of each put together. */
function joined(records: readonly unknown[]): Readonly<Record<string, unknown>> {
  const whole: Record<string, unknown> = {};
  for (const [key, value] of records.flatMap((record) => Object.entries(record as object))) {
    const before = whole[key];
    if (Array.isArray(value)) whole[key] = [...Array.isArray(before) ? before : [], ...value];
    else if (key === "count") whole[key] = Number(before ?? 0) + Number(value);
    else whole[key] ??= value;
  }
  return whole;
}

/** Approves the one call that waits, once it does. */
async function approveNext(gateway: RunningGateway): Promise<void> {
  let id: string | undefined;
  await until(async () => {
    const { data } = await jsonOf(gateway.call("/v1/approvals?status=pending"));
    return (id = data[0]?.id) !== undefined;
  });
  await gateway.call(`/v1/approvals/${id}`, { body: { decision: "approve" } });
}

test("completions.txt shows the replies to a client that has a tool of its own, and both failures", () =>
  withScript([...SCRIPT.work, ...SCRIPT.client, ...SCRIPT.end, ...SCRIPT.failure, ...SCRIPT.end], async (gateway) => {
    const same = regular(gateway.workspace.root);
    const messages: unknown[] = [{ role: "user", content: "What is the weather?" }];
    const lines: string[] = [];
    const ask = async (stream = true) => {
      const body = { model: "assistant", messages, tools: [CLIENT_TOOL], stream };
      const stream_options = stream ? { include_usage: true } : undefined;
      const reply = await gateway.call("/v1/chat/completions", { body: { ...body, stream_options } });
      const text = await linesOf(reply);
      lines.push("# POST /v1/chat/completions", ...text.map(same));
      return text.join("\n");
    };
    const id = /"id":"(call_\w+)"/.exec(await ask())?.[1];
    const call = { id, type: "function", function: { name: "weather", arguments: JSON.stringify(WEATHER.arguments) } };
    messages.push({ role: "assistant", tool_calls: [call] }, { role: "tool", tool_call_id: id, content: "Rain" });
    for (const stream of [true, true, true, false]) await ask(stream);
    comparePicture("completions.txt", lines);
  }));

test("run_events.txt and journals.txt show the events and the records of a run that asks, and of one that fails", () =>
  withScript([...SCRIPT.work, ...SCRIPT.end, ...SCRIPT.failure.slice(1)], async (gateway) => {
    const same = regular(gateway.workspace.root);
    const outline = (value: unknown) => outlineOf(JSON.parse(same(JSON.stringify(value))));
    const events: string[] = [];
    const records: string[] = [];
    const { store } = gateway.services;
    for (const message of ["Change the notes", "Go on"]) {
      const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message } }));
      const reply = await gateway.call(`/v1/runs/${id}/events`);
      if (message === "Change the notes") await approveNext(gateway);
      events.push("# GET /v1/runs/{id}/events", ...(await linesOf(reply)).map(same));
      const journal = (await store.read(journalOf(id), { afterSeq: 0, limit: 100 })).map(({ body }) => body);
      // How many records the events take is a matter of time
      const { records: _count, ...head } = (await store.get(RUNS.name, id))?.body as Readonly<Record<string, unknown>>;
      const input = (await store.get(RUN_INPUTS.name, id))?.body;
      records.push(...outline({ [RUNS.name]: head, [RUN_INPUTS.name]: input, journal: joined(journal) }));
    }
    const [approval] = await store.scan(APPROVALS.name, { limit: 1 });
    comparePicture("run_events.txt", events);
    comparePicture("journals.txt", [...records, ...outline({ [APPROVALS.name]: approval?.body })]);
  }));

test("websocket.txt shows the frames of a conversation with a tool, an approval and a failure", () =>
  withScript([...SCRIPT.work, ...SCRIPT.end, ...SCRIPT.failure.slice(1)], async (gateway) => {
    const same = regular(gateway.workspace.root);
    const client = await gateway.chat();
    const frames: string[] = [];
    client.socket.on("message", (data) => void frames.push(`< ${same(String(data))}`));
    const send = (frame: Readonly<Record<string, unknown>>) => {
      frames.push(`> ${same(JSON.stringify(frame))}`);
      client.send(frame);
    };
    send({ type: "hello", events: true });
    send({ type: "message", text: "Change the notes" });
    const asked = (await client.readUntil(({ type }) => type === "approval_needed")).at(-1);
    send({ type: "approve", approval_id: asked?.["approval_id"] });
    await client.readReply();
    send({ type: "message", text: "Go on" });
    await client.readReply();
    send({ type: "resume", run_id: "run_none" });
    await client.readReply();
    await client.leave();
    comparePicture("websocket.txt", frames);
  }));

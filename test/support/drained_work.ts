import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { ServerResponse } from "node:http";
import { type SeenRequest, startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { inspectDatabase } from "../../lib/storage/inspect_database.ts";
import { processesOf } from "./cli_process.ts";
import { jsonOf } from "./json_of.ts";
import { countingCommand, type KillableGateway, withKillableGateway } from "./killable_gateway.ts";
import { readRefusal } from "./refusal.ts";
import { readSse } from "./sse.ts";
import { until } from "./until.ts";

/** How much is at work when the signal comes. */
export interface DrainedLoad {
  readonly streams: number;
  readonly requests: number;
  readonly sockets: number;
  readonly runs: number;
}

const TEXT = "one two";
/** Text of a run that is in the middle of a command when the signal comes */
const COMMAND = "run a command";

/** SIGTERM while all of it is half said, and the model goes on after a while: nothing is cut, and runs go on at the next start. */
export function drainWithinGrace(load: DrainedLoad): Promise<void> {
  return underLoad({ ...load, graceSeconds: 60, commandSeconds: 1 }, async ({ gateway, model, work, said }) => {
    const stopped = gateway.stop();
    await untilRefused(gateway);
    const attached = load.streams + load.requests + load.sockets;
    await until(() => model.active() === attached, "runs are suspended at once, and nothing else");
    await systemClock.sleep(200);
    assert.deepEqual([work.ended(), model.active()], [0, attached], "nothing is cut while the grace lasts");
    model.release();
    for (const reply of await Promise.all(work.streams)) {
      const { data } = readSse(reply);
      assert.equal(data.at(-1), "[DONE]");
      const chunks = data.slice(0, -1).map((event) => JSON.parse(event).choices[0]);
      assert.equal(chunks.map(({ delta }) => delta.content ?? "").join(""), TEXT);
      assert.equal(chunks.at(-1).finish_reason, "stop");
    }
    for (const reply of await Promise.all(work.requests)) {
      assert.equal((await jsonOf(reply)).choices[0].message.content, TEXT);
    }
    for (const { last, code } of await Promise.all(work.sockets)) assert.deepEqual([last, code], ["done", 1001]);
    const { exitCode, output } = await stopped;
    assert.equal(exitCode, 0, output);
    said(output);
  });
}

/** SIGTERM while all of it is half said, and the model never goes on: each gets its final event once the grace is over. */
export function drainPastGrace(load: DrainedLoad): Promise<void> {
  const graceSeconds = 1;
  const commandSeconds = 60;
  return underLoad({ ...load, graceSeconds, commandSeconds }, async ({ gateway, model, work, said }) => {
    const started = systemClock.monotonic();
    const stopped = gateway.stop();
    for (const reply of await Promise.all(work.streams)) {
      const { data } = readSse(reply);
      assert.match(reply, /one /);
      assert.equal(data.at(-1), "[DONE]");
      assert.equal(JSON.parse(data.at(-2) ?? "").error.code, "shutting_down");
    }
    for (const reply of await Promise.all(work.requests)) {
      const { status, code, headers } = await readRefusal(reply);
      assert.deepEqual([status, code], [503, "shutting_down"]);
      assert.ok(Number(headers.get("retry-after")) > 0);
    }
    for (const { last, code } of await Promise.all(work.sockets)) assert.deepEqual([last, code], ["error", 1001]);
    const { exitCode, output } = await stopped;
    assert.equal(exitCode, 0, output);
    const cut = work.firstEnd() - started;
    assert.ok(cut >= graceSeconds * 1000, `nothing is cut while the grace lasts, but after ${cut} ms`);
    const took = systemClock.monotonic() - started;
    assert.ok(took < commandSeconds * 1000, `the command is not waited for, but it took ${took} ms`);
    said(output);
    model.release();
  });
}

interface Drained {
  readonly gateway: KillableGateway;
  readonly model: HeldModel;
  readonly work: AttachedWork;
  /** Receives what the ended gateway wrote */
  readonly said: (output: string) => void;
}

/** Begins the work, lets `drain` end the gateway, and looks at what is left: nothing but the runs, which the next start ends. */
async function underLoad(
  { graceSeconds, commandSeconds, ...load }: DrainedLoad & {
    readonly graceSeconds: number;
    /** How long the command of the one run takes that is in the middle of one */
    readonly commandSeconds: number;
  },
  drain: (drained: Drained) => Promise<void>,
): Promise<void> {
  const model = await startHeldModel(commandSeconds);
  const env = {
    POSTERN__GATEWAY__SHUTDOWN_GRACE_SECS: String(graceSeconds),
    POSTERN__RUNS__MAX_CONCURRENT: "1000",
    POSTERN__LOGGING__LEVEL: "warn",
  };
  try {
    await withKillableGateway({ baseUrl: `${model.origin}/v1`, env }, async (gateway) => {
      const runs = await Promise.all(Array.from({ length: load.runs }, async (_, index) => {
        const body = { message: `run ${index}` };
        return String((await jsonOf(gateway.call("/v1/runs", { body }))).id);
      }));
      const command = String((await jsonOf(gateway.call("/v1/runs", { body: { message: COMMAND } }))).id);
      await until(() => gateway.counted() > 0, "the command runs");
      const work = attach(gateway, load);
      const all = load.runs + load.streams + load.requests + load.sockets;
      await until(() => model.asked() === all, "all of it is with the model");
      let output = "";
      await drain({ gateway, model, work, said: (text) => void (output = text) });
      assert.doesNotMatch(output, /error|unhandled/i);
      await until(() => model.active() === 0, "nothing is left with the model");
      await until(() => processesOf(gateway.folder).length === 0, "no process is left");
      checkRecords(gateway.dataDir);
      await gateway.restart();
      await checkRuns(gateway, runs);
      await checkCommand(gateway, { id: command, isFinished: commandSeconds < graceSeconds });
    });
  } finally {
    await model.close();
  }
}

interface AttachedWork {
  readonly streams: readonly Promise<string>[];
  readonly requests: readonly Promise<Response>[];
  readonly sockets: readonly Promise<{ readonly last: string | undefined; readonly code: number }>[];
  /** How much of it has ended */
  readonly ended: () => number;
  /** When the first of it ended, on the monotonic clock; NaN: none did */
  readonly firstEnd: () => number;
}

function attach(gateway: KillableGateway, { streams, requests, sockets }: DrainedLoad): AttachedWork {
  let ended = 0;
  let firstEnd = NaN;
  const count = <T>(work: Promise<T>): Promise<T> => {
    // A failure is told by whoever waits for the work
    work.finally(() => {
      if (ended++ === 0) firstEnd = systemClock.monotonic();
    }).catch(() => {});
    return work;
  };
  const messages = [{ role: "user", content: "chat" }];
  const complete = (stream: boolean) => gateway.call("/v1/chat/completions", { body: { messages, stream } });
  const many = <T>(length: number, begin: () => Promise<T>) => Array.from({ length }, () => count(begin()));
  return {
    streams: many(streams, async () => await (await complete(true)).text()),
    requests: many(requests, () => complete(false)),
    sockets: many(sockets, async () => {
      const socket = await gateway.chat();
      socket.send("chat");
      const last = (await socket.readReply()).at(-1)?.type;
      return { last, code: (await socket.closed).code };
    }),
    ended: () => ended,
    firstEnd: () => firstEnd,
  };
}

/** Until the port is closed, or answers that it is about to be. */
async function untilRefused(gateway: KillableGateway): Promise<void> {
  const refuses = async () => {
    const reply = await gateway.call("/health").catch(() => undefined);
    await reply?.text();
    return reply === undefined || reply.status === 503;
  };
  await until(refuses, "the port is closed");
  const messages = [{ role: "user", content: "late" }];
  const late = await gateway.call("/v1/chat/completions", { body: { messages } }).catch(() => undefined);
  assert.ok(late === undefined || late.status === 503, "new work is refused");
}

function checkRecords(dataDir: string): void {
  const left = readdirSync(dataDir).filter((name) => !["gateway.lock", "postern.db", "commands"].includes(name));
  assert.deepEqual(left, [], "no control file, no log of the database and no temporary file is left");
  const notes = join(dataDir, "commands");
  assert.deepEqual(existsSync(notes) ? readdirSync(notes) : [], [], "no note of a running command is left");
  assert.equal(inspectDatabase(join(dataDir, "postern.db"))?.damage, null);
}

/** Every run that was accepted ends as it would have, once, and the audit is whole. */
async function checkRuns(gateway: KillableGateway, ids: readonly string[]): Promise<void> {
  for (const id of ids) await checkRun(gateway, id);
  const { data } = await jsonOf(gateway.call("/v1/runs?status=running&limit=100"));
  assert.deepEqual(data, []);
  assert.equal((await jsonOf(gateway.call("/v1/audit/verify"))).ok, true);
}

async function checkRun(gateway: KillableGateway, id: string): Promise<void> {
  // Its events end with the run
  const text = await (await gateway.call(`/v1/runs/${id}/events`)).text();
  const types = readSse(text).data.map((data) => String(JSON.parse(data).type));
  assert.equal(types.filter((type) => type === "done").length, 1, types.join());
  const { status, result, error } = await jsonOf(gateway.call(`/v1/runs/${id}`));
  assert.deepEqual([status, result, error], ["completed", TEXT, null]);
}

/** A command that ended within the grace is not run again; what became of one that was cut off is a person's to say. */
async function checkCommand(
  gateway: KillableGateway,
  { id, isFinished }: { readonly id: string; readonly isFinished: boolean },
): Promise<void> {
  if (isFinished) await checkRun(gateway, id);
  else assert.equal((await jsonOf(gateway.call(`/v1/runs/${id}`))).status, "needs_review");
  assert.equal(gateway.counted(), 1);
}

interface HeldModel {
  readonly origin: string;
  /** Requests whose reply has not ended */
  active(): number;
  /** Requests so far without those of the run that runs a command, whose end may come at any time */
  asked(): number;
  /** From now on every reply goes on to its end */
  release(): void;
  close(): Promise<void>;
}

/** A model that says the first half of every reply, and the other once it is released; one run it has run a command first. */
async function startHeldModel(commandSeconds: number): Promise<HeldModel> {
  const released = Promise.withResolvers<void>();
  let active = 0;
  let asked = 0;
  const answer = async ({ json, closed }: SeenRequest, response: ServerResponse) => {
    const { stream, messages = [] } = (json ?? {}) as { stream?: boolean; messages?: readonly { content: unknown }[] };
    const last = messages.at(-1)?.content;
    if (last === COMMAND) {
      const call = { name: "shell", arguments: JSON.stringify({ command: countingCommand(commandSeconds) }) };
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (
        const chunk of [
          toDelta({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: call }] }),
          toDelta({}, "tool_calls"),
        ]
      ) response.write(toSse(chunk));
      return response.end("data: [DONE]\n\n");
    }
    if (!messages.some(({ content }) => content === COMMAND)) asked++;
    active++;
    void closed.then(() => active--);
    const isStream = stream === true;
    if (isStream) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(toSse(toDelta({ content: "one " })));
    }
    await released.promise;
    if (!isStream) {
      const choices = [{ index: 0, message: { role: "assistant", content: TEXT }, finish_reason: "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      return response.end(JSON.stringify({ id: "x", object: "chat.completion", created: 0, model: "m", choices }));
    }
    for (const chunk of [toDelta({ content: "two" }), toDelta({}, "stop"), USAGE_CHUNK]) response.write(toSse(chunk));
    return response.end("data: [DONE]\n\n");
  };
  const server = await startFakeServer((seen, response) => {
    if (seen.method === "GET") response.end(JSON.stringify({ object: "list", data: [{ id: "upstream-model" }] }));
    else void answer(seen, response);
  });
  return {
    origin: server.origin,
    active: () => active,
    asked: () => asked,
    release: () => released.resolve(),
    close: () => server.close(),
  };
}

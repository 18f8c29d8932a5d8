import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { HttpError, ProviderError } from "../../../lib/base/errors.ts";
import { documentText } from "../../../lib/base/records/message.ts";
import { createLogger, type Logger, type LogRecord, SILENT } from "../../../lib/base/telemetry/log.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store, Write } from "../../../lib/storage/store.ts";
import { ask, only, readAll, supervised, textIn, typesOf } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

/** A store that counts its writes and can be made to fail. */
function watched(): Store & { readonly writes: Write[]; broken: boolean } {
  const store = createMemoryStore();
  const writes: Write[] = [];
  const watching = {
    ...store,
    writes,
    broken: false,
    batch(batch: readonly Write[]) {
      if (watching.broken) return Promise.reject(new Error("Disk full"));
      writes.push(...batch);
      return store.batch(batch);
    },
  };
  return watching;
}

test("the end of each run that has tools is told once, with its id", async () => {
  const ended: string[] = [];
  const { runs } = supervised(["One", "Two"], { tools: [{ name: "look" }], onRunEnd: (id) => void ended.push(id) });
  const ids: string[] = [];
  for (const durable of [false, true]) {
    const handle = await runs.start({ ...ask("Go"), durable });
    ids.push(handle.id);
    await readAll(handle);
    await until(() => ended.includes(handle.id), "the end is not told");
  }
  assert.deepEqual(ended, ids);
});

describe("what is written", () => {
  test("nothing for a stateless run without an effect, with tools or without", async () => {
    const store = watched();
    const { runs } = supervised([{ toolCalls: [{ name: "look" }] }, "Done"], { store, tools: [{ name: "look" }] });
    const handle = await runs.start(ask("Go"));
    await readAll(handle);
    assert.deepEqual(store.writes, []);
    assert.equal(await runs.get(handle.id), undefined);
  });

  test("the whole run once a call with an effect is about to run, before it runs", async () => {
    const store = watched();
    let known: readonly string[] = [];
    const { runs } = supervised([{ text: "I will.", toolCalls: [{ name: "change" }] }, "Done"], {
      store,
      tools: [{
        name: "change",
        access: "state",
        run: async (_, request) => {
          const journal = new RunStore(store);
          const seen: string[] = [];
          for await (const batch of journal.replay(request.runId, 0)) seen.push(...typesOf(batch));
          known = seen;
          return "ok";
        },
      }],
    });
    const handle = await runs.start(ask("Go"));
    const live = await readAll(handle);
    assert.deepEqual(known, ["run_start", "turn_start", "text_delta", "turn_end", "tool_start"]);
    assert.equal(handle.hadEffect(), true);
    const replayed = [];
    for await (const batch of new RunStore(store).replay(handle.id, 0)) replayed.push(...batch);
    assert.deepEqual(replayed, live);
    assert.equal((await runs.get(handle.id))?.result, "I will.\n\nDone");
  });

  test("a record that a fresh process can read: run, input and journal", async () => {
    const store = createMemoryStore();
    const { runs } = supervised(["Hello"], { store });
    const handle = await runs.start(ask("Hi", { durable: true, requestId: "req-1", parameters: { temperature: 0.5 } }));
    await readAll(handle);
    const journal = new RunStore(store);
    const run = await journal.get(handle.id);
    assert.equal(run?.status, "completed");
    assert.equal(run?.result, "Hello");
    assert.deepEqual(run?.usage, { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 });
    const input = await journal.input(handle.id);
    assert.deepEqual([input?.request_id, input?.parameters, input?.messages], [
      "req-1",
      { temperature: 0.5 },
      [{ role: "user", content: "Hi" }],
    ]);
    assert.deepEqual(await journal.open(), []);
  });

  test("and when it cannot be, the effect does not happen and the run ends with an error", async () => {
    const store = watched();
    let happened = false;
    const { runs } = supervised([{ toolCalls: [{ name: "change" }] }, "Done"], {
      store,
      tools: [{
        name: "change",
        access: "write",
        run: () => {
          happened = true;
          return "ok";
        },
      }],
    });
    store.broken = true;
    const events = await readAll(await runs.start(ask("Go")));
    assert.equal(happened, false);
    assert.equal(only(events, "error").code, "internal_error");
    assert.equal(runs.active(), 0);
  });

  test("an answer that cannot be recorded in its conversation is not called done", async () => {
    const store = watched();
    const { runs, metrics } = supervised(["Hello"], { store });
    const handle = await runs.start(ask("Hi", { conversationId: "new" }));
    store.broken = true;
    const events = await readAll(handle);
    assert.equal(events.at(-1)?.type, "error");
    assert.deepEqual(events.map((event) => event.seq), events.map((_, i) => i + 1));
    assert.match(metrics.render(), /postern_runs_total\{status="failed"\} 1/);
  });
});

describe("attached runs", () => {
  test("wait for a slot, and their place is given back when the client leaves", async () => {
    const { runs, clock } = supervised([{ hang: "before" }, "Second", "Third"], { limits: { maxConcurrent: 1 } });
    const first = await runs.start(ask("1"));
    const firstRead = readAll(first);
    const second = await runs.start(ask("2"));
    const secondRead = readAll(second);
    const third = readAll(await runs.start(ask("3")));
    await clock.advance(0);
    assert.equal((await runs.get(second.id))?.status, "queued");
    assert.equal((await runs.get(first.id))?.status, "running");
    second.cancel("client_gone");
    assert.deepEqual(typesOf(await secondRead), ["error"]);
    first.cancel("cancelled");
    await firstRead;
    assert.equal(textIn(await third), "Second");
  });

  test("end with the controller they were given", async () => {
    const { runs } = supervised([{ hang: "before" }]);
    const controller = new AbortController();
    const handle = await runs.start(ask("Go", { controller }));
    const read = readAll(handle);
    controller.abort(new CancelError("client_gone"));
    assert.equal(only(await read, "error").code, "client_gone");
  });

  test("over the queue's bound are refused with 503 overloaded", async () => {
    const { runs } = supervised([{ hang: "before" }], { limits: { maxConcurrent: 1, maxQueued: 0 } });
    const first = await runs.start(ask("1"));
    const reading = readAll(first);
    await assert.rejects(runs.start(ask("2")), (error) => error instanceof HttpError && error.code === "overloaded");
    first.cancel("cancelled");
    await reading;
  });

  test("name the model as it was asked for, else provider and model", async () => {
    const { runs } = supervised(["a", "b"]);
    const named = await runs.start(ask("Hi", { model: "scripted/large" }));
    const unnamed = await runs.start(ask("Hi"));
    await Promise.all([readAll(named), readAll(unnamed)]);
    assert.deepEqual([named.model, unnamed.model], ["scripted/large", "scripted/scripted-model"]);
  });

  test("are counted by status", async () => {
    const { runs, metrics } = supervised(["a", {
      errorBefore: new ProviderError("provider_error", "No", { provider: "s" }),
    }, {
      hang: "before",
    }]);
    await readAll(await runs.start(ask("1")));
    await assert.rejects(readAll(await runs.start(ask("2"))));
    const third = await runs.start(ask("3"));
    const reading = readAll(third);
    assert.match(metrics.render(), /postern_runs_active 1/);
    third.cancel("cancelled");
    await reading;
    for (const status of ["completed", "failed", "cancelled"]) {
      assert.match(metrics.render(), new RegExp(`postern_runs_total\\{status="${status}"\\} 1`));
    }
    assert.match(metrics.render(), /postern_runs_active 0/);
  });
});

test("an id that is none is an unknown run", async () => {
  const { runs } = supervised([]);
  for (const id of ["", "run_", "run_\0", "x".repeat(5000)]) assert.equal(await runs.get(id), undefined);
  assert.equal(await runs.cancel("run_x", "cancelled"), false);
});

test("a tool is told the conversation it is called in", async () => {
  const { runs, executor } = supervised([
    { toolCalls: [{ name: "look" }] },
    "Seen",
    { toolCalls: [{ name: "look" }] },
    "Seen",
  ], {
    tools: [{ name: "look" }],
  });
  await readAll(await runs.start(ask("Go", { conversationId: "c1" })));
  await readAll(await runs.start(ask("Go")));
  assert.deepEqual(executor.calls.map((call) => call.conversationId), ["c1", null]);
});

test("a failed run is logged once, with code, reason and way out, and without the model's words", async () => {
  const failed = new ProviderError("provider_error", "The key was refused (401): check the environment", {
    provider: "p",
  });
  const turns = [
    { text: "model words", errorAfter: failed },
    { errorBefore: failed },
    ...Array.from({ length: 4 }, () => ({ text: "model words", toolCalls: [{ name: "look" }] })),
  ];
  const logged: LogRecord[] = [];
  const log = createLogger({ level: "info", now: () => 0, sink: (line) => logged.push(line), redact: (text) => text });
  const { runs } = supervised(turns, { log, tools: [{ name: "look" }] });
  for (let i = 0; i < 3; i++) await readAll(await runs.start(ask("Go", { requestId: "req_1" }))).catch(() => {});
  assert.deepEqual(logged.map(({ level, message, fields }) => [level, message, fields["code"]]), [
    ["warn", "Run failed", "provider_error"],
    ["warn", "Run failed", "provider_error"],
    ["warn", "Run failed", "loop_detected"],
  ]);
  for (const { fields } of logged) {
    assert.equal(fields["request_id"], "req_1");
    assert.match(String(fields["run_id"]), /^run_/);
    assert.match(String(fields["message"]), /check the environment|ask another model/);
    assert.ok(!JSON.stringify(fields).includes("model words"));
  }
});

describe("durable runs", () => {
  test("of many with one claim exactly one is accepted, together with the claim", async () => {
    const { runs, store } = supervised(["Done"]);
    const claim = (runId: string) => ({ op: "insert", collection: "claims", key: "k", body: { runId } }) as const;
    const starts = await Promise.allSettled(
      Array.from({ length: 5 }, () => runs.start(ask("Go", { durable: true, claim }))),
    );
    const started = starts.flatMap((start) => (start.status === "fulfilled" ? [start.value] : []));
    const refused = starts.flatMap((start) => (start.status === "rejected" ? [start.reason.code] : []));
    assert.deepEqual(refused, ["conflict", "conflict", "conflict", "conflict"]);
    assert.deepEqual((await store.get("claims", "k"))?.body, { runId: started[0]?.id });
    assert.deepEqual((await runs.list({ limit: 10 })).runs.map(({ id }) => id), [started[0]?.id]);
    assert.equal(runs.active(), 1);
    await readAll(started[0] ?? assert.fail("none was started"));
  });

  test("are on disk when accepted and go on though nobody reads them", async () => {
    const store = createMemoryStore();
    const { runs } = supervised([{ toolCalls: [{ name: "change" }] }, "Done"], {
      store,
      tools: [{ name: "change", access: "state" }],
    });
    const handle = await runs.start(ask("Go", { durable: true }));
    assert.equal((await new RunStore(store).get(handle.id))?.id, handle.id);
    await until(async () => (await runs.get(handle.id))?.status === "completed");
    assert.equal((await runs.get(handle.id))?.result, "Done");
  });

  test("are accepted only once they are on disk, and leave no place behind where they cannot be", async () => {
    const store = watched();
    const written = Promise.withResolvers<void>();
    const slow: Store = { ...store, batch: (writes) => written.promise.then(() => store.batch(writes)) };
    const { runs, clock } = supervised(["Done"], { store: slow });
    let accepted = false;
    const starting = runs.start(ask("Go", { durable: true })).finally(() => (accepted = true));
    await clock.advance(0);
    assert.equal(accepted, false);
    written.resolve();
    await readAll(await starting);
    store.broken = true;
    await assert.rejects(runs.start(ask("Go", { durable: true })), /Disk full/);
    await clock.advance(0);
    assert.equal(runs.active(), 0);
    store.broken = false;
    const same = supervised(["Done"], { store });
    await assert.rejects(same.runs.start(ask("Go", { durable: true })), { name: "JournalError" }, "its id is taken");
    // It had begun beside the write, and is stopped
    await same.clock.advance(0);
    assert.equal(same.runs.active(), 0);
  });

  test("are followed from the first event on, late or early", async () => {
    const { runs } = supervised([{ text: ["a", "b"], toolCalls: [{ name: "look" }] }, { text: ["c"] }], {
      tools: [{ name: "look" }],
    });
    const early = await readAll(await runs.start(ask("Go", { durable: true })));
    assert.deepEqual(early.map((event) => event.seq), early.map((_, i) => i + 1));
    assert.equal(textIn(early), "ab\n\nc");
    assert.equal(early.at(-1)?.type, "done");
  });

  test("are followed while they work, delta by delta", async () => {
    const { runs, clock } = supervised([{ text: ["a", "b", "c"], chunkDelayMs: 10 }]);
    const handle = await runs.start(ask("Go", { durable: true }));
    const seen: string[] = [];
    const reading = (async () => {
      for await (const batch of handle.events()) seen.push(textIn(batch));
    })();
    await clock.advance(10);
    assert.equal(seen.join(""), "ab");
    await clock.advance(10);
    await reading;
    assert.equal(seen.join(""), "abc");
  });

  test("outlive a reader that leaves", async () => {
    const { runs, clock } = supervised([{ text: ["a", "b"], chunkDelayMs: 10 }]);
    const controller = new AbortController();
    const handle = await runs.start(ask("Go", { durable: true, controller }));
    for await (const _ of handle.events()) break;
    controller.abort(new CancelError("client_gone"));
    await clock.advance(20);
    await until(async () => (await runs.get(handle.id))?.status === "completed");
  });

  test("that a provider refused throw that to their reader, and their record has failed", async () => {
    const refusal = new ProviderError("model_not_found", "No such model", { provider: "scripted", status: 404 });
    const { runs } = supervised([{ errorBefore: refusal }]);
    const handle = await runs.start(ask("Go", { durable: true }));
    await assert.rejects(readAll(handle), (error) => error === refusal);
    const run = await runs.get(handle.id);
    assert.deepEqual([run?.status, run?.error?.code], ["failed", "model_not_found"]);
  });

  test("are listed newest first, by status and page", async () => {
    const { runs } = supervised(() => "ok");
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      const handle = await runs.start(ask(String(i), { durable: true }));
      await readAll(handle);
      ids.unshift(handle.id);
    }
    const first = await runs.list({ limit: 2 });
    assert.deepEqual([first.runs.map((run) => run.id), first.hasMore], [ids.slice(0, 2), true]);
    const rest = await runs.list({ limit: 10, after: first.runs[1]?.id ?? "" });
    assert.deepEqual([rest.runs.map((run) => run.id), rest.hasMore], [ids.slice(2), false]);
    assert.deepEqual((await runs.list({ limit: 10, status: "failed" })).runs, []);
  });
});

describe("recovery", () => {
  test("lets durable runs go on, and ends the others: failed, or needs_review where an effect was in flight", async () => {
    const store = createMemoryStore();
    const crashed = supervised(
      (
        request,
      ) => (request.messages.at(-1)?.content === "effect"
        ? { toolCalls: [{ name: "change" }] }
        : { text: "a", hang: "after" }),
      { store, tools: [{ name: "change", access: "write", run: () => new Promise<string>(() => {}) }] },
    );
    const plain = await crashed.runs.start(ask("plain", { durable: true }));
    const effect = await crashed.runs.start(ask("effect", { durable: true }));
    const attached = await crashed.runs.start(ask("attached", { conversationId: "talk" }));
    void attached.events()[Symbol.asyncIterator]().next();
    await until(() => crashed.executor.widest === 1);

    const { runs } = supervised(["Again"], { store, seed: 2 });
    await runs.recover();
    await until(async () => (await runs.get(plain.id))?.status === "completed");
    const status = async (id: string) => (await runs.get(id))?.status;
    assert.deepEqual([await status(effect.id), await status(attached.id)], ["needs_review", "failed"]);
    assert.equal((await runs.get(plain.id))?.result, "Again");
    assert.equal((await runs.get(attached.id))?.error?.code, "interrupted");
    const journal = new RunStore(store);
    assert.deepEqual(await journal.open(), []);
    const events = [];
    for await (const batch of journal.replay(effect.id, 0)) events.push(...batch);
    assert.deepEqual(typesOf(events), ["run_start", "turn_start", "turn_end", "tool_start", "error"]);
    await runs.recover();
    assert.equal(await journal.lastSeq(effect.id), events.at(-1)?.seq);
  });

  test("leaves runs that ended as they are", async () => {
    const store = createMemoryStore();
    const before = supervised(["ok"], { store });
    const handle = await before.runs.start(ask("Go", { durable: true }));
    await readAll(handle);
    const { runs } = supervised([], { store, seed: 2 });
    await runs.recover();
    assert.equal((await runs.get(handle.id))?.status, "completed");
  });

  test("logs a record that cannot be read and takes up the others", async () => {
    const store = createMemoryStore();
    const crashed = supervised([{ hang: "before" }, { hang: "before" }], { store });
    const [bad, good] = await Promise.all([1, 2].map(() => crashed.runs.start(ask("Go", { durable: true }))));
    await store.batch([{ op: "put", collection: "runs", key: bad?.id ?? "", body: { v: 99 } }]);
    const { runs } = supervised(["Done"], { store, seed: 2 });
    await runs.recover();
    await until(async () => (await runs.get(good?.id ?? ""))?.status === "completed");
  });
});

describe("retention", () => {
  test("forgets runs that ended longer ago than retention_days, at the start and daily", async () => {
    const store = createMemoryStore();
    const day = 24 * 60 * 60 * 1000;
    const forgotten: unknown[] = [];
    const log: Logger = { ...SILENT, info: (_message, fields) => void forgotten.push(fields?.["runs"]) };
    const { runs, clock } = supervised(() => "ok", { store, retentionDays: 30, log });
    await runs.recover();
    const old: string[] = [];
    for (let i = 0; i < 150; i++) {
      const handle = await runs.start(ask("Go", { durable: true }));
      await readAll(handle);
      old.push(handle.id);
    }
    await clock.advance(20 * day);
    const young = await runs.start(ask("Go", { durable: true }));
    await readAll(young);
    await clock.advance(11 * day);
    await until(async () => (await store.count("runs")) === 1);
    assert.equal((await runs.get(young.id))?.status, "completed");
    assert.equal(await runs.get(old[149] ?? ""), undefined);
    assert.deepEqual(forgotten, [150], "the log says how many");
    assert.deepEqual(await store.read(`run/${old[0]}`, { afterSeq: 0, limit: 10 }), []);
    await runs.drain(0);
    assert.equal(clock.pending(), 0);
  });

  test("keeps what a person still has to look at", async () => {
    const store = createMemoryStore();
    const crashed = supervised([{ toolCalls: [{ name: "change" }] }], {
      store,
      tools: [{ name: "change", access: "write", run: () => new Promise<string>(() => {}) }],
    });
    const handle = await crashed.runs.start(ask("Go", { durable: true }));
    await until(() => crashed.executor.widest === 1);
    const { runs, clock } = supervised([], { store, seed: 2, retentionDays: 1 });
    await runs.recover();
    await clock.advance(3 * 24 * 60 * 60 * 1000);
    assert.equal((await runs.get(handle.id))?.status, "needs_review");
    await runs.drain(0);
  });
});

describe("drain", () => {
  test("refuses new runs, lets attached ones finish, and returns when all have", async () => {
    const { runs, clock } = supervised([{ text: ["a", "b"], chunkDelayMs: 50 }]);
    const reading = readAll(await runs.start(ask("Go")));
    const drained = runs.drain(1000);
    await assert.rejects(
      runs.start(ask("More")),
      (error) => error instanceof HttpError && error.code === "shutting_down",
    );
    await clock.advance(50);
    await drained;
    assert.equal((await reading).at(-1)?.type, "done");
    assert.equal(clock.pending(), 0);
  });

  test("cancels attached runs after the grace with a final event", async () => {
    const { runs, clock } = supervised([{ text: "a", hang: "after" }]);
    const reading = readAll(await runs.start(ask("Go")));
    const drained = runs.drain(1000);
    await clock.advance(1000);
    await drained;
    assert.equal(only(await reading, "error").code, "shutdown");
  });

  test("leaves a durable run open for the next start", async () => {
    const store = createMemoryStore();
    const { runs, clock } = supervised([{ text: "a", hang: "after" }], { store });
    const handle = await runs.start(ask("Go", { durable: true }));
    await until(async () => (await runs.get(handle.id))?.status === "running");
    const drained = runs.drain(10);
    await clock.advance(10);
    await drained;
    assert.deepEqual(await new RunStore(store).open(), [{ id: handle.id, cancelled: false }]);
    const next = supervised(["Whole"], { store, seed: 2 });
    await next.runs.recover();
    await until(async () => (await next.runs.get(handle.id))?.status === "completed");
    assert.equal((await next.runs.get(handle.id))?.result, "Whole");
  });

  test("returns though a reader has stopped reading", async () => {
    const { runs, clock } = supervised([{ text: ["a", "b"] }]);
    await (await runs.start(ask("Go"))).events()[Symbol.asyncIterator]().next();
    const drained = runs.drain(10);
    await clock.advance(10);
    await clock.advance(5000);
    await drained;
  });
});

test("a request that only passes to the model works beside the slots, and one of a conversation waits for its slot", async () => {
  const hanging = (text: string) => text === "hang" ? { hang: "before" } as const : `to ${text}`;
  const { runs, clock } = supervised((request) => hanging(String(request.messages.at(-1)?.content)), {
    limits: { maxConcurrent: 1 },
  });
  const busy = await runs.start(ask("hang", { durable: true }));
  await clock.advance(0);
  const plain = await runs.start(ask("plain", { agentTools: "none" }));
  assert.equal(textIn(await readAll(plain)), "to plain");
  const inTalk = await runs.start(ask("talk", { agentTools: "none", conversationId: "talk" }));
  const reading = readAll(inTalk);
  await clock.advance(0);
  assert.equal((await runs.get(busy.id))?.status, "running");
  let isOver = false;
  reading.then(() => isOver = true);
  await clock.advance(1000);
  assert.equal(isOver, false);
  await runs.cancel(busy.id, "cancelled");
  assert.equal(textIn(await reading), "to talk");
});

test("a run is named by what was said and by the documents with it, also by a text that only reads like one", async () => {
  const { runs } = supervised(["Done", "Done"]);
  const document = documentText({ name: '"plan.pdf"', mark: "0".repeat(24), text: "Delete everything", cut: "" });
  const parts = [{ type: "text", text: "Read this" }, { type: "text", text: document }] as const;
  for (const [content, message] of [[parts, 'Read this\nWith "plan.pdf"'], [document, '"plan.pdf"']] as const) {
    const messages = [{ role: "user", content: typeof content === "string" ? content : [...content] }] as const;
    const handle = await runs.start({ ...ask("", { durable: true }), messages });
    await readAll(handle);
    assert.equal((await runs.get(handle.id))?.message, message);
  }
});

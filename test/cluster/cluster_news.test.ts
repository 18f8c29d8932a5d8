import assert from "node:assert/strict";
import { test } from "node:test";
import { nextTick } from "../../lib/base/tick.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { ClusterNews, type ClusterNote, noteText, parseNote } from "../../lib/cluster/cluster_news.ts";

test("tell() sends a note soon, whenever it comes while those before it are sent", async () => {
  for (let depth = 0; depth < 12; depth++) {
    const sent: string[] = [];
    let answer = () => {};
    const news = new ClusterNews({
      async send(notes) {
        sent.push(...notes.map(({ id }) => id));
        if (sent.length === 1) await new Promise<void>((resolve) => answer = resolve);
      },
      listen: () => Promise.resolve(() => {}),
    }, SILENT);
    news.tell("run", "first");
    while (sent.length === 0) await nextTick();
    answer();
    for (let microtask = 0; microtask < depth; microtask++) await Promise.resolve();
    news.tell("run", "second");
    for (let tick = 0; tick < 4; tick++) await nextTick();
    assert.deepEqual(sent, ["first", "second"], `${depth} microtasks after the answer`);
  }
});

test("notes of one tick go together, and of one kind and id the last alone", async () => {
  const sent: (readonly ClusterNote[])[] = [];
  const wire = { send: async (notes: readonly ClusterNote[]) => void sent.push(notes), listen: async () => () => {} };
  const news = new ClusterNews(wire, SILENT);
  for (let seq = 1; seq <= 100; seq++) news.tell("run", "run_1", seq);
  news.tell("end", "run_1");
  await news.flush();
  assert.deepEqual(sent, [[{ kind: "run", id: "run_1", seq: 100 }, { kind: "end", id: "run_1", seq: 0 }]]);
});

test("a note is a kind, an id and a seq, and anything else is no note", () => {
  const note: ClusterNote = { kind: "run", id: "run_1", seq: 7 };
  assert.equal(noteText(note), "run run_1 7");
  assert.deepEqual(parseNote(noteText(note)), note);
  for (
    const text of [
      ...["", "run", "run run_1", "run run_1 7 more", "sudo run_1 7", "run run_1 -1", "run run_1 1e9", "run  7"],
      ...[`run ${"x".repeat(201)} 7`, "run a/b 7", "run run_1 1234567890123456"],
    ]
  ) assert.equal(parseNote(text), undefined, text);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import { cancelError } from "../../../lib/base/cancel.ts";
import { textOf } from "../../../lib/base/records/message.ts";
import { isAtWork, type MessageMode } from "../../../lib/base/records/run.ts";
import { createStoredConversations } from "../../../lib/runs/conversations/stored_conversations.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createCrashingStore } from "../../support/crashing_store.ts";
import { ask, supervised } from "../../support/supervised.ts";

const WORK = "Work";
const MESSAGE = "Use b";
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Two calls with an effect, then an answer to whatever was said last. */
const SCRIPT: Script = ({ messages }) => {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const said = textOf(messages[at]?.content ?? "");
  if (said !== WORK || messages.length - at > 1) return { text: ["To ", said] };
  return { toolCalls: [1, 2].map((by) => ({ name: "count", arguments: { by } })) };
};

/** Everything of one process but its store. @param held resolves when the first call may end */
function boot(store: Store, { effects, seed, held, mode }: {
  readonly mode: MessageMode;
  readonly effects: unknown[];
  readonly seed: number;
  readonly held?: { readonly reached: () => void; readonly until: Promise<void> };
}) {
  const count = {
    name: "count",
    // A run that a crash stops in the middle of an effect waits for a person, and cannot show that it was interrupted
    access: mode === "interrupt" ? "read" : "write",
    async run({ by }: Readonly<Record<string, unknown>>, { signal }: { readonly signal: AbortSignal }) {
      // A process that was killed has no effects any more
      if (store.healthy()) effects.push(by);
      if (held === undefined || by !== 1) return "counted";
      held.reached();
      const stopped = new Promise<never>((_, reject) =>
        signal.addEventListener("abort", () => reject(cancelError(signal)), { once: true })
      );
      await Promise.race([held.until, stopped]);
      return "counted";
    },
  } as const;
  return supervised(SCRIPT, {
    store,
    seed,
    tools: [count],
    agent: { parallelTools: false },
    whenReaderLeaves: "go_on",
  });
}

async function play(mode: MessageMode, crashAt: number, when: "before" | "after"): Promise<number> {
  const name = `${mode}, ${when} write ${crashAt}`;
  const disk = createMemoryStore();
  const dying = createCrashingStore(disk, { crashAt, when });
  const effects: unknown[] = [];
  const reached = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const { runs } = boot(dying, { mode, effects, seed: 1, held: { reached: reached.resolve, until: release.promise } });
  let isAccepted = false;
  const talking = (async () => {
    const first = await runs.start(ask(WORK, { conversationId: "talk" }));
    await Promise.race([reached.promise, dying.crashed]);
    const by = { ...ask("").by, steers: { mode } };
    const message = await runs.start({ ...ask(MESSAGE, { conversationId: "talk", durable: true }), by });
    isAccepted = true;
    release.resolve();
    for (const { id } of [first, message]) {
      while (dying.healthy() && isAtWork((await runs.get(id))?.status ?? "queued")) await settle();
    }
  })();
  await Promise.race([talking.catch(() => {}), dying.crashed]);
  release.resolve();
  for (let i = 0; i < 20; i++) await settle();

  const { runs: after } = boot(disk, { mode, effects, seed: 2 });
  await after.recover();
  for (let i = 0; i < 2; i++) {
    for (const { id } of (await after.list({ limit: 10 })).runs) {
      while (isAtWork((await after.get(id))?.status ?? "queued")) await settle();
      const isOpen = (await after.get(id))?.status === "needs_review";
      const outcome = effects.length > 0 ? "done" : "not_done";
      const by = { via: "http", tokenId: "tok_1" } as const;
      if (isOpen) await after.resolve(id, { action: "resume", outcome, by });
      while (isAtWork((await after.get(id))?.status ?? "queued")) await settle();
    }
  }
  const known = (await after.list({ limit: 10 })).runs;
  isAccepted ||= known.some(({ message }) => message === MESSAGE);
  const stored = createStoredConversations({ store: disk, runIn: () => undefined });
  const history = known.length === 0 ? [] : await stored.messages("talk", { afterSeq: 0, limit: 100 });
  const said = history.map(({ message }) => message.content === null ? "" : textOf(message.content));
  const times = (text: string) => said.filter((one) => one === text).length;
  assert.equal(times(MESSAGE), isAccepted ? 1 : 0, `the message is said once: ${name}`);
  assert.equal(times(`To ${MESSAGE}`), isAccepted ? 1 : 0, `and answered once: ${name}`);
  if (mode === "interrupt") assert.ok(!isAccepted || !effects.includes(2), `nothing begins after it: ${name}`);
  else assert.equal(new Set(effects).size, effects.length, `an effect happens once: ${name}`);
  return dying.writes();
}

for (const mode of ["steer", "interrupt", "queue"] as const) {
  test(`a crash at any write loses no accepted message, and takes none in twice: ${mode}`, async () => {
    const writes = await play(mode, Infinity, "before");
    assert.ok(writes > 6, `${writes} writes are too few`);
    for (let at = 1; at <= writes; at++) {
      for (const when of ["before", "after"] as const) await play(mode, at, when);
    }
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { createSharedWait, KeyedSemaphore } from "../../lib/base/keyed_queues.ts";
import { CancelError } from "../../lib/base/cancel.ts";

/** Work that is under way until the test ends it, and who came in, in order. */
function setUp(max: number) {
  const semaphore = new KeyedSemaphore(max);
  const entered: string[] = [];
  const ends = new Map<string, () => void>();
  let inside = 0;
  let most = 0;
  const pass = (who: string, signal = new AbortController().signal) =>
    semaphore.pass("lane", signal, async () => {
      entered.push(who);
      most = Math.max(most, ++inside);
      await new Promise<void>((resolve) => ends.set(who, resolve));
      inside--;
    });
  return { semaphore, pass, entered, end: (who: string) => ends.get(who)?.(), most: () => most };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("no more than the bound are inside, though one was woken while the last one left and others came", async () => {
  const { pass, entered, end, most } = setUp(2);
  const passing = [pass("a"), pass("b"), pass("c")];
  await settled();
  end("a");
  end("b");
  // Somebody comes at every moment between the leaving of those two and the entering of the one who waited
  for (let moment = 0; moment < 10; moment++) {
    passing.push(pass(`d${moment}`));
    await Promise.resolve();
  }
  await settled();
  assert.equal(most(), 2);
  assert.deepEqual(entered, ["a", "b", "c", "d0"]);
  for (let done = 2; done < passing.length; done++) {
    end(entered[done] ?? "");
    await settled();
  }
  await Promise.all(passing);
  assert.deepEqual([most(), entered.at(-1)], [2, "d9"]);
});

test("who leaves the queue, or comes cancelled, takes no place", async () => {
  const { pass, entered, end } = setUp(1);
  const gone = new AbortController();
  const first = pass("a");
  const refused = assert.rejects(pass("b", gone.signal), { name: "CancelError" });
  const last = pass("c");
  gone.abort(new CancelError("shutdown"));
  await refused;
  end("a");
  await first;
  assert.deepEqual(entered, ["a", "c"]);
  end("c");
  await last;
  await assert.rejects(pass("d", gone.signal), { name: "CancelError" });
  const next = pass("e");
  end("e");
  await next;
  assert.deepEqual(entered, ["a", "c", "e"]);
});

test("waiting() counts those without a slot, and a key without work is forgotten", async () => {
  const { semaphore, pass, end, entered } = setUp(1);
  const controller = new AbortController();
  const passing = [pass("a"), pass("b"), pass("c", controller.signal).catch(() => {})];
  await settled();
  assert.deepEqual([semaphore.waiting("lane"), semaphore.waiting("other")], [2, 0]);
  controller.abort(new CancelError("cancelled"));
  assert.equal(semaphore.waiting("lane"), 1);
  end("a");
  await settled();
  assert.deepEqual([semaphore.waiting("lane"), entered], [0, ["a", "b"]]);
  end("b");
  await Promise.all(passing);
  const again = [pass("d"), pass("e")];
  await settled();
  assert.deepEqual([semaphore.waiting("lane"), entered], [1, ["a", "b", "d"]]);
  end("d");
  await settled();
  end("e");
  await Promise.all(again);
});

test("who waits for the same key shares the work, which ends with the last who leaves, and is done again for the next", async () => {
  const begun: { readonly end: (result: string) => void; readonly fail: (error: Error) => void; gone: boolean }[] = [];
  const wait = createSharedWait<string>((_key, signal) => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const one = { end: resolve, fail: reject, gone: false };
    begun.push(one);
    signal.addEventListener("abort", () => one.gone = true);
    return promise;
  });
  const never = new AbortController().signal;
  const leaving = new AbortController();
  const [first, second, third] = [wait("a", never), wait("a", leaving.signal), wait("a", never)];
  const other = wait("b", leaving.signal);
  assert.equal(begun.length, 2, "once for each key");
  leaving.abort(new CancelError("client_gone"));
  await assert.rejects(second, CancelError);
  await assert.rejects(other, CancelError);
  assert.deepEqual(begun.map(({ gone }) => gone), [false, true], "the work goes on while somebody waits");
  begun[0]?.end("done");
  assert.deepEqual(await Promise.all([first, third]), ["done", "done"]);
  await assert.rejects(wait("a", leaving.signal), CancelError);
  const failing = [wait("a", never), wait("a", never)];
  assert.equal(begun.length, 3);
  begun[2]?.fail(new Error("broken"));
  for (const result of await Promise.allSettled(failing)) assert.equal(result.status, "rejected");
  void wait("a", never);
  assert.equal(begun.length, 4);
});

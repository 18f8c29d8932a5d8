import assert from "node:assert/strict";
import { test } from "node:test";
import { ListWatch } from "../../../handlers/mcp/list_watch.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

for (
  const [kind, wrap] of [["at once", (list: unknown) => list], [
    "later",
    (list: unknown) => Promise.resolve(list),
  ]] as const
) {
  test(`a change of a list that is read ${kind} is told once, while somebody listens`, async () => {
    const clock = createFakeClock();
    let known: unknown = ["a"];
    let told = 0;
    let reads = 0;
    const read = () => {
      reads++;
      if (known === undefined) throw new Error("It cannot be read now");
      return wrap(known);
    };
    const watch = new ListWatch({ read, everyMs: 1_000, clock, onChange: () => void told++ });
    await clock.advance(5_000);
    assert.equal(reads, 0, "nobody listens");
    const [leave, leaveToo] = [watch.listen(), watch.listen()];
    await clock.advance(5_000);
    assert.equal(told, 0);
    known = undefined;
    await clock.advance(1_000);
    known = ["b"];
    await clock.advance(5_000);
    assert.equal(told, 1);
    leave();
    leave();
    known = ["c"];
    await clock.advance(1_000);
    assert.equal(told, 2, "one listens still");
    leaveToo();
    const before = reads;
    known = ["d"];
    await clock.advance(5_000);
    assert.deepEqual([told, reads], [2, before]);
    watch.listen();
    await clock.advance(1_000);
    assert.equal(told, 2, "a change that nobody waited for is not told");
    known = ["e"];
    await clock.advance(1_000);
    assert.equal(told, 3);
    watch.stop();
  });
}

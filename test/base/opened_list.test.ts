import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createOpenedList, openInSteps } from "../../lib/base/opened_list.ts";

describe("a list of opened things", () => {
  test("close() closes them in the reverse order, one after the other", async () => {
    const events: string[] = [];
    const opened = createOpenedList();
    for (const name of ["store", "audit", "agent"]) {
      assert.equal(
        opened.own(name, async (thing) => {
          events.push(`${thing} closes`);
          await Promise.resolve();
          events.push(`${thing} is closed`);
        }),
        name,
      );
    }
    await opened.close();
    assert.deepEqual(events, [
      "agent closes",
      "agent is closed",
      "audit closes",
      "audit is closed",
      "store closes",
      "store is closed",
    ]);
  });

  test("close() closes each thing once", async () => {
    let closed = 0;
    const opened = createOpenedList();
    opened.own("store", () => void closed++);
    await Promise.all([opened.close(), opened.close()]);
    await opened.close();
    assert.equal(closed, 1);
  });

  test("close() goes on after a thing that fails to close, and throws its error", async () => {
    const closed: string[] = [];
    const failure = new Error("the audit cannot be closed");
    const opened = createOpenedList();
    opened.own("store", (name) => void closed.push(name));
    opened.own("audit", () => Promise.reject(failure));
    opened.own("agent", (name) => void closed.push(name));
    await assert.rejects(opened.close(), failure);
    assert.deepEqual(closed, ["agent", "store"]);
  });

  test("close() throws the errors of several things together", async () => {
    const opened = createOpenedList();
    const failures = [new Error("first"), new Error("second")];
    for (const failure of failures) {
      opened.own(failure, (thing) => {
        throw thing;
      });
    }
    await assert.rejects(opened.close(), (error) => {
      assert.ok(error instanceof AggregateError);
      assert.deepEqual(error.errors, [...failures].reverse());
      return true;
    });
  });
});

describe("opening in steps", () => {
  test("a step that fails closes the steps before it, and its error is thrown", async () => {
    const closed: string[] = [];
    const failure = new Error("the audit cannot be opened");
    await assert.rejects(
      openInSteps((opened) => {
        opened.own("lock", (name) => void closed.push(name));
        opened.own("store", (name) => {
          closed.push(name);
          throw new Error("the store cannot be closed");
        });
        return Promise.reject(failure);
      }),
      failure,
    );
    assert.deepEqual(closed, ["store", "lock"]);
  });

  test("steps that all succeed stay open", async () => {
    const closed: string[] = [];
    const { close } = await openInSteps((opened) => {
      opened.own("store", (name) => void closed.push(name));
      return Promise.resolve(opened);
    });
    assert.deepEqual(closed, []);
    await close();
    assert.deepEqual(closed, ["store"]);
  });
});

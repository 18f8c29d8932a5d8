import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createOpenedList, defineWing, openInSteps, startInOrder } from "../../lib/base/opened_list.ts";

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

describe("wings", () => {
  const seen: string[] = [];
  const store = defineWing({
    name: "store",
    start({ path }: { readonly path: string }, opened) {
      return opened.own({ path }, () => void seen.push("store closes"));
    },
  });
  const audit = defineWing({
    name: "audit",
    start(needs: { readonly store: { readonly path: string } }, opened) {
      return opened.own(Promise.resolve(`audit in ${needs.store.path}`), () => void seen.push("audit closes"));
    },
  });

  test("each starts with what those before it made, and all are closed in the reverse order", async () => {
    seen.length = 0;
    const { made, close } = await openInSteps(async (opened) => ({
      made: await startInOrder({ path: "/data" }, opened, [store, audit]),
      close: opened.close,
    }));
    assert.deepEqual(made, { path: "/data", store: { path: "/data" }, audit: "audit in /data" });
    await close();
    assert.deepEqual(seen, ["audit closes", "store closes"]);
  });

  test("one that cannot start closes those before it", async () => {
    seen.length = 0;
    const broken = defineWing({
      name: "broken",
      start: (_needs: { readonly audit: string }): Promise<void> => Promise.reject(new RangeError("broken")),
    });
    await assert.rejects(
      openInSteps((opened) => startInOrder({ path: "/data" }, opened, [store, audit, broken])),
      RangeError,
    );
    assert.deepEqual(seen, ["audit closes", "store closes"]);
  });

  test("a list in which a wing needs what no wing before it makes does not compile", async () => {
    const opened = createOpenedList();
    // @ts-expect-error the store is made after the audit
    await assert.rejects(startInOrder({ path: "/data" }, opened, [audit, store]), TypeError);
    // @ts-expect-error nobody makes the path
    await startInOrder({}, opened, [store]);
    const wrong = defineWing({ name: "wrong", start: ({ store }: { readonly store: string }) => store.length });
    // @ts-expect-error the store is no text
    await startInOrder({ path: "/data" }, opened, [store, wrong]);
  });
});

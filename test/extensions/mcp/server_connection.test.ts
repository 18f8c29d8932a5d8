import assert from "node:assert/strict";
import { test } from "node:test";
import { isGone } from "../../support/is_gone.ts";
import { NEVER, withMcp } from "../../support/mcp_bench.ts";

const text = (result: { readonly content: readonly unknown[] }) =>
  (result.content as readonly { readonly text: string }[]).map((block) => block.text).join();

test("a server over standard input and output is started, lists its tools and answers a call", () =>
  withMcp({}, async ({ server, notes }) => {
    const one = server();
    const tools = await one.freshTools(NEVER);
    assert.deepEqual(tools.slice(0, 2).map(({ name }) => name), ["echo", "env"]);
    const { state, era, server: about, capabilities } = one.status();
    assert.deepEqual({ state, era, about }, {
      state: "ready",
      era: "legacy",
      about: { name: "fixture", version: "1.0.0" },
    });
    assert.ok(capabilities.tools !== undefined);
    const result = await one.request("tools/call", { name: "echo", arguments: { text: "hi" } }, { signal: NEVER });
    assert.equal(text(result), "hi");
    const [start = ""] = notes();
    await one.close();
    assert.ok(await isGone(start.split(" ")[1] ?? ""), "the program is gone");
  }));

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { jsonOf } from "../support/json_of.ts";
import { type Attack, type AttackedGateway, withHostileServers } from "../support/hostile_mcp.ts";
import { until } from "../support/until.ts";

/** Fate of a server: it is ready all the same, or it fails with this reason at once, within its time, or when its time is over. */
type Fate = "ready" | { readonly now: RegExp } | { readonly soon: RegExp } | { readonly late: RegExp };

const TOO_LATE = { late: /not ready within 30 s/ };
const BROKEN = { now: /neither a result nor an error/ };
const TOO_DEEP = { now: /nested deeper than 64 levels/ };
/** Deno tells of the end of a pipe together with that of its program */
const CLOSED = "Deno" in globalThis ? /closed its output|code \d|not ready|no answer/ : /closed its output/;
/** Milliseconds of a server's time between two looks at most */
const SOON_MS = 300;
const TOO_LONG = { now: /line of over 10485760 bytes/ };

/** Runs a gateway with a server for each attack, and looks at the fate of each. */
async function meet(
  at: string,
  fates: Readonly<Record<string, Fate>>,
  more: Pick<Attack, "era"> & { readonly then?: (gateway: AttackedGateway) => Promise<void> } = {},
): Promise<void> {
  const { then, ...attack } = more;
  const attacks = Object.fromEntries(Object.keys(fates).map((act) => [act, { at, act, ...attack }]));
  await withHostileServers(attacks, async (gateway) => {
    for (const act of Object.keys(fates)) await gateway.noted(act);
    for (const [act, fate] of Object.entries(fates)) {
      if (fate !== "ready" && "now" in fate) await assertFails(gateway, act, fate.now);
    }
    for (const [act, fate] of Object.entries(fates)) {
      let looked = systemClock.monotonic();
      // A flood is read, and a program starts again, in real time: no more than that passes of a server's time to begin
      const failsSoon = async () => {
        const since = Math.ceil(systemClock.monotonic() - looked);
        looked += since;
        await gateway.pass(Math.min(since, SOON_MS));
        return gateway.failures(act).length > 0;
      };
      if (fate === "ready" || !("soon" in fate)) continue;
      await until(failsSoon, `"${act}" fails`);
      await assertFails(gateway, act, fate.soon);
    }
    // Over the time for the first question, then over that for the start
    await gateway.pass(6_000);
    for (const [act, fate] of Object.entries(fates)) {
      if (fate === "ready") await gateway.wait(() => gateway.isReady(act), `"${act}" is ready`);
    }
    await gateway.pass(30_000);
    for (const [act, fate] of Object.entries(fates)) {
      if (fate !== "ready" && "late" in fate) await assertFails(gateway, act, fate.late);
    }
    await then?.(gateway);
  });
}

async function assertFails(gateway: AttackedGateway, server: string, reason: RegExp): Promise<void> {
  await gateway.wait(() => gateway.failures(server).length > 0, `"${server}" fails`);
  const [first = ""] = gateway.failures(server);
  assert.match(first, reason, server);
  assert.ok(first.length < 4_000, `the reason of "${server}" is short`);
}

describe("a hostile MCP server does not hang, flood or end the gateway", () => {
  test("at its start", () =>
    meet("start", {
      crash: { now: /code 9/ },
      killed: { now: /SIGKILL/ },
      closed: { soon: CLOSED },
      long_line: TOO_LONG,
      endless_noise: { soon: /more than 10000 messages of no use/ },
      garbage: "ready",
      noise: "ready",
      stderr_flood: "ready",
      leaves_child: "ready",
      leaves_child_and_ends: { late: /code 0|closed its output|not ready/ },
    }));

  test("when it is asked for its era: what is no answer of the new era makes it one of the old", () =>
    meet(
      "discover",
      Object.fromEntries(
        ["hang", "half", "crash", "deep", "null_result", "wrong_fields", "many_wrong", "long_error", "twice"]
          .map((act) => [act, "ready"] as const),
      ),
    ));

  test("when it says that it is of the new era", () =>
    meet("discover", { none: "ready", both: "ready", twice: "ready", text_result: "ready" }, { era: "modern" }));

  test("when its session begins", () =>
    meet("initialize", {
      hang: TOO_LATE,
      crash: { now: /code 9/ },
      half_crash: { now: /code 9/ },
      null_result: BROKEN,
      wrong_fields: { now: /./ },
      many_wrong: { now: /more than 1000 entries/ },
      deep: TOO_DEEP,
      long_error: { now: /no no no/ },
    }));

  test("when its tools are listed", () =>
    meet("list", {
      hang: TOO_LATE,
      half: TOO_LATE,
      half_crash: { now: /code 9/ },
      long_line: TOO_LONG,
      deep: TOO_DEEP,
      deep_error: TOO_DEEP,
      deep_notice: TOO_DEEP,
      wrong_id: TOO_LATE,
      other_type_of_id: TOO_LATE,
      no_version: TOO_LATE,
      neither: BROKEN,
      odd_error: BROKEN,
      wrong_fields: { now: /expected array/ },
      many_wrong: { now: /more than 1000 entries/ },
      many_tools: "ready",
      long_error: { now: /no no no/ },
      empty_pages: "ready",
      long_cursor: "ready",
      asks: { now: /more than 32 things/ },
      long_lines: "ready",
      bad_utf8: "ready",
      ahead: "ready",
      polluted: "ready",
      batch: "ready",
      leaves_child: "ready",
      leaves_child_and_ends: { late: /code 0|closed its output|not ready/ },
      same_question: "ready",
      unknown_questions: "ready",
      stubborn: "ready",
    }, {
      then: async ({ tools }) => {
        assert.deepEqual(await tools("polluted"), ["mcp__polluted__echo"]);
        assert.equal(Object.hasOwn(Object.prototype, "polluted"), false);
      },
    }));

  test("when it is called", async () => {
    const broken = /neither a result nor an error/;
    const lost = (reason: string) => new RegExp(`Cannot tell what became of .*${reason}`);
    const outputs: Readonly<Record<string, RegExp>> = {
      none: /^hello echo$/,
      garbage: /^hello echo$/,
      twice: /^hello echo$/,
      batch: /^hello echo$/,
      false_progress: /^hello echo$/,
      backward_progress: /^hello echo$/,
      stderr_flood: /^hello echo$/,
      bad_utf8: /^\ufffd\(\ufffd echo$/,
      long_texts: /^x{1000}/,
      many_wrong: /more than 1000 entries/,
      many_blocks: /more than 1000 entries/,
      null_result: broken,
      bare_error: broken,
      long_error: /no no no/,
      wrong_fields: /expected array/,
      leaves_child: /^hello echo$/,
      leaves_child_and_ends: lost("code 0|closed its output"),
      crash: lost("code 9"),
      killed: lost("SIGKILL"),
      closed: CLOSED,
      deep: lost("64 levels"),
      long_line: lost("line of over"),
      asks: lost("more than 32 things"),
      endless_noise: lost("messages of no use"),
      hang: /no answer within 60 s/,
      half: /no answer within 60 s/,
      wrong_id: /no answer within 60 s/,
      never_read: /no answer within 60 s/,
      samples: /no answer within 60 s/,
    };
    const attacks = Object.fromEntries(Object.keys(outputs).map((act) => [act, { at: "call", act }]));
    await withHostileServers(attacks, async (gateway) => {
      const { echo, isReady, wait, noted, pass } = gateway;
      for (const act of Object.keys(outputs)) await wait(() => isReady(act), `"${act}" is ready`);
      const ended = new Map<string, string>();
      for (const act of Object.keys(outputs)) void echo(act).then(({ output }) => ended.set(act, output));
      for (const act of Object.keys(outputs)) await noted(act);
      for (let seconds = 0; ended.size < Object.keys(outputs).length && seconds < 80; seconds += 10) {
        await pass(10_000);
      }
      assert.deepEqual(Object.keys(outputs).filter((act) => !ended.has(act)), [], "every call ends");
      for (const [act, output] of ended) {
        assert.match(output, outputs[act] ?? /^$/, act);
        const most = /^Cannot/.test(output) ? 3_000 : 300_000;
        assert.ok(output.length <= most, `the output of "${act}" is bounded`);
      }
    });
  });

  test("when a call is cancelled", async () => {
    const acts = ["hang", "crash", "half", "twice", "deep", "stubborn"];
    const attacks = Object.fromEntries(acts.map((act) => [act, { at: "cancel", act, silent: true }]));
    await withHostileServers(attacks, async ({ echo, isReady, wait, noted, pass }) => {
      for (const act of acts) await wait(() => isReady(act), `"${act}" is ready`);
      const calls = acts.map(async (act) => (await echo(act)).output);
      for (const act of acts) await noted(act, "called");
      await pass(61_000);
      for (const call of calls) assert.match(await call, /no answer within 60 s/);
      for (const act of acts) await noted(act);
    });
  });

  test("when it asks a person and never answers: one question waits, and the end of the gateway ends the call", () =>
    withHostileServers(
      { asking: { at: "call", act: "elicits" } },
      async ({ call, echo, isReady, wait, noted, pass }) => {
        await wait(() => isReady("asking"), "it is ready");
        void echo("asking").catch(() => {});
        await noted("asking");
        // Longer than a call may take: the time stands still while a person is asked
        await pass(70_000);
        const { data } = await jsonOf(call("/v1/approvals?status=pending"));
        assert.deepEqual(data.map(({ message }: { readonly message: string }) => message), ["Your password?"]);
      },
    ));

  test("when it floods the gateway with lines, which are then read at a bounded speed", async () => {
    const acts = ["endless_notices", "endless_progress", "list_changed", "stderr_flood"];
    const attacks = Object.fromEntries(acts.map((act) => [act, { at: "call", act }]));
    await withHostileServers(attacks, async ({ echo, isReady, wait, noted, pass }) => {
      for (const act of acts) await wait(() => isReady(act), `"${act}" is ready`);
      const calls = acts.map((act) => echo(act));
      for (const act of acts) await noted(act);
      await pass(3_000);
      assert.equal((await calls[3])?.output, "hello echo");
      void Promise.allSettled(calls);
    });
  });

  test("when it is told to end", async () => {
    const acts = ["hang", "crash", "stubborn", "stderr_flood", "long_line", "leaves_child"];
    await withHostileServers(Object.fromEntries(acts.map((act) => [act, { at: "close", act }])), async (gateway) => {
      for (const act of acts) await gateway.wait(() => gateway.isReady(act), `"${act}" is ready`);
    });
  });
});

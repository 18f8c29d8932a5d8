import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { type Logger, SILENT } from "../../../lib/base/telemetry/log.ts";
import type { NodeWork } from "../../../lib/extensions/nodes/node_end.ts";
import { CLOSE, MAX_IN_FLIGHT } from "../../../lib/extensions/nodes/protocol.ts";
import { runNode } from "../../../lib/extensions/nodes/run_node.ts";
import { LinkError, type LinkHandlers } from "../../../lib/system/net/link_socket.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { ECHO } from "../../support/node_bench.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";

const WELCOME = { type: "welcome", v: 1, heartbeat_ms: 30_000, silence_ms: 60_000, max_frame_bytes: 100_000 };
const INVOKE = { type: "invoke", id: "1", tool: "echo", input: { text: "hi" }, run_id: "run_g", call_id: "call_g" };

/** A node's connection as the gateway of the test sees it. */
interface FakeGateway {
  // deno-lint-ignore no-explicit-any
  readonly heard: any[];
  readonly handlers: LinkHandlers;
  closedWith: { readonly code: number; readonly reason: string } | undefined;
  unsent: number;
  /** The code it was closed with */
  code(): number | undefined;
  say(frame: unknown): void;
}

interface RunOptions {
  readonly work?: Partial<NodeWork>;
  /** Outcomes of the attempts, in order; the last one stands for all after it. Default: a link */
  readonly attempts?: readonly (Error | "link")[];
  readonly log?: Logger;
}

function run({ work = {}, attempts = ["link"], log = SILENT }: RunOptions = {}) {
  const clock = createFakeClock();
  const audit = createFakeAudit();
  const links: FakeGateway[] = [];
  const openedAt: number[] = [];
  const stop = new AbortController();
  let tried = 0;
  const ended = runNode({
    id: "pi",
    url: "http://gateway.test",
    open(handlers) {
      openedAt.push(clock.monotonic());
      const outcome = attempts[Math.min(tried++, attempts.length - 1)];
      if (outcome instanceof Error) return Promise.reject(outcome);
      const link: FakeGateway = {
        heard: [],
        handlers,
        closedWith: undefined,
        unsent: 0,
        code: () => link.closedWith?.code,
        say: (frame) => handlers.text(typeof frame === "string" ? frame : JSON.stringify(frame)),
      };
      links.push(link);
      return Promise.resolve({
        send: (text: string) => void link.heard.push(JSON.parse(text)),
        unsent: () => link.unsent,
        close: (code: number, reason: string) => void (link.closedWith ??= { code, reason }),
      });
    },
    work: {
      tools: () => [ECHO as never],
      call: ({ input }) => Promise.resolve({ output: JSON.stringify(input), is_error: false, ran: true }),
      ...work,
    },
    version: "0.1.0",
    platform: "linux x64",
    kit: { clock, random: createSeededRandom(), log },
    audit: audit.append,
    onConnected: () => {},
    signal: stop.signal,
    graceMs: 5000,
  });
  // A test that ends it with a refusal looks at it itself
  ended.catch(() => {});
  const linked = async () => {
    await clock.advance(0);
    const link = links.at(-1);
    assert.ok(link !== undefined);
    link.say(WELCOME);
    return link;
  };
  return { clock, audit, links, openedAt, stop, ended, linked };
}

test("it says hello with its tools, answers calls, describes and pings", async () => {
  const { clock, linked } = run();
  const link = await linked();
  assert.deepEqual(link.heard[0], { type: "hello", v: 1, version: "0.1.0", platform: "linux x64", tools: [ECHO] });
  link.say(INVOKE);
  link.say({ type: "describe", id: "2" });
  link.say({ type: "ping", n: 7 });
  await clock.advance(0);
  assert.deepEqual(link.heard.slice(1), [
    { type: "tools", id: "2", tools: [ECHO] },
    { type: "pong", n: 7 },
    { type: "result", id: "1", output: '{"text":"hi"}', is_error: false, ran: true },
  ]);
});

test("its log has each call with the gateway's id, and what became of it", async () => {
  const lines: unknown[] = [];
  const log: Logger = { ...SILENT, info: (message, fields) => void lines.push([message, fields]) };
  const outcomes = [
    { output: "", is_error: false, ran: true },
    { output: "", is_error: true, ran: true },
    { output: "", is_error: true, ran: false },
  ];
  const { clock, linked } = run({
    log,
    work: {
      async call(_frame, signal) {
        const outcome = outcomes.shift();
        if (outcome !== undefined) return outcome;
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        throw new CancelError("cancelled");
      },
    },
  });
  const link = await linked();
  lines.length = 0;
  for (const id of ["1", "2", "3", "4"]) link.say({ ...INVOKE, id, call_id: `call_${id}` });
  await clock.advance(250.0004);
  link.say({ type: "cancel", id: "4" });
  await clock.advance(0);
  const noted = (call_id: string, outcome: string, duration_ms = 0) => [
    "Call of the gateway",
    { tool: "echo", call_id, outcome, duration_ms },
  ];
  assert.deepEqual(lines, [
    noted("call_1", "ok"),
    noted("call_2", "error"),
    noted("call_3", "not_run"),
    noted("call_4", "stopped", 250),
  ]);
});

test("it connects again by itself, later each time and never at the same moment as all others, up to a minute", async () => {
  const { clock, openedAt } = run({ attempts: [new LinkError("Cannot connect: refused")] });
  await clock.advance(600_000);
  const waits = openedAt.slice(1).map((at, index) => at - (openedAt[index] ?? 0));
  assert.ok(waits.length >= 10 && waits.length <= 30, String(waits.length));
  for (const [index, wait] of waits.entries()) {
    const longest = Math.min(60_000, 1000 * 2 ** index);
    assert.ok(wait >= longest / 2 && wait <= longest, `${index}: ${wait}`);
  }
});

test("after a link that held it comes back soon; what was at work is stopped, dropped and never made again", async () => {
  let stopped = 0;
  let made = 0;
  const { clock, linked, links, openedAt } = run({
    work: {
      call: (_frame, signal) => {
        made++;
        return new Promise((resolve) =>
          signal.addEventListener("abort", () => {
            stopped++;
            resolve({ output: "too late", is_error: false, ran: true });
          })
        );
      },
    },
  });
  const first = await linked();
  await clock.advance(31_000);
  first.say({ type: "ping", n: 1 });
  first.say(INVOKE);
  first.handlers.closed(1006, "");
  await clock.advance(1000);
  assert.equal(openedAt.length, 2);
  const second = await linked();
  await clock.advance(0);
  assert.deepEqual([stopped, made], [1, 1]);
  assert.deepEqual(second.heard.map(({ type }) => type), ["hello"]);
  assert.equal(links.length, 2);
});

test("a refusal that would only be repeated ends it at the first attempt, and not after it was connected once", async () => {
  for (const status of [400, 401, 403, 404]) {
    const { clock, ended } = run({ attempts: [new LinkError("Cannot connect: no", { status })] });
    await clock.advance(0);
    await assert.rejects(ended, { name: "LinkError", message: "Cannot connect: no" });
  }
  const { clock, linked, openedAt } = run({ attempts: ["link", new LinkError("Cannot connect: no", { status: 401 })] });
  (await linked()).handlers.closed(1001, "bye");
  await clock.advance(300_000);
  assert.ok(openedAt.length > 4);
  for (const status of [429, 503, undefined]) {
    const busy = run({ attempts: [new LinkError("Cannot connect: later", { status })] });
    await busy.clock.advance(60_000);
    assert.ok(busy.openedAt.length > 3, String(status));
  }
});

test("it leaves when another node has its id, and when the versions differ", async () => {
  for (const code of [CLOSE.replaced, CLOSE.version]) {
    const { clock, linked, ended } = run();
    (await linked()).handlers.closed(code, "");
    await clock.advance(0);
    await assert.rejects(ended, { name: "LinkError", status: code });
  }
  const { clock, links, ended } = run();
  await clock.advance(0);
  links[0]?.say({ ...WELCOME, v: 2 });
  await clock.advance(0);
  assert.equal(links[0]?.code(), CLOSE.version);
  await assert.rejects(ended, { status: CLOSE.version });
});

test("stopped, it takes no more calls, lets those at work end within the grace, and says goodbye", async () => {
  const call = Promise.withResolvers<{ output: string; is_error: boolean; ran: boolean }>();
  const { clock, linked, stop, ended } = run({ work: { call: () => call.promise } });
  const link = await linked();
  link.say(INVOKE);
  stop.abort();
  link.say({ ...INVOKE, id: "2" });
  await clock.advance(1000);
  assert.deepEqual(link.heard.at(-1), {
    type: "result",
    id: "2",
    output: 'Cannot call "echo": the node is stopping',
    is_error: true,
    ran: false,
  });
  assert.equal(link.code(), undefined);
  call.resolve({ output: "done", is_error: false, ran: true });
  await clock.advance(0);
  assert.equal(link.heard.at(-1).output, "done");
  assert.equal(link.code(), 1000);
  await ended;
  assert.equal(clock.pending(), 0);
});

test("stopped with a call that does not end, it leaves after the grace and stops the call", async () => {
  let aborted = false;
  const { clock, linked, stop, ended } = run({
    work: {
      call: (_frame, signal) => new Promise(() => signal.addEventListener("abort", () => void (aborted = true))),
    },
  });
  (await linked()).say(INVOKE);
  stop.abort();
  await clock.advance(5000);
  await ended;
  assert.equal(aborted, true);
});

test("a hostile gateway is left: no welcome, frames out of turn, used ids, floods, silence", async (t) => {
  const attacks: Record<string, readonly unknown[]> = {
    "no JSON": ["welcome"],
    "a second welcome": [WELCOME],
    "a frame of a node": [{ type: "hello", v: 1, version: "", platform: "", tools: [] }],
    "a call without its fields": [{ type: "invoke", id: "1" }],
    "an input that is no object": [{ ...INVOKE, input: "rm -rf" }],
    "an id that is at work": [INVOKE, INVOKE],
    "a tool whose name is none": [{ ...INVOKE, tool: "../x" }],
    "a frame without end": [`"${"x".repeat(2_097_152)}"`],
  };
  for (const [what, frames] of Object.entries(attacks)) {
    await t.test(what, async () => {
      const { clock, linked, stop } = run({ work: { call: () => new Promise(() => {}) } });
      const link = await linked();
      for (const frame of frames) link.say(frame);
      assert.equal(link.code(), CLOSE.protocol);
      stop.abort();
      await clock.advance(5000);
    });
  }
  await t.test("a call before the welcome", async () => {
    const { clock, links } = run();
    await clock.advance(0);
    links[0]?.say(INVOKE);
    assert.equal(links[0]?.code(), CLOSE.protocol);
  });
  await t.test("no welcome", async () => {
    const { clock, links } = run();
    await clock.advance(10_000);
    assert.equal(links[0]?.code(), CLOSE.protocol);
  });
  await t.test("silence", async () => {
    const { clock, linked } = run();
    const link = await linked();
    await clock.advance(60_000);
    assert.equal(link.code(), CLOSE.protocol);
  });
  await t.test("a heartbeat that would spin", async () => {
    const { clock, links } = run();
    await clock.advance(0);
    links[0]?.say({ ...WELCOME, heartbeat_ms: 1, silence_ms: 1 });
    await clock.advance(999);
    assert.equal(links[0]?.code(), undefined);
  });
  await t.test("it asks and does not read", async () => {
    const { linked } = run();
    const link = await linked();
    link.unsent = 20_000_000;
    link.say({ type: "describe", id: "1" });
    assert.equal(link.code(), CLOSE.protocol);
  });
  await t.test("more calls than may be at work are refused, and none of them is made", async () => {
    let made = 0;
    const { clock, linked } = run({
      work: {
        call: () => {
          made++;
          return new Promise(() => {});
        },
      },
    });
    const link = await linked();
    for (let id = 1; id <= MAX_IN_FLIGHT + 5; id++) link.say({ ...INVOKE, id: String(id) });
    await clock.advance(0);
    assert.equal(made, MAX_IN_FLIGHT);
    assert.equal(link.heard.filter(({ type, ran }) => type === "result" && ran === false).length, 5);
  });
});

test("a result that the gateway would not read is replaced by a sentence; one with too much data loses its data", async () => {
  const results = [{ output: "fits", data: "x".repeat(100_001) }, { output: "x".repeat(100_001) }];
  const { clock, linked } = run({
    work: {
      call: ({ id }) => Promise.resolve({ ...results[Number(id) - 1], is_error: false, ran: true } as never),
    },
  });
  const link = await linked();
  link.say(INVOKE);
  link.say({ ...INVOKE, id: "2" });
  await clock.advance(0);
  assert.deepEqual(link.heard.slice(1), [
    { type: "result", id: "1", output: "fits", is_error: false, ran: true },
    {
      type: "result",
      id: "2",
      output: "Cannot send the output: it is longer than the 100000 bytes that the gateway reads; ask for less",
      is_error: true,
      ran: true,
    },
  ]);
});

test("both ends of a link are in the node's audit", async () => {
  const { clock, audit, linked, stop, ended } = run();
  await linked();
  stop.abort();
  await clock.advance(0);
  await ended;
  assert.deepEqual(audit.events, [
    { type: "node", action: "connected", node_id: "pi", address: "http://gateway.test", reason: null },
    {
      type: "node",
      action: "disconnected",
      node_id: "pi",
      address: "http://gateway.test",
      reason: "1000 The node is stopping",
    },
  ]);
});

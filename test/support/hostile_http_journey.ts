import assert from "node:assert/strict";
import type { McpEra } from "./mcp_gateway.ts";
import { type HostileHttp, HTTP_ACTS, type HttpAttack, type HttpStep, startHostileHttp } from "./hostile_http.ts";
import { type AttackedGateway, withHostileServers } from "./hostile_mcp.ts";
import { jsonOf } from "./json_of.ts";
import { until } from "./until.ts";

/** Secret of each server's `headers`: no redirect and no other address may see it. */
const KEY = "key-of-the-server-4711";

type Act = HttpAttack["act"];
/** Fate of a server: it is ready all the same, or it fails with this reason at once, or when its time is over. */
type Fate = "ready" | { readonly now: RegExp } | { readonly late: RegExp };
/** Fates of servers by the attack. */
export type Fates = Partial<Readonly<Record<Act, Fate>>>;

/** Requests that one server gets in a test at most: no storm of ours answers one of theirs. */
const MOST_REQUESTS = 300;

/** Runs a gateway among servers by `url`. Looks that nothing stays open, and that no request went where a server led. */
export async function withHttpAttacks(
  attacks: Readonly<Record<string, HttpAttack>>,
  use: (gateway: AttackedGateway, http: HostileHttp) => Promise<void>,
): Promise<void> {
  await using http = await startHostileHttp(attacks);
  const settings = { headers: { "X-Key": KEY } };
  const keyed = Object.fromEntries(Object.entries(attacks).map(([name, attack]) => [name, { ...attack, settings }]));
  await withHostileServers(keyed, (gateway) => use(gateway, http), { remote: http });
  await until(() => http.open() === 0, "every reply is over");
  assert.deepEqual(http.trapped, [], "nothing was sent to where a server led");
  for (const name of Object.keys(attacks)) {
    const { length } = http.notes(name);
    // Each of its thousand questions in a session gets its answer
    assert.ok(length < (attacks[name]?.act === "asks" ? 3_000 : MOST_REQUESTS), `"${name}" was asked ${length} times`);
  }
}

/** Makes an attack of each act, under its name. */
export function attacksAt(at: HttpStep, era: McpEra, acts: readonly Act[]): Readonly<Record<string, HttpAttack>> {
  return Object.fromEntries(acts.map((act) => [act, { at, act, era }]));
}

/** Runs a gateway with a server for each attack, and looks at the fate of each start. */
export async function meetHttp(at: HttpStep, era: McpEra, fates: Fates): Promise<void> {
  const acts = Object.keys(fates) as Act[];
  await withHttpAttacks(attacksAt(at, era, acts), async (gateway) => {
    const fails = async (act: Act, reason: RegExp) => {
      await gateway.wait(() => gateway.failures(act).length > 0, `"${act}" fails`);
      const [first = ""] = gateway.failures(act);
      assert.match(first, reason, act);
      assert.ok(first.length < 4_000 && !first.includes(KEY), `the reason of "${act}" is short`);
    };
    for (const act of acts) await gateway.noted(act);
    for (const act of acts) {
      const fate = fates[act];
      if (typeof fate === "object" && "now" in fate) await fails(act, fate.now);
      if (fate === "ready" && act !== "resumes") {
        await gateway.wait(() => gateway.isReady(act), `"${act}" is ready`);
      }
    }
    // Time for a stream to be opened again, then for the start
    await gateway.pass(5_000);
    if (fates.resumes === "ready") await gateway.wait(() => gateway.isReady("resumes"), '"resumes" is ready');
    await gateway.pass(31_000);
    for (const act of acts) {
      const fate = fates[act];
      if (typeof fate === "object" && "late" in fate) await fails(act, fate.late);
    }
  });
}

/** Calls the tool of a server for each attack. Every call ends, with an output that is as it should be. */
export async function callHttp(
  at: "call" | "stream",
  era: McpEra,
  outputs: Partial<Readonly<Record<Act, RegExp>>>,
): Promise<void> {
  const acts = Object.keys(outputs) as Act[];
  await withHttpAttacks(attacksAt(at, era, acts), async (gateway) => {
    // A start waits a second for the stream of changes
    if (at === "stream") {
      for (const act of acts) await gateway.noted(act);
      await gateway.pass(2_000);
    }
    for (const act of acts) await gateway.wait(() => gateway.isReady(act), `"${act}" is ready`);
    const ended = new Map<string, string>();
    for (const act of acts) void gateway.echo(act).then(({ output }) => ended.set(act, output));
    if (at === "call") { for (const act of acts) await gateway.noted(act); }
    // Ten thousand notices take time of the machine, in which the clock of the gateway stands still
    if (acts.includes("endless_notices")) {
      await gateway.wait(() => ended.has("endless_notices"), "the notices end a call");
    }
    for (let seconds = 0; ended.size < acts.length && seconds < 80; seconds += 10) await gateway.pass(10_000);
    await gateway.wait(() => ended.size === acts.length, "every call ends");
    for (const [act, output] of ended) {
      assert.match(output, outputs[act as Act] ?? /^$/, act);
      assert.ok(output.length <= 300_000 && !output.includes(KEY), `the output of "${act}" is bounded`);
    }
  });
}

/** Runs a gateway with a server for each attack there is. Each start and each call ends, in time and with few words. */
export async function outliveHttp(at: HttpStep, era: McpEra): Promise<void> {
  await withHttpAttacks(attacksAt(at, era, HTTP_ACTS), async (gateway) => {
    await gateway.pass(8_000);
    // The machine needs time of its own for what attacks send
    const isOver = (act: Act) => gateway.isReady(act) || gateway.failures(act).length > 0;
    for (let seconds = 0; !HTTP_ACTS.every(isOver) && seconds < 40; seconds += 4) await gateway.pass(4_000);
    for (const act of HTTP_ACTS) await gateway.wait(() => isOver(act), `the start of "${act}" ends`);
    const ended = new Map<string, string>();
    for (const act of HTTP_ACTS) void gateway.echo(act).then(({ output }) => ended.set(act, output ?? "no such tool"));
    for (let seconds = 0; ended.size < HTTP_ACTS.length && seconds < 120; seconds += 10) await gateway.pass(10_000);
    await gateway.wait(() => ended.size === HTTP_ACTS.length, "every call ends");
    for (const text of [...ended.values(), ...HTTP_ACTS.flatMap((act) => gateway.failures(act))]) {
      assert.ok(text.length < 4_000 && !text.includes(KEY), text.slice(0, 200));
    }
  });
}

/** Signs in to a server for each attack on its metadata. Every attempt is refused, in time. */
export async function signInHttp(reasons: Partial<Readonly<Record<Act, RegExp>>>): Promise<void> {
  const acts = Object.keys(reasons) as Act[];
  await withHttpAttacks(attacksAt("metadata", "2025-11-25", acts), async (gateway) => {
    const ended = new Map<string, string>();
    const body = { redirect_uri: "http://127.0.0.1:4711/callback", scope: "", client_id: "" };
    for (const act of acts) {
      const reply = jsonOf(
        gateway.call(`/v1/mcp-servers/${act}/login`, { method: "POST", body }),
      );
      void reply.then(({ error }) => ended.set(act, error?.message ?? "signed in"));
    }
    for (const act of acts) await gateway.noted(act);
    for (let seconds = 0; ended.size < acts.length && seconds < 60; seconds += 4) await gateway.pass(4_000);
    await gateway.wait(() => ended.size === acts.length, "every sign-in ends");
    for (const [act, message] of ended) {
      assert.match(message, reasons[act as Act] ?? /^$/, act);
      assert.ok(message.length < 1_000 && !message.includes(KEY), act);
    }
  });
}

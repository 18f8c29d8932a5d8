import assert from "node:assert/strict";
import type { Script, ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import type { RunStatus } from "../../lib/base/records/run.ts";
import { createStoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { GatewayServices } from "../../lib/services.ts";
import type { Write } from "../../lib/storage/store.ts";
import { toTools } from "../../lib/tools/made_tool.ts";
import { defineProgramTool } from "../../lib/tools/program_tool.ts";
import { appliedText } from "./applied_text.ts";
import { awayError, LEASE_MS } from "./clustered.ts";
import { type LinkedCluster, type LinkedGateway, withCluster } from "./linked_gateways.ts";
import { ask } from "./supervised.ts";

const TURNS: readonly ScriptedTurn[] = [
  { text: ["First, ", "I look."], toolCalls: [{ name: "look" }, { name: "look", arguments: { twice: true } }] },
  { text: ["Then ", "I count."], toolCalls: [{ name: "count" }] },
  { text: ["All ", "done"] },
];
const RESULT = "First, I look.\n\nThen I count.\n\nAll done";

const script: Script = ({ messages }) =>
  TURNS[messages.filter(({ role }) => role === "assistant").length] ?? assert.fail("There is no such turn");

const NOTHING = { type: "object", properties: {}, additionalProperties: false };
const tools = toTools([
  defineProgramTool({
    ...{ name: "look", description: "Looks.", access: "read", outside: false, execute: () => "seen" },
    inputSchema: { ...NOTHING, properties: { twice: { type: "boolean" } } },
  }),
  defineProgramTool({
    ...{ name: "count", description: "Counts.", access: "state", outside: false, execute: () => "1" },
    inputSchema: NOTHING,
  }),
], () => false);

/** Crashes of one run. Records are counted from 1. */
export interface Crashes {
  /** Record of the run at which its owner dies. */
  readonly at: number;
  /** Tells whether the record is in the journal. */
  readonly when: "before" | "after";
  /** Record of the next owner at which that dies too. Default: it does not */
  readonly again?: number;
}

/** Outcome of the crashes of one run. */
export interface Crashed {
  /** Number of records that the first owner tried to write */
  readonly records: number;
  /** Number of records that the others tried to write */
  readonly later: number;
  /** Number of places from which followers went on */
  readonly places: number;
  /** True: a person decided about a call that was cut off */
  readonly isReviewed: boolean;
}

/** Gives three gateways, of which the second has links and the third has none, and a function that strikes a run of the first. */
export async function withCrashes(
  use: (strike: (crashes: Crashes) => Promise<Crashed>) => Promise<void>,
): Promise<void> {
  await withCluster(async (cluster) => {
    const gateways = [
      await cluster.start("a", { script, tools }),
      await cluster.start("b", { script, tools }),
      await cluster.start("c", { script, tools, token: undefined, advertises: false }),
    ] as const;
    await cluster.pass(2 * LEASE_MS);
    await use((crashes) => strikeRun({ cluster, gateways }, crashes));
  });
}

interface Place {
  readonly cluster: LinkedCluster;
  readonly gateways: readonly [LinkedGateway, LinkedGateway, LinkedGateway];
}

/** Kills owners of a run, and checks what followers have in sum, wherever each of them was. */
async function strikeRun({ cluster, gateways }: Place, { at, when, again }: Crashes): Promise<Crashed> {
  const { pass, passUntil } = cluster;
  const [owner, ...others] = gateways;
  const name = `dead ${when} record ${at}${again === undefined ? "" : `, the next one at ${again}`}`;
  const { id, first } = await startAt(cluster, owner, { at, when });
  const next = cutAt(others, { at: again ?? Infinity, when: "before" });
  const readers = gateways.map((gateway) => new Reader(gateway, id));
  // A machine that is cut off goes on for a moment: the model speaks, and whoever reads there is shown what may be shown
  await pass(20);
  const shown = [...readers[0]?.events ?? []];
  kill(cluster, owner);
  let [isReviewed, isDeciding] = [false, false];
  await untilCompleted(cluster, id, async (status) => {
    const dead = others.find(({ database }) => database.isCut);
    if (dead !== undefined) {
      kill(cluster, dead);
      revive(cluster, owner);
    }
    if (status !== "needs_review" || isDeciding) return;
    isReviewed = isDeciding = true;
    const there = gateways.find(({ database }) => !database.isCut) ?? assert.fail("All are dead");
    const by = { via: "http", tokenId: "tok_person" } as const;
    // The decision is a record too: it may wait for the database, and where it is cut off the person decides again
    void runsOf(there).resolve(id, { action: "resume", outcome: "done", by }).catch(() => {})
      .finally(() => isDeciding = false);
  });
  for (const gateway of gateways) revive(cluster, gateway);
  const moved = gateways.flatMap((gateway) =>
    Array.from({ length: shown.length + 1 }, (_, count) => new Reader(gateway, id, shown.slice(0, count)))
  );
  for (const reader of [...readers, ...moved]) {
    await passUntil(() => reader.isDone(), `${name}: a reader comes to the end`);
    reader.check(name);
  }
  return { records: first.records, later: next.records, places: moved.length, isReviewed };
}

/** Starts a run that its gateway owns. One that has just come back may have to prove first that it has the workspace. */
async function startAt(cluster: LinkedCluster, owner: LinkedGateway, crash: Pick<Crashes, "at" | "when">) {
  for (;;) {
    await cluster.passUntil(() => owner.services.cluster.lease.mayAct() === true, "the owner is there");
    const first = cutAt([owner], crash);
    const { id } = await runsOf(owner).start(ask("Go", { durable: true }));
    const claim = (await cluster.database.store.get(RUN_CLAIMS.name, id))?.body as
      | { readonly gateway: string | null }
      | undefined;
    if (claim?.gateway === owner.services.cluster.id || first.records > 0) return { id, first };
    revive(cluster, owner);
    await untilCompleted(cluster, id, async () => {});
  }
}

function kill({ network }: LinkedCluster, { name, router }: LinkedGateway): void {
  network.remove(name);
  for (const { close } of router.connections.followers.all()) close();
}

function revive({ network }: LinkedCluster, { name, router, database }: LinkedGateway): void {
  database.isCut = false;
  database.onBatch = (_, make) => make();
  network.add(name, router);
}

/** Lets time pass until the journal has the end of a run with its result. */
async function untilCompleted(
  { database, pass }: LinkedCluster,
  id: string,
  meanwhile: (status: RunStatus | undefined) => Promise<void>,
): Promise<void> {
  // The records themselves, whoever is cut off
  const stored = createStoredRuns({ store: database.store });
  for (let passed = 0;; passed += 50) {
    const run = await stored.get(id);
    if (run?.status === "completed") return assert.equal(run.result, RESULT);
    assert.ok(passed < 60_000, `${id} does not end: ${run?.status}`);
    await meanwhile(run?.status);
    await pass(50);
  }
}

/** Cuts the gateway off that makes the n-th record among all records of runs that some gateways make. */
function cutAt(
  gateways: readonly LinkedGateway[],
  { at, when }: { readonly at: number; readonly when: "before" | "after" },
): { records: number } {
  const counted = { records: 0 };
  for (const { database } of gateways) {
    database.onBatch = async (writes, make) => {
      if (database.isCut || !writes.some(isRecord) || ++counted.records !== at) return await make();
      if (when === "after") await make();
      database.isCut = true;
      throw awayError();
    };
  }
  return counted;
}

function isRecord(write: Write): boolean {
  return write.op === "append" && write.stream.startsWith("run/");
}

function runsOf({ services }: LinkedGateway): NonNullable<GatewayServices["agent"]>["runs"] {
  return services.agent?.runs ?? assert.fail("There is no agent");
}

/** A client that follows a run, and goes on where it was when the database is down or a person has decided. */
class Reader {
  readonly #events: AgentEvent[];

  /** @param before events that it got elsewhere */
  constructor(gateway: LinkedGateway, id: string, before: readonly AgentEvent[] = []) {
    this.#events = [...before];
    void this.#read(gateway, id);
  }

  get events(): readonly AgentEvent[] {
    return this.#events;
  }

  isDone(): boolean {
    return this.#events.at(-1)?.type === "done";
  }

  check(name: string): void {
    assert.equal(appliedText(this.#events), RESULT, name);
    const seqs = this.#events.map(({ seq }) => seq);
    assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b), `${name}: seqs only grow`);
  }

  async #read(gateway: LinkedGateway, id: string): Promise<void> {
    const { signal } = new AbortController();
    while (!this.isDone()) {
      const options = { afterSeq: this.#events.at(-1)?.seq ?? 0, signal };
      const batches = await runsOf(gateway).follow(id, options).catch(() => undefined);
      for await (const batch of batches ?? []) this.#events.push(...batch);
      if (!this.isDone()) await gateway.services.clock.sleep(50);
    }
  }
}

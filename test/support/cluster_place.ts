import assert from "node:assert/strict";
import { systemClock, withTimeout } from "../../lib/base/clock.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { appliedText } from "./applied_text.ts";
import { ClusterFirings } from "./cluster_firings.ts";
import { ClusterTokens } from "./cluster_tokens.ts";
import type { CallInit } from "./gateway_call.ts";
import { ALWAYS_ASK, type ThroughKills, type WorkPlace, workThroughKills } from "./mixed_work.ts";
import { readSse } from "./sse.ts";
import {
  type StruckCluster,
  type StruckClusterOptions,
  type StruckGateway,
  withStruckCluster,
} from "./struck_cluster.ts";
import { MIXED_WORK } from "./work_kinds.ts";

/** Time in which a reader is at the end of a run that is over. Milliseconds */
const READER_MS = 30_000;
/** Pauses of a reader before its next connection. Many readers wait while no gateway is there, and share this process with the way to the database. Milliseconds */
const READER_PAUSES_MS = { next: 20, afterFailure: 250 } as const;
/** A reader goes on at another gateway after one piece of its answer in eight. */
const CHANCES: readonly boolean[] = [true, ...Array.from({ length: 7 }, () => false)];

/** Work through failures of a cluster. */
export interface ThroughFailuresOptions extends StruckClusterOptions {
  /** Number of failures */
  readonly strikes: number;
  /** Pieces of work begun before each */
  readonly pieces: number;
  /** Milliseconds of work before a failure, at most */
  readonly maxWorkMs: number;
}

/** Work that was done through all failures. */
export interface ThroughFailures extends ThroughKills {
  /** Tokens that were made and revoked, and requests with them that were accepted, and refused after a revocation. */
  readonly tokens: ClusterTokens["counts"];
  /** Firings of schedules that began a run. */
  readonly firings: number;
}

/**
 * Does work of all kinds at three gateways over one PostgreSQL, as `workThroughKills` does, while tokens are made and revoked, schedules
 * fire and readers change gateways.
 */
export async function workThroughFailures(options: ThroughFailuresOptions): Promise<ThroughFailures> {
  const { strikes, pieces, maxWorkMs, seed } = options;
  let place: ClusterPlace | undefined = undefined;
  const done = await workThroughKills({
    kinds: MIXED_WORK,
    kills: strikes,
    pieces,
    maxWorkMs,
    seed,
    at: (baseUrl, use) =>
      withStruckCluster(options, { baseUrl, alwaysAsk: ALWAYS_ASK }, async (cluster) => {
        place = new ClusterPlace(cluster);
        try {
          await use(place);
        } finally {
          place.end();
        }
      }),
  });
  const { tokens, firings } = place ?? assert.fail("No work was done");
  return { ...done, tokens, firings };
}

class ClusterPlace implements WorkPlace {
  readonly workspace: string;
  readonly #cluster: StruckCluster;
  readonly #tokens: ClusterTokens;
  readonly #firings: ClusterFirings;
  /** Readers of runs, by run, each of whom goes on at another gateway when its connection ends. */
  readonly #readers = new Map<string, Promise<readonly AgentEvent[]>>();
  #isEnded = false;
  firings = 0;

  constructor(cluster: StruckCluster) {
    this.#cluster = cluster;
    this.workspace = cluster.workspace;
    this.#tokens = new ClusterTokens(cluster);
    this.#firings = new ClusterFirings(cluster);
  }

  get tokens(): ClusterTokens["counts"] {
    return this.#tokens.counts;
  }

  call(path: string, init?: CallInit): Promise<Response> {
    return this.#cluster.call(path, init);
  }

  async strike(): Promise<void> {
    this.#tokens.assertRight();
    await this.#firings.begin();
    await this.#cluster.strike();
  }

  /** Ends the readers, also those of runs that a failed test leaves without an end. */
  end(): void {
    this.#isEnded = true;
    this.#tokens.stop();
  }

  async calm(): Promise<void> {
    await this.#cluster.calm();
    await this.#tokens.end();
    await this.#firings.end();
  }

  accepted(runId: string): void {
    if (this.#readers.has(runId)) return;
    const reading = this.#follow(runId);
    reading.catch(() => {});
    this.#readers.set(runId, reading);
  }

  /** Asserts that every gateway gives the same events of each run, whole or in parts, and that followers who changed gateways have them. */
  async check(runs: readonly Run[]): Promise<void> {
    await this.#tokens.check();
    this.firings = await this.#firings.check(runs);
    for (const { id, result } of runs) {
      const [first = "", ...others] = await Promise.all(
        this.#cluster.members.map((member) => textOfEvents(member, id)),
      );
      for (const other of others) assert.equal(other, first, `the events of ${id} are the same at every gateway`);
      const events = eventsIn(first);
      const after = events[Math.floor(events.length / 2)]?.seq ?? 0;
      const [part = "", ...parts] = await Promise.all(
        this.#cluster.members.map((member) => textOfEvents(member, id, { "last-event-id": String(after) })),
      );
      for (const other of parts) assert.equal(other, part, `${id} goes on from ${after} at every gateway`);
      assert.deepEqual(eventsIn(part), events.filter(({ seq }) => seq > after));
      const read = await this.#readTo(id);
      if (read === undefined) continue;
      for (const [index, { seq }] of read.entries()) assert.ok(seq > (read[index - 1]?.seq ?? 0), `${id} in order`);
      assert.equal(appliedText(read), result ?? "", `what a reader of ${id} has who changed gateways`);
      assert.deepEqual(read.at(-1), events.at(-1));
    }
    const checked = new Set(runs.map(({ id }) => id));
    for (const id of this.#readers.keys()) assert.ok(checked.has(id), `${id} was accepted and is lost`);
  }

  /** Returns what the reader of a run has, who is at its end by now. */
  async #readTo(id: string): Promise<readonly AgentEvent[] | undefined> {
    const reader = this.#readers.get(id);
    if (reader === undefined) return undefined;
    const read = await withTimeout(reader, { ms: READER_MS, clock: systemClock });
    return read ?? assert.fail(`the reader of ${id} is not at its end`);
  }

  /** Reads the events of a run to the terminal one, at another gateway whenever a connection ends or is cut. */
  async #follow(runId: string): Promise<readonly AgentEvent[]> {
    const read: AgentEvent[] = [];
    while (!this.#isEnded) {
      let pauseMs: number = READER_PAUSES_MS.afterFailure;
      try {
        const reply = await this.call(`/v1/runs/${runId}/events`, {
          headers: { "last-event-id": String(read.at(-1)?.seq ?? 0) },
        });
        if (reply.status === 200) pauseMs = READER_PAUSES_MS.next;
        let rest = "";
        const decoder = new TextDecoder();
        for await (const part of reply.status === 200 ? reply.body ?? [] : []) {
          const blocks = (rest + decoder.decode(part, { stream: true })).split("\n\n");
          rest = blocks.pop() ?? "";
          read.push(...blocks.flatMap(eventsIn));
          if (isOver(read.at(-1))) return read;
          if (this.#cluster.any(CHANCES) === true) break;
        }
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      }
      await systemClock.sleep(pauseMs);
    }
    return read;
  }
}

async function textOfEvents(
  { gateway }: StruckGateway,
  id: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const reply = await gateway.call(`/v1/runs/${id}/events`, { headers });
  assert.ok(reply.status === 200 || reply.status === 204, `${reply.status}`);
  return await reply.text();
}

/** Tells whether nothing comes after an event. A run that waits for a person has an end that the person takes back. */
function isOver(last: AgentEvent | undefined): boolean {
  return last !== undefined && isTerminal(last) && !(last.type === "error" && last.code === "needs_review");
}

function eventsIn(text: string): readonly AgentEvent[] {
  return readSse(text).data.map((data) => JSON.parse(data) as AgentEvent);
}

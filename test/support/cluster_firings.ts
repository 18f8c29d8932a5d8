import assert from "node:assert/strict";
import { systemClock } from "../../lib/base/clock.ts";
import type { Run } from "../../lib/base/records/run.ts";
import type { Firing, Schedule } from "../../lib/base/records/schedule.ts";
import type { AskedGateway } from "./work_kinds.ts";

/** Schedules that fire in the same moment, at the begin of each minute. */
const RECURRING = ["each-minute-1", "each-minute-2", "each-minute-3", "each-minute-4"];
const MINUTE_MS = 60_000;
/** Time that a schedule may lag behind, for a pause of the gateways about the begin of a minute. Milliseconds */
const GRACE_MS = 5_000;
const PAUSE_MS = 100;

/** Schedules that fire each minute at gateways of which some fail. Each of their times has one record, and each record its own run. */
export class ClusterFirings {
  readonly #gateways: AskedGateway;
  #beginning: Promise<void> | undefined = undefined;
  /** Time until which the schedules fired, in ms since the epoch. Undefined while they do */
  #pausedAt: number | undefined = undefined;

  /** @param gateways answers at any of the gateways */
  constructor(gateways: AskedGateway) {
    this.#gateways = gateways;
  }

  /** Makes the schedules, once. */
  begin(): Promise<void> {
    return this.#beginning ??= this.#add();
  }

  /** Pauses the schedules. */
  async end(): Promise<void> {
    if (this.#pausedAt !== undefined) return;
    this.#pausedAt = systemClock.now();
    for (const id of RECURRING) await this.#tool("cron_pause", { id });
  }

  /**
   * Asserts that every time of a schedule was dealt with once.
   * @param runs all runs
   */
  async check(runs: readonly Run[]): Promise<number> {
    const started: string[] = [];
    const schedules = [...await this.#list("/v1/schedules?"), ...await this.#list("/v1/schedules?state=done&")];
    for (const schedule of schedules as readonly Schedule[]) {
      const firings = (await this.#list(`/v1/schedules/${schedule.id}/history?`)) as readonly Firing[];
      const times = firings.map(({ time }) => time);
      assert.equal(new Set(times).size, times.length, `${schedule.id} has one record for each time: ${times}`);
      for (const { time, status, run_id, reason } of firings) {
        if (status === "started") started.push(run_id ?? assert.fail(`${schedule.id} ${time} has no run`));
        else assert.notEqual(status, "failed", `${schedule.id} ${time}: ${reason}`);
      }
      if (schedule.kind === "once") assert.deepEqual(firings.map(({ status }) => status), ["started"], schedule.id);
      else this.#checkMinutes(schedule, firings);
    }
    const ofSchedules = runs.filter(({ kind }) => kind === "cron").map(({ id }) => id);
    assert.deepEqual(
      ofSchedules.toSorted(),
      started.toSorted(),
      "each firing has its own run, and each run its firing",
    );
    return started.length;
  }

  async #add(): Promise<void> {
    for (const id of RECURRING) {
      await this.#tool("cron_add", { id, schedule: "* * * * *", tool: "glob_search", input: { pattern: "*.none" } });
    }
  }

  #checkMinutes({ id, created_at }: Schedule, firings: readonly Firing[]): void {
    const from = (Math.floor(Date.parse(created_at) / MINUTE_MS) + 1) * MINUTE_MS;
    for (let due = from; due < (this.#pausedAt ?? 0) - GRACE_MS; due += MINUTE_MS) {
      const covering = firings.filter(({ time, missed_until }) =>
        Date.parse(time) <= due && due <= Date.parse(missed_until ?? time)
      );
      assert.equal(covering.length, 1, `${id} at ${new Date(due).toISOString()}: ${JSON.stringify(firings)}`);
    }
  }

  async #list(path: string): Promise<readonly unknown[]> {
    const all: unknown[] = [];
    for (let after = "";;) {
      const { data, has_more, last_id } = await this.#read(`${path}limit=100${after}`);
      all.push(...data);
      if (has_more !== true) return all;
      after = `&after=${last_id}`;
    }
  }

  async #tool(tool: string, input: Readonly<Record<string, unknown>>): Promise<void> {
    const { id } = input;
    // A call whose answer was lost is not made twice
    const key = `${tool}-${id}`;
    await this.#read(`/v1/tools/${tool}/call`, { headers: { "idempotency-key": key }, body: { input } }, [409]);
  }

  /** Asks until some gateway can answer. */
  async #read(path: string, init: Parameters<AskedGateway["call"]>[1] = {}, also: readonly number[] = []) {
    for (;;) {
      try {
        const reply = await this.#gateways.call(path, init);
        const text = await reply.text();
        if (reply.status !== 503) {
          assert.ok([200, ...also].includes(reply.status), `${path}: ${reply.status} ${text}`);
          return JSON.parse(text);
        }
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      }
      await systemClock.sleep(PAUSE_MS);
    }
  }
}

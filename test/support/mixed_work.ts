import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { isAtWork, type Run, runStatusSchema } from "../../lib/base/records/run.ts";
import { appliedText } from "./applied_text.ts";
import type { CallInit } from "./gateway_call.ts";
import { withKillableGateway } from "./killable_gateway.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { readSse } from "./sse.ts";
import { type AskedGateway, type Begun, PROCEDURE, startModel, textOf, type WorkKind } from "./work_kinds.ts";

/** For all that is left to do after the last kill, longer than it takes on a slow host: in all, and for each piece of work */
const LIMIT_MS = 240_000;
const LIMIT_PER_PIECE_MS = 500;
/** Runs that may wait when the next pieces of work are begun, and how long more of them hold these up. Milliseconds */
const LINE = 40;
const LINE_MS = 20_000;

export interface ThroughKillsOptions {
  readonly kinds: readonly WorkKind[];
  readonly kills: number;
  /** Pieces of work begun between two kills */
  readonly pieces: number;
  /** Milliseconds of work before a kill, at most */
  readonly maxWorkMs: number;
  readonly seed: number;
  /** Place of the work. Default: one gateway, which is killed and started again */
  readonly at?: AtPlace;
}

/** Runs `use` at a place of work, whose model is the upstream of the address. */
export type AtPlace = (baseUrl: string, use: (place: WorkPlace) => Promise<void>) => Promise<void>;

/** Tools that a person is asked about in the work of all kinds. */
export const ALWAYS_ASK: readonly string[] = ["process_tool"];

/** The work that was done through all kills. */
export interface ThroughKills {
  readonly pieces: number;
  readonly effects: number;
  /** Runs that a person had to look after */
  readonly reviews: number;
}

interface Piece {
  readonly kind: WorkKind;
  readonly tag: string;
  begun: Begun | undefined;
}

/** Place where work is done while something goes wrong again and again. */
export interface WorkPlace extends AskedGateway {
  readonly workspace: string;
  /** Kills a gateway, or does worse, and mends what it has broken, now or later. */
  strike(): Promise<void>;
  /** Receives each run that was accepted. Default: nobody is */
  accepted?(runId: string): void;
  /** Ends the strikes: resolves when everything is mended. Default: everything is */
  calm?(): Promise<void>;
  /** Asserts what is special about the place, with the runs as they are in the end. */
  check?(runs: readonly Run[]): Promise<void>;
}

/** Runs `use` at a gateway that is killed with SIGKILL. */
const atOneGateway: AtPlace = (baseUrl, use) =>
  withKillableGateway({ baseUrl, alwaysAsk: ALWAYS_ASK }, (gateway) =>
    use({
      workspace: gateway.workspace,
      call: (path, init) => gateway.call(path, init),
      async strike() {
        await gateway.kill();
        await gateway.restart();
      },
    }));

/**
 * Does work of all kinds at a place where something goes wrong at random moments, by default a gateway that is killed with SIGKILL, with a
 * person who answers every approval and looks after the calls whose end nobody saw. Asserts that nothing accepted is lost, no effect is
 * doubled, every run is in a legal state, and what a client of its events has is its stored result.
 */
export async function workThroughKills(options: ThroughKillsOptions): Promise<ThroughKills> {
  const { kinds, at = atOneGateway } = options;
  const upstream = await startModel(kinds);
  const pieces: Piece[] = [];
  let reviews = 0;
  try {
    await at(`${upstream.origin}/v1`, async (place) => {
      mkdirSync(join(place.workspace, ".postern", "sops"), { recursive: true });
      writeFileSync(join(place.workspace, ".postern", "sops", "steps.toml"), PROCEDURE);
      const effects = () => linesOf(join(place.workspace, "effects"));
      /** Begins what is not begun, and helps, until told to stop. */
      const work = async (stop: () => boolean, until: () => Promise<boolean>) => {
        while (!stop() && await unlessGone(until) !== true) {
          await Promise.all(pieces.filter(({ begun }) => begun === undefined).map((piece) => begin(place, piece)));
          reviews += await unlessGone(() => help(place, effects)) ?? 0;
          await systemClock.sleep(20);
        }
      };
      await strikeDuring((stop) => work(stop, () => Promise.resolve(false)), { place, pieces, options });
      const limit = systemClock.monotonic() + LIMIT_MS + pieces.length * LIMIT_PER_PIECE_MS;
      await work(() => systemClock.monotonic() > limit, async () => {
        if (pieces.some(({ begun }) => begun === undefined) || !isWhole(pieces, effects())) return false;
        // A run whose acceptance was cut off may be to come
        if (await hasPlans(place)) return false;
        // All effects and plans have their runs by now
        return !(await listRuns(place)).some(({ status }) => isAtWork(status) || status === "needs_review");
      });
      await check(place, pieces, effects());
    });
  } finally {
    await upstream.close();
  }
  return { pieces: pieces.length, effects: pieces.flatMap(effectsOf).length, reviews };
}

/** Adds pieces of work and strikes, while `work` goes on until the last strike is over. */
async function strikeDuring(
  work: (stop: () => boolean) => Promise<void>,
  { place, pieces, options }: {
    readonly place: WorkPlace;
    readonly pieces: Piece[];
    readonly options: ThroughKillsOptions;
  },
): Promise<void> {
  const random = createSeededRandom(options.seed);
  let isOver = false;
  const failed = Promise.withResolvers<never>();
  const working = work(() => isOver);
  working.catch(failed.reject);
  try {
    for (let kill = 0; kill < options.kills; kill++) {
      await Promise.race([failed.promise, untilFewWait(place)]);
      for (let i = 0; i < options.pieces; i++) {
        const kind = options.kinds[pieces.length % options.kinds.length] ?? assert.fail("There is no work");
        pieces.push({ kind, tag: `${kind.name}-${pieces.length}`, begun: undefined });
      }
      const [high = 0, low = 0] = random.bytes(2);
      await Promise.race([failed.promise, systemClock.sleep(5 + (options.maxWorkMs * (256 * high + low)) / 65_536)]);
      await place.strike();
    }
    await place.calm?.();
  } finally {
    isOver = true;
    await working;
  }
}

/** Waits while much work waits, so that strikes hit the work and not its line. Work that does not go on is not waited for. */
async function untilFewWait(place: WorkPlace): Promise<void> {
  const limit = systemClock.monotonic() + LINE_MS;
  while (systemClock.monotonic() < limit) {
    const waiting = await unlessGone(() => read(place, `/v1/runs?status=queued&limit=${LINE}`));
    if (waiting !== undefined && waiting.data.length < LINE) return;
    await systemClock.sleep(100);
  }
}

/** Begins a piece. One that a kill cut off is begun again later with the same key. */
async function begin(place: WorkPlace, piece: Piece): Promise<void> {
  piece.begun = await unlessGone(() => piece.kind.begin(place, piece.tag));
  if (piece.begun?.runId !== undefined) place.accepted?.(piece.begun.runId);
}

/** Returns undefined where the gateway that was asked is gone. */
async function unlessGone<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof TypeError || error instanceof NotNow) return undefined;
    throw error;
  }
}

/** Error of a gateway that answers that it cannot now, as while its database is away. */
class NotNow extends Error {}

/** Asks for something. @throws {NotNow} */
async function read(place: AskedGateway, path: string, init?: CallInit) {
  const reply = await place.call(path, init);
  const text = await reply.text();
  if (reply.status === 503) throw new NotNow(text);
  assert.equal(reply.status, 200, `${path}: ${text}`);
  return JSON.parse(text);
}

/**
 * Answers what is asked, and says of each call whose end nobody saw what its effect says.
 * @param effects reads the effects that there are now
 * @returns how many these were
 */
async function help(gateway: AskedGateway, effects: () => readonly string[]): Promise<number> {
  const { data: approvals } = await read(gateway, "/v1/approvals?status=pending&limit=100");
  for (const { id } of approvals) await gateway.call(`/v1/approvals/${id}`, { body: { decision: "approve" } });
  const { data: open } = await read(gateway, "/v1/runs?status=needs_review&limit=100");
  for (const { id } of open as readonly Run[]) {
    const started = (await eventsOf(gateway, id)).findLast(({ type }) => type === "tool_start");
    const name = /echo (\S+) >>/.exec(JSON.stringify(started))?.[1] ?? assert.fail(`${id} waits without a call`);
    // Read now and not before: a request to a gateway that stands still takes seconds
    const outcome = effects().includes(name) ? "done" : "not_done";
    await gateway.call(`/v1/runs/${id}/resolve`, { body: { action: "resume", outcome } });
  }
  return open.length;
}

async function check(gateway: WorkPlace, pieces: readonly Piece[], effects: readonly string[]): Promise<void> {
  const runs = await listRuns(gateway);
  for (const run of runs) {
    assert.ok(runStatusSchema.options.includes(run.status) && !isAtWork(run.status), `${run.id} is ${run.status}`);
  }
  for (const piece of pieces) {
    const { kind, tag, begun } = piece;
    for (const name of effectsOf(piece)) {
      const count = effects.filter((line) => line === name).length;
      assert.ok(count <= 1, `${name} took effect ${count} times`);
      assert.ok(count === 1 || mayLose(piece), `${name} was lost`);
    }
    if (begun?.runId === undefined) continue;
    const run = runs.find(({ id }) => id === begun.runId) ?? assert.fail(`${tag} was accepted and is lost`);
    assert.deepEqual([run.status, run.error], ["completed", null], tag);
    assert.equal(run.result, textOf(kind.turns?.(tag) ?? []), tag);
    assert.equal(appliedText(await eventsOf(gateway, run.id)), run.result, `what a client of ${tag} has`);
  }
  const said: string[] = [];
  for (let after = "0", more = true; more;) {
    const { messages } = await read(gateway, `/v1/conversations/talk?limit=100&after=${after}`);
    for (const { role, content } of messages.data) if (role === "user") said.push(content);
    [after, more] = [messages.last_id, messages.has_more];
  }
  const talked = pieces.flatMap(({ kind, tag }) => (kind.name === "talk" ? [tag] : []));
  assert.deepEqual(said.toSorted(), talked.toSorted(), "everything was said once");
  await gateway.check?.(runs);
}

function isWhole(pieces: readonly Piece[], effects: readonly string[]): boolean {
  return pieces.filter((piece) => !mayLose(piece)).flatMap(effectsOf).every((name) => effects.includes(name));
}

function mayLose({ kind, begun }: Piece): boolean {
  return kind.mayLose === true || begun?.isUnsure === true;
}

function effectsOf({ kind, tag }: Piece): readonly string[] {
  return kind.effects?.(tag) ?? [];
}

async function listRuns(gateway: AskedGateway): Promise<readonly Run[]> {
  const runs: Run[] = [];
  for (let after = "";;) {
    const page = await read(gateway, `/v1/runs?limit=100${after}`);
    runs.push(...page.data);
    if (page.has_more !== true) return runs;
    after = `&after=${page.last_id}`;
  }
}

/** Returns true when a schedule or a procedure is left that still starts a run. */
async function hasPlans(gateway: AskedGateway): Promise<boolean> {
  const { data: schedules } = await read(gateway, "/v1/schedules?state=active");
  const { data: { open } } = await read(gateway, "/v1/tools/sop_list/call", {
    body: { input: {} },
  });
  return schedules.length > 0 || open.length > 0;
}

/** Reads the events of a run to its end, or to where it waits for a person. @throws {NotNow} where they break off */
async function eventsOf(gateway: AskedGateway, id: string): Promise<readonly AgentEvent[]> {
  const reply = await gateway.call(`/v1/runs/${id}/events`);
  const text = await reply.text();
  if (reply.status !== 200) throw new NotNow(text);
  const events: readonly AgentEvent[] = readSse(text).data.map((data) => JSON.parse(data));
  const last = events.at(-1);
  if (last === undefined || !isTerminal(last)) throw new NotNow(`the events of ${id} broke off`);
  return events;
}

function linesOf(path: string): readonly string[] {
  try {
    return readFileSync(path, "utf8").split("\n").filter((line) => line !== "");
  } catch {
    return [];
  }
}

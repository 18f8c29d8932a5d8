import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { isAtWork, type Run, runStatusSchema } from "../../lib/base/records/run.ts";
import { appliedText } from "./applied_text.ts";
import { jsonOf } from "./json_of.ts";
import { type KillableGateway, withKillableGateway } from "./killable_gateway.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { readSse } from "./sse.ts";

/** For all that is left to do after the last kill, longer than it takes on a slow host */
const LIMIT_MS = 240_000;

/** The model's words in one turn: texts, each a read of the network, and then calls. */
export interface SaidTurn {
  readonly texts?: readonly string[];
  readonly calls?: readonly { readonly name: string; readonly input: unknown }[];
}

/** A piece of work that was begun. */
export interface Begun {
  /** Where it is a run */
  readonly runId?: string;
  /** The gateway says that it may not have begun: it was killed before it answered */
  readonly isUnsure?: boolean;
}

/** A kind of work that is killed in the middle. */
export interface WorkKind {
  readonly name: string;
  /** Begins a piece of it; called again with the same key where the answer was cut off. undefined: too much waits, later */
  readonly begin: (gateway: KillableGateway, tag: string) => Promise<Begun | undefined>;
  /** Turns of the model for a user who says `tag` */
  readonly turns?: (tag: string) => readonly SaidTurn[];
  /** The names of its effects, each of which is a line of the file `effects` */
  readonly effects?: (tag: string) => readonly string[];
  /** An effect may be missing, as that of a process which the kill took along; never doubled. Default false */
  readonly mayLose?: boolean;
}

/** A command whose effect is one line more; it ends a moment later. */
const effect = (name: string) => `sh -c "echo ${name} >> effects; sleep 0.02"`;
const shell = (name: string) => ({ name: "shell", input: { command: effect(name) } });

const startRun = async (gateway: KillableGateway, tag: string, conversationId?: string): Promise<Begun | undefined> => {
  const body = { message: tag, ...(conversationId === undefined ? {} : { conversation_id: conversationId }) };
  const reply = await gateway.call("/v1/runs", { headers: { "idempotency-key": tag }, body });
  const text = await reply.text();
  if (reply.status === 503) return undefined;
  assert.equal(reply.status, 202, text);
  return { runId: String(JSON.parse(text).id) };
};
const callTool = async (gateway: KillableGateway, tag: string, tool: string, input: unknown): Promise<Begun> => {
  const reply = await gateway.call(`/v1/tools/${tool}/call`, { headers: { "idempotency-key": tag }, body: { input } });
  const text = await reply.text();
  // A call that was cut off is not made again: its outcome is unknown to its caller
  assert.ok(reply.status === 200 || reply.status === 409, text);
  assert.ok(reply.status === 409 || JSON.parse(text).is_error === false, text);
  return { isUnsure: reply.status === 409 };
};

/** All kinds of work. A new kind of durable work is one entry more. */
export const MIXED_WORK: readonly WorkKind[] = [
  {
    name: "text",
    begin: startRun,
    turns: (tag) => [{ texts: [`${tag} `, "in ", "some ", "parts"] }],
  },
  {
    name: "reads",
    begin: startRun,
    turns: (tag) => [
      { texts: ["I look.\n"], calls: [{ name: "glob_search", input: { pattern: "*" } }] },
      { calls: [{ name: "glob_search", input: { pattern: "*.md" } }, { name: "task_plan", input: { op: "list" } }] },
      { texts: ["Seen ", tag] },
    ],
  },
  {
    name: "effects",
    begin: startRun,
    turns: (tag) => [
      { texts: ["One."], calls: [shell(`${tag}-1`)] },
      { texts: ["Two."], calls: [shell(`${tag}-2`), shell(`${tag}-3`)] },
      { texts: ["Done ", tag] },
    ],
    effects: (tag) => [`${tag}-1`, `${tag}-2`, `${tag}-3`],
  },
  {
    name: "approvals",
    begin: startRun,
    turns: (tag) => [
      { texts: ["May I?"], calls: [{ name: "process_tool", input: { op: "start", command: effect(`${tag}-1`) } }] },
      { texts: ["Thank you"] },
    ],
    effects: (tag) => [`${tag}-1`],
    mayLose: true,
  },
  {
    name: "talk",
    begin: (gateway, tag) => startRun(gateway, tag, "talk"),
    turns: (tag) => [{ calls: [shell(`${tag}-1`)] }, { texts: ["Said ", tag] }],
    effects: (tag) => [`${tag}-1`],
  },
  {
    name: "schedules",
    begin: (gateway, tag) =>
      callTool(gateway, tag, "schedule", { id: tag, in: "1s", tool: "shell", input: { command: effect(`${tag}-1`) } }),
    effects: (tag) => [`${tag}-1`],
  },
  {
    name: "procedures",
    begin: (gateway, tag) => callTool(gateway, tag, "sop_execute", { sop: "steps", inputs: { tag } }),
    effects: (tag) => [`${tag}-1`, `${tag}-2`],
  },
];

const PROCEDURE = `
[inputs.tag]
pattern = "[a-z0-9-]+"

[[steps]]
id = "first"
tool = "shell"
input = { command = 'sh -c "echo {{inputs.tag}}-1 >> effects; sleep 0.02"' }

[[steps]]
id = "second"
tool = "shell"
input = { command = 'sh -c "echo {{inputs.tag}}-2 >> effects; sleep 0.02"' }
`;

export interface ThroughKillsOptions {
  readonly kinds: readonly WorkKind[];
  readonly kills: number;
  /** Pieces of work begun between two kills */
  readonly pieces: number;
  /** Milliseconds of work before a kill, at most */
  readonly maxWorkMs: number;
  readonly seed: number;
}

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

/**
 * Does work of all kinds on a gateway that is killed with SIGKILL at random moments, with a person who answers every approval and
 * looks after the calls whose end nobody saw. Asserts that nothing accepted is lost, no effect is doubled, every run is in a legal
 * state, and what a client of its events has is its stored result.
 */
export async function workThroughKills(options: ThroughKillsOptions): Promise<ThroughKills> {
  const { kinds, seed } = options;
  const random = createSeededRandom(seed);
  const upstream = await startModel(kinds);
  const pieces: Piece[] = [];
  let reviews = 0;
  try {
    await withKillableGateway({ baseUrl: `${upstream.origin}/v1`, alwaysAsk: ["process_tool"] }, async (gateway) => {
      mkdirSync(join(gateway.workspace, ".postern", "sops"), { recursive: true });
      writeFileSync(join(gateway.workspace, ".postern", "sops", "steps.toml"), PROCEDURE);
      const effects = () => linesOf(join(gateway.workspace, "effects"));
      /** Begins what is not begun, and helps, until told to stop. */
      const work = async (stop: () => boolean, until: () => Promise<boolean>) => {
        while (!stop() && !await until()) {
          await Promise.all(pieces.filter(({ begun }) => begun === undefined).map((piece) => begin(gateway, piece)));
          reviews += await help(gateway, effects());
          await systemClock.sleep(5);
        }
      };
      for (let kill = 0; kill < options.kills; kill++) {
        for (let i = 0; i < options.pieces; i++) {
          const kind = kinds[pieces.length % kinds.length] ?? assert.fail("There is no work");
          pieces.push({ kind, tag: `${kind.name}-${pieces.length}`, begun: undefined });
        }
        const [high = 0, low = 0] = random.bytes(2);
        let isOver = false;
        let failure: unknown;
        const working = work(() => isOver, () => Promise.resolve(false)).catch((error) => {
          // What the kill cut off is begun again with the same key
          if (!(error instanceof TypeError)) failure ??= error;
        });
        await systemClock.sleep(5 + (options.maxWorkMs * (256 * high + low)) / 65_536);
        isOver = true;
        await gateway.kill();
        await working;
        if (failure !== undefined) throw failure;
        await gateway.restart();
      }
      const limit = systemClock.monotonic() + LIMIT_MS;
      await work(() => systemClock.monotonic() > limit, async () => {
        if (pieces.some(({ begun }) => begun === undefined) || !isWhole(pieces, effects())) return false;
        // One that nobody knows whether it was accepted may be to come
        if (await hasPlans(gateway)) return false;
        // What took effect, and what was planned, has its run by now
        return !(await listRuns(gateway)).some(({ status }) => isAtWork(status) || status === "needs_review");
      });
      await check(gateway, pieces, effects());
    });
  } finally {
    await upstream.close();
  }
  return { pieces: pieces.length, effects: pieces.flatMap(effectsOf).length, reviews };
}

async function begin(gateway: KillableGateway, piece: Piece): Promise<void> {
  piece.begun = await piece.kind.begin(gateway, piece.tag);
}

/** Answers what is asked, and says of each call whose end nobody saw what its effect says. @returns how many these were */
async function help(gateway: KillableGateway, effects: readonly string[]): Promise<number> {
  const { data: approvals } = await jsonOf(gateway.call("/v1/approvals?status=pending&limit=100"));
  for (const { id } of approvals) await gateway.call(`/v1/approvals/${id}`, { body: { decision: "approve" } });
  const { data: open } = await jsonOf(gateway.call("/v1/runs?status=needs_review&limit=100"));
  for (const { id } of open as readonly Run[]) {
    const started = (await eventsOf(gateway, id)).findLast(({ type }) => type === "tool_start");
    const name = /echo (\S+) >>/.exec(JSON.stringify(started))?.[1];
    const outcome = name === undefined ? "unknown" : effects.includes(name) ? "done" : "not_done";
    await gateway.call(`/v1/runs/${id}/resolve`, { body: { action: "resume", outcome } });
  }
  return open.length;
}

async function check(gateway: KillableGateway, pieces: readonly Piece[], effects: readonly string[]): Promise<void> {
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
    const { messages } = await jsonOf(gateway.call(`/v1/conversations/talk?limit=100&after=${after}`));
    for (const { role, content } of messages.data) if (role === "user") said.push(content);
    [after, more] = [messages.last_id, messages.has_more];
  }
  const talked = pieces.flatMap(({ kind, tag }) => (kind.name === "talk" ? [tag] : []));
  assert.deepEqual(said.toSorted(), talked.toSorted(), "everything was said once");
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

/** The text of these turns as a run's result has it. */
function textOf(turns: readonly SaidTurn[]): string {
  const texts = turns.map(({ texts = [] }) => texts.join("")).filter((text) => text !== "");
  return texts.reduce((all, text) => (all === "" ? text : `${all}${all.endsWith("\n") ? "" : "\n\n"}${text}`), "");
}

async function listRuns(gateway: KillableGateway): Promise<readonly Run[]> {
  const runs: Run[] = [];
  for (let after = "";;) {
    const page = await jsonOf(gateway.call(`/v1/runs?limit=100${after}`));
    runs.push(...page.data);
    if (page.has_more !== true) return runs;
    after = `&after=${page.last_id}`;
  }
}

/** Returns true when a schedule or a procedure is left that still starts a run. */
async function hasPlans(gateway: KillableGateway): Promise<boolean> {
  const { data: schedules } = await jsonOf(gateway.call("/v1/schedules?state=active"));
  const { data: { open } } = await jsonOf(gateway.call("/v1/tools/sop_list/call", { body: { input: {} } }));
  return schedules.length > 0 || open.length > 0;
}

async function eventsOf(gateway: KillableGateway, id: string): Promise<readonly AgentEvent[]> {
  const text = await (await gateway.call(`/v1/runs/${id}/events`)).text();
  return readSse(text).data.map((data) => JSON.parse(data));
}

function linesOf(path: string): readonly string[] {
  try {
    return readFileSync(path, "utf8").split("\n").filter((line) => line !== "");
  } catch {
    return [];
  }
}

/** A model that says what the kind of work has for what the user said, at the turn it has come to. */
function startModel(kinds: readonly WorkKind[]) {
  return startFakeServer((seen, response) => {
    const { messages = [] } = (seen.json ?? {}) as { messages?: readonly { role: string; content: unknown }[] };
    const from = messages.findLastIndex(({ role }) => role === "user");
    const tag = String(messages[from]?.content ?? "");
    const kind = kinds.find(({ name }) => tag.startsWith(`${name}-`));
    const turn = kind?.turns?.(tag)[messages.slice(from).filter(({ role }) => role === "assistant").length];
    if (turn === undefined) {
      response.writeHead(400).end("{}");
      return;
    }
    const { texts = [], calls = [] } = turn;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunks = [
      ...texts.map((content) => toDelta({ content })),
      ...calls.map(({ name, input }, index) =>
        toDelta({
          tool_calls: [{
            index,
            id: `call_${index}`,
            type: "function",
            function: { name, arguments: JSON.stringify(input) },
          }],
        })
      ),
      toDelta({}, calls.length > 0 ? "tool_calls" : "stop"),
      USAGE_CHUNK,
    ];
    void (async () => {
      for (const chunk of chunks) {
        response.write(toSse(chunk));
        await systemClock.sleep(1);
      }
      response.end("data: [DONE]\n\n");
    })();
  });
}

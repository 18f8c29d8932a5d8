import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { type Caller, type Scope, SCOPES } from "../../lib/base/records/caller.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import type { OwnedKind } from "../../lib/tools/runtime/owned_things.ts";
import type { ToolResult } from "../../lib/tools/runtime/tool_call.ts";
import { toConfig } from "../support/config_edits.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { KEEPS_OWNED, OWNED_CALLS, type OwnedCall } from "./owned_things.ts";
import { toToolCall } from "../support/tool_call.ts";

const OPERATOR: Caller = { via: "cli", tokenId: null, scopes: SCOPES };
/** Turns before each lets 1 ms of real time pass */
const EAGER_TURNS = 500;
const REFUSED = /your token lacks the scope "runs"/;

/** Makes the call of a row for a caller and returns the text that the caller, or the run that it began, gets. */
type Make = (bench: Bench, caller: Caller, call: { readonly tool: string; readonly input: unknown }) => Promise<string>;

interface Bench {
  readonly services: GatewayServices;
  newToken(scopes: readonly Scope[]): Promise<Caller>;
  call(caller: Caller, tool: string, input: unknown): Promise<ToolResult>;
  /** Begins a thing of this kind with a caller's call and returns its id */
  begin(kind: OwnedKind, caller: Caller): Promise<string>;
  /** Returns the thing as the operator sees it, as JSON */
  look(kind: OwnedKind, id: string): Promise<string>;
  /** Writes a procedure of one step that calls a tool, and returns its id */
  procedure(tool: string, input: unknown): string;
  /** Lets the fake time pass, 1 ms in each turn of the event loop, until the work is done */
  pass<T>(work: Promise<T>, stepMs?: number): Promise<T>;
  /** As `pass`, until it holds */
  until(holds: () => Promise<boolean>, stepMs?: number): Promise<void>;
}

async function withBench(use: (bench: Bench) => Promise<void>): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const [workspaceRoot, sops] = [join(folder, "work"), join(folder, "sops")];
    mkdirSync(workspaceRoot);
    mkdirSync(sops);
    writeFileSync(join(sops, "waits.toml"), '[[steps]]\nid = "hand"\nmanual = "Water the beans"\n');
    const services = await createServices({
      config: toConfig({
        storage: { driver: "memory" },
        autonomy: { level: "full" },
        cron: { enabled: true, timezone: "UTC" },
        security: { shell: { sandbox: "off" }, process: { allowed_commands: ["sleep"] } },
        sops: { dirs: [sops] },
      }),
      folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
      environment: {},
      about: { version: "0.0.0-test" },
      log: { sink: () => {} },
      kit: { clock },
      models: { providers: createScriptedProviders(createScriptedProvider(() => ({ hang: "before" }), { clock })) },
    });
    let count = 0;
    const pass = async <T>(work: Promise<T>, stepMs = 1): Promise<T> => {
      let ended = false;
      work.then(() => ended = true, () => ended = true);
      // Processes and the disk keep their own time: no timeout of the fake clock may overtake them
      for (let turn = 0; !ended; turn++) {
        if (turn < EAGER_TURNS) await new Promise((resolve) => setImmediate(resolve));
        else await systemClock.sleep(1);
        await clock.advance(stepMs);
      }
      return await work;
    };
    const bench: Bench = {
      services,
      pass,
      async newToken(scopes) {
        const { record } = await services.tokens.issue({ scopes, label: "" });
        return { via: "http", tokenId: record.id, scopes };
      },
      async call(caller, name, input) {
        const { result } = await pass(
          services.tools.call(toToolCall(name, JSON.stringify(input), {
            runId: `run_${++count}`,
            callId: `call_${count}`,
            caller,
          })),
          stepOf(input),
        );
        return result;
      },
      async begin(kind, caller) {
        const made = await bench.call(caller, ...BEGINNINGS[kind](`thing_${++count}`));
        assert.equal(made.isError, false, made.output);
        const data = made.data as { readonly id?: string; readonly schedule?: { readonly id: string } };
        const id = data.schedule?.id ?? data.id ?? assert.fail(made.output);
        // The states that an execution and a sub-agent reach by themselves before anybody looks
        if (kind === "execution") {
          await bench.until(async () => /by hand|"waiting"/.test(await bench.look(kind, id)));
        }
        if (kind === "sub_agent") await bench.until(async () => /"running"/.test(await bench.look(kind, id)));
        return id;
      },
      async look(kind, id) {
        if (kind === "schedule") return JSON.stringify(await services.cron.get(id));
        const { data } = kind === "process"
          ? await bench.call(OPERATOR, "process_tool", { op: "list" })
          : kind === "execution"
          ? await bench.call(OPERATOR, "sop_status", { execution_id: id })
          : await bench.call(OPERATOR, "subagent_manage", { op: "status", id });
        return JSON.stringify(data);
      },
      procedure(tool, input) {
        const id = `call_${++count}`;
        const fields = Object.entries(input as object).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
        const step = `[[steps]]\nid = "only"\ntool = "${tool}"\ninput = { ${fields.join(", ")} }\n`;
        writeFileSync(join(sops, `${id}.toml`), step);
        return id;
      },
      async until(holds, stepMs = 1) {
        while (!await pass(holds(), stepMs)) await clock.advance(stepMs);
      },
    };
    try {
      await use(bench);
    } finally {
      await pass(services.drain(0));
      await pass(services.close());
    }
  });
}

const BEGINNINGS: Readonly<Record<OwnedKind, (id: string) => [tool: string, input: unknown]>> = {
  schedule: (id) => ["cron_add", { id, schedule: "0 0 1 6 *", prompt: "Look" }],
  execution: () => ["sop_execute", { sop: "waits" }],
  process: () => ["process_tool", { op: "start", command: "sleep 60" }],
  sub_agent: () => ["subagent_spawn", { task: "Look" }],
};

/** Waiting for the answer of a sub-agent takes a minute. */
function stepOf(input: unknown): number {
  return (input as { readonly op?: string }).op === "result" ? 1000 : 1;
}

/** The token's agent calls the tool itself. */
const byAgent: Make = async ({ call }, caller, { tool, input }) => (await call(caller, tool, input)).output;

/** A schedule that the caller made calls the tool when it fires. */
const byFiring: Make = async (bench, caller, { tool, input }) => {
  const { services } = bench;
  const made = await bench.call(caller, "schedule", { in: "1s", tool, input });
  assert.equal(made.isError, false, made.output);
  const { schedule: { id } } = made.data as { readonly schedule: { readonly id: string } };
  await bench.until(async () => {
    const status = (await services.cron.get(id))?.last?.run_status;
    return status === "completed" || status === "failed";
  }, stepOf(input));
  const run = await services.agent?.runs.get((await services.cron.get(id))?.last?.run_id ?? "");
  return run?.result ?? run?.error?.message ?? "";
};

/** A step of a procedure that the caller started calls the tool. */
const byStep: Make = async (bench, caller, { tool, input }) => {
  const started = await bench.call(caller, "sop_execute", { sop: bench.procedure(tool, input) });
  assert.equal(started.isError, false, started.output);
  const { id } = started.data as { readonly id: string };
  const view = async () =>
    (await bench.call(OPERATOR, "sop_status", { execution_id: id })).data as {
      readonly steps: readonly { readonly ended_at: string | null; readonly output: string | null }[];
    };
  await bench.until(async () => typeof (await view()).steps[0]?.ended_at === "string", stepOf(input));
  return (await view()).steps[0]?.output ?? "";
};

interface Case {
  readonly who: string;
  /** undefined: the operator, who needs no token */
  readonly scopes: readonly Scope[] | undefined;
  readonly make: Make;
  /** The thing is begun with the caller's own token. Default: another token begins it */
  readonly own?: boolean;
  readonly reaches: boolean;
}

const CASES: readonly Case[] = [
  { who: "a chat token, its own thing", scopes: ["chat"], make: byAgent, own: true, reaches: true },
  { who: "a chat token, another's thing", scopes: ["chat"], make: byAgent, reaches: false },
  { who: "a token without runs, another's thing", scopes: ["chat", "tools", "approve"], make: byAgent, reaches: false },
  { who: "a token with runs", scopes: ["chat", "runs"], make: byAgent, reaches: true },
  { who: "an admin token", scopes: ["admin"], make: byAgent, reaches: true },
  { who: "the operator", scopes: undefined, make: byAgent, reaches: true },
  { who: "a firing of a chat token, its own thing", scopes: ["chat"], make: byFiring, own: true, reaches: true },
  { who: "a firing of a chat token, another's thing", scopes: ["chat"], make: byFiring, reaches: false },
  { who: "a firing of the operator", scopes: undefined, make: byFiring, reaches: true },
  { who: "a step of a chat token, its own thing", scopes: ["chat"], make: byStep, own: true, reaches: true },
  { who: "a step of a chat token, another's thing", scopes: ["chat"], make: byStep, reaches: false },
  { who: "a step of a token with runs", scopes: ["chat", "runs"], make: byStep, reaches: true },
  { who: "a step of the operator", scopes: undefined, make: byStep, reaches: true },
];

const ROWS: readonly (OwnedCall & { readonly tool: string })[] = Object.entries(OWNED_CALLS).flatMap(([tool, calls]) =>
  calls.map((call) => ({ ...call, tool }))
);

test("every tool that keeps or reaches things of a token has its row", () => {
  const tools = BUILTIN_TOOLS.filter(({ needs }) => needs.some((need) => KEEPS_OWNED[need])).map(({ name }) => name);
  assert.deepEqual(Object.keys(OWNED_CALLS).toSorted(), tools.toSorted());
});

/** A definition names no tool of procedures: see "a procedure neither runs nor steers procedures". */
const rowsOf = (make: Make) => ROWS.filter(({ kind }) => make !== byStep || kind !== "execution");

for (const { who, scopes, make, own = false, reaches } of CASES) {
  test(`${who}: ${reaches ? "reached" : "refused"} by every tool`, () =>
    withBench(async (bench) => {
      const caller = scopes === undefined ? OPERATOR : await bench.newToken(scopes);
      const other = await bench.newToken(["admin"]);
      const denials = async () => {
        const { records } = await bench.services.audit.list({ limit: 1000 });
        return records.filter((record) => JSON.stringify(record).includes('"rule":"owner"')).length;
      };
      for (const { tool, kind, reaches: what, input, reached = /^/ } of rowsOf(make)) {
        const id = await bench.begin(kind, own ? caller : other);
        const [before, denied] = [await bench.look(kind, id), await denials()];
        const text = await make(bench, caller, { tool, input: input(id) });
        const label = `${tool} ${JSON.stringify(input(id))}: ${text}`;
        if (what === "list") {
          assert.equal(new RegExp(`\\b${id}\\b`).test(text), reaches, label);
          assert.equal(
            /^\[\d+ .+ of others left out: your token lacks the scope "runs"\]$/m.test(text),
            !reaches,
            label,
          );
          continue;
        }
        assert.equal(REFUSED.test(text), !reaches, label);
        if (reaches) assert.match(text, reached, label);
        else assert.equal(await bench.look(kind, id), before, label);
        assert.equal(await denials() - denied, reaches ? 0 : 1, label);
      }
    }));
}

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import * as v from "valibot";
import { createScriptedProvider, createScriptedProviders } from "../../fixtures/scripted_provider.ts";
import { createServices } from "../../lib/gateway.ts";
import { HALTS } from "../../lib/guard/halts.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { defineTool } from "../../lib/tools/runtime/define_tool.ts";
import { createSharedDatabase, type DatabaseLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { endMember } from "../support/cluster_member.ts";
import { toConfig } from "../support/config_edits.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { toToolCall } from "../support/tool_call.ts";
import { until } from "../support/until.ts";

const BY = { via: "cli", tokenId: null } as const;
const ALL = { kind: "all", name: null } as const;
const GATEWAYS = ["a", "b", "c"] as const;
const RUNS = 100;

interface Member {
  readonly services: GatewayServices;
  readonly link: DatabaseLink;
}

/** Starts a gateway whose model calls one tool again and again, which notes each effect that begins. */
async function startMember(
  database: SharedDatabase,
  folder: string,
  onEffect: () => void,
): Promise<Member> {
  const link = database.link();
  const { clock } = database;
  const workspaceRoot = join(folder, "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const effect = defineTool({
    name: "effect",
    description: "Has an effect",
    access: "network",
    enabled: "always",
    needs: [],
    input: v.strictObject({ turn: v.pipe(v.number(), v.description("Which")) }),
    async run() {
      onEffect();
      // Else the runs leave no turn of the event loop to whoever halts them
      await new Promise((resolve) => setImmediate(resolve));
      return { output: "done", isError: false };
    },
  });
  const script = (_request: unknown, turn: number) => ({ toolCalls: [{ name: "effect", arguments: { turn } }] });
  const services = await createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000 },
      autonomy: { level: "full" },
      agent: { max_iterations: 1_000, max_tool_calls: 1_000 },
      runs: { max_concurrent: RUNS },
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment: {},
    about: { version: "0.0.0-test" },
    log: { sink: () => {} },
    kit: { clock },
    cluster: { database: link },
    additions: { tools: [effect] },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
  return { services, link };
}

/** Starts three gateways over one database, and ends them after the test. */
function withMembers(
  use: (database: SharedDatabase, members: readonly Member[], seen: readonly string[]) => Promise<void>,
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const seen: string[] = [];
    const members: Member[] = [];
    for (const name of GATEWAYS) {
      const member = await startMember(database, join(folder, name), () => void seen.push(`effect at ${name}`));
      member.services.halts.onChange((halts) => void (halts.length > 0 && seen.push(`halt at ${name}`)));
      members.push(member);
    }
    await database.clock.advance(LEASE_MS);
    await use(database, members, seen);
    for (const member of members) await endMember(database, member);
  });
}

test(`of ${RUNS} runs at three gateways none has an effect once its gateway has seen the halt`, (t: TestContext) =>
  withMembers(async (database, members, seen) => {
    let recordedAt = 0;
    const { onResult } = database;
    database.onResult = async (operation, writes, link) => {
      if (operation === "batch" && JSON.stringify(writes).includes(`"collection":"${HALTS.name}"`)) {
        recordedAt = performance.now();
      }
      await onResult(operation, writes, link);
    };
    let lastEffectAt = 0;
    const push = Array.prototype.push.bind(seen);
    (seen as string[]).push = (...words) => {
      if (words[0]?.startsWith("effect") === true) lastEffectAt = performance.now();
      return push(...words);
    };
    let started = 0;
    const runs = Array.from({ length: RUNS }, async (_, index) => {
      const { services } = members[index % members.length] ?? assert.fail();
      const run = await services.agent?.runs.start(
        ask(`${index}`, { caller: { via: "http", tokenId: null, scopes: ["admin"] } }),
      ) ??
        assert.fail();
      started++;
      let last;
      for await (const batch of run.events()) last = batch.at(-1);
      return last;
    });
    await until(() => started === RUNS && seen.length > 3 * RUNS);
    await members[0]?.services.halts.halt(ALL, BY);
    const ends = await Promise.all(runs);
    for (const end of ends) assert.ok(end?.type === "error" && end.code === "halted", JSON.stringify(end));
    for (const name of GATEWAYS) {
      const halted = seen.indexOf(`halt at ${name}`);
      assert.ok(halted > 0, `${name} never saw it`);
      assert.ok(seen.includes(`effect at ${name}`), `${name} had no effect before`);
      assert.ok(seen.lastIndexOf(`effect at ${name}`) < halted, `an effect began at ${name} after the halt was seen`);
    }
    t.diagnostic(`from the record to the last effect that began: ${(lastEffectAt - recordedAt).toFixed(1)} ms`);
  }));

test("a gateway that has lost the note of a halt sees it within a second", () =>
  withMembers(async (database, [a, b], seen) => {
    database.isMute = true;
    await a?.services.halts.halt(ALL, BY);
    assert.ok(!seen.includes("halt at b"));
    await database.clock.advance(1_000);
    assert.ok(seen.includes("halt at b"));
    await b?.services.halts.resume(undefined, BY);
    await database.clock.advance(1_000);
    assert.deepEqual(a?.services.halts.list(), []);
  }));

test("a gateway that is cut off begins no effect, and sees the halt once the database is back", () =>
  withMembers(async (database, [a, , c], seen) => {
    const call = () =>
      c?.services.tools.call(toToolCall("effect", '{"turn":1}', {
        caller: { via: "http", tokenId: "tok_1", scopes: ["tools"] },
        direct: true,
      })) ?? assert.fail();
    assert.equal((await call()).ran, true);
    if (c !== undefined) c.link.isCut = true;
    await a?.services.halts.halt({ kind: "network", name: null }, BY);
    await database.clock.advance(LEASE_MS);
    const effects = () => seen.filter((each) => each === "effect at c").length;
    await assert.rejects(async () => await call(), { code: "storage_unavailable" });
    assert.equal(effects(), 1);
    if (c !== undefined) c.link.isCut = false;
    await database.clock.advance(2_000);
    const { ran, result } = await call();
    assert.deepEqual([ran, effects()], [false, 1]);
    assert.match(result.output, /halted every call that reaches the network/);
  }));

import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { loadDefinitions, type SopFolder } from "../../../lib/automation/sops/load_definitions.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { atEveryMoment, type Exchange, NO_EXCHANGER as skip, withExchanger } from "../../support/exchanger.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../../support/world.ts";
import { withWorkspace } from "../../support/workspace.ts";

const FOLDER = ".postern/sops";
/** A procedure that writes `word` to a file. */
const procedure = (word: string) =>
  `name = "Deploy"\n[[steps]]\nid = "${word}"\ntool = "write_file"\ninput = { path = "made.txt", content = "${word}" }\n`;

/** The look at the folder and its opening make no event: exchanges back and forth lie in between */
const FLURRIES = 40;

test(
  "no name of a folder outside is told of, whatever takes the place of the folder of procedures",
  { skip },
  () =>
    withWorkspace({}, async ({ root, outside, path, write }) => {
      mkdirSync(join(outside, "sops"));
      writeFileSync(join(outside, "sops/of-theirs.toml"), procedure("theirs"));
      const folder: SopFolder = { path: path(FOLDER), shownAs: FOLDER, inWorkspace: true };
      const files = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] });
      await atEveryMoment(async (at) => {
        rmSync(path(".postern"), { recursive: true, force: true });
        write(`${FOLDER}/mine.toml`, procedure("mine"));
        const exchange: Exchange = { at, watched: path(FOLDER), by: "link", other: "../../outside/sops" };
        return await withExchanger(exchange, path("../bell"), async (exchanger) => {
          exchanger.ring();
          const loaded = await loadDefinitions({ files, workspaceRoot: root, forbiddenPaths: [], folders: [folder] });
          assert.ok(!JSON.stringify(loaded).includes("theirs"), `${JSON.stringify(at)}: ${JSON.stringify(loaded)}`);
          if (at.nth === 0) assert.equal(loaded.sops.length, 1);
          return await exchanger.report();
        });
      }, FLURRIES);
    }),
);

const CONFIG = { autonomy: { level: "full" }, security: { write_file: { enabled: true } } };
/** Requests of the model in all attempts of one test. */
const MANY = 400;
/** Contents that take the place of the definition. */
const TRAPS = [
  { by: "exchange", other: "theirs.toml" },
  { by: "link", other: "../../theirs.toml" },
] as const;

for (const { by, other } of TRAPS) {
  test(
    `the procedure runs that a person was shown, whatever takes its place by ${by}`,
    { skip },
    () =>
      withWorld(async (world) => {
        const starting = { toolCalls: [{ name: "sop_execute", arguments: { sop: "deploy" } }] };
        const script = Array.from({ length: MANY }, (_, index) => index % 2 === 0 ? starting : "Started");
        const gateway = await world.gateway({ config: CONFIG, script });
        const { path, write } = gateway.workspace;
        await atEveryMoment(async (at) => {
          for (const name of [".postern", "made.txt"]) rmSync(path(name), { recursive: true, force: true });
          write(`${FOLDER}/deploy.toml`, procedure("mine"));
          write("theirs.toml", procedure("theirs"));
          const watched = path(FOLDER, "deploy.toml");
          const exchange: Exchange = { at, watched, by, other: by === "exchange" ? path(other) : other };
          return await withExchanger(exchange, path("../bell"), async (exchanger) => {
            exchanger.ring();
            assert.equal((await gateway.call("/api/chat", { body: { message: "Deploy" } })).status, 200);
            const shown = await shownSteps(gateway);
            if (at.nth === 0) assert.deepEqual(shown, ["mine"]);
            const made = await readFile(path("made.txt"), "utf8").catch(() => "");
            assert.deepEqual(made === "" ? [] : [made], shown, JSON.stringify(at));
            return await exchanger.report();
          });
        });
      }),
  );
}

/** Says yes to the procedures that wait, and waits for their ends. @returns the ids of their steps, as the person was shown them */
async function shownSteps(gateway: RunningGateway): Promise<readonly string[]> {
  const waiting = async () => (await jsonOf(await gateway.call("/v1/approvals?status=pending"))).data;
  const { open } = await catalogue(gateway);
  if (open.length === 0) return [];
  await until(async () => (await waiting()).length > 0, "nobody is asked");
  const [approval] = await waiting();
  await gateway.call(`/v1/approvals/${approval.id}`, { body: { decision: "approve" } });
  await until(async () => (await catalogue(gateway)).open.length === 0, "the procedure does not end");
  return approval.input.definition.steps.map(({ id }: { readonly id: string }) => id);
}

async function catalogue(gateway: RunningGateway): Promise<{ readonly open: readonly unknown[] }> {
  return (await jsonOf(await gateway.call("/v1/tools/sop_list/call", { body: { input: {} } }))).data;
}

import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { atEveryMoment, type Exchange, NO_EXCHANGER as skip, withExchanger } from "../../support/exchanger.ts";
import { jsonOf, type RunningGateway, withWorld } from "../../support/world.ts";
import { OUTSIDE } from "../../support/workspace.ts";

const FOLDER = ".agents/skills/notes";
const MAIN = "---\nname: notes\ndescription: Takes notes\n---\nWrite the notes.\n";
const EVIL = "---\nname: notes\ndescription: Takes notes\n---\nWrite evil.\n";

/** Restores what the attacker exchanges. */
function layOut({ workspace }: RunningGateway): void {
  for (const name of [".agents", "evil"]) rmSync(workspace.path(name), { recursive: true, force: true });
  workspace.write(`${FOLDER}/SKILL.md`, MAIN);
  workspace.write(`${FOLDER}/references/secret.txt`, "inside\n");
  workspace.write("evil/SKILL.md", EVIL);
  workspace.write("evil/references/secret.txt", "evil\n");
}

type Trap = Pick<Exchange, "by" | "other"> & { readonly target: string };

/** Looks at the skill while the attacker strikes. @returns what it was told */
async function lookWhile(
  gateway: RunningGateway,
  trap: Trap,
  look: () => Promise<string>,
  check: (text: string) => void,
) {
  const { workspace } = gateway;
  await atEveryMoment(async (at) => {
    layOut(gateway);
    const exchange = {
      at,
      ...{ watched: workspace.path(FOLDER), target: workspace.path(trap.target), by: trap.by },
      other: trap.by === "link" ? trap.other : workspace.path(trap.other),
    };
    return await withExchanger(exchange, workspace.path("../bell"), async (exchanger) => {
      exchanger.ring();
      check(`at ${JSON.stringify(at)}: ${await look()}`);
      return await exchanger.report();
    });
  });
}

const showing = (gateway: RunningGateway) => async () =>
  JSON.stringify(await jsonOf(await gateway.call("/v1/skills/notes")));

for (
  const trap of [
    { by: "link", target: `${FOLDER}/references`, other: "../../../../outside" },
    { by: "link", target: FOLDER, other: "../../../outside/skill" },
  ] as const
) {
  test(
    `a skill of the workspace shows nothing from outside, whatever takes the place of ${trap.target}`,
    { skip },
    () =>
      withWorld(async (world) => {
        const gateway = await world.gateway();
        const { outside } = gateway.workspace;
        mkdirSync(join(outside, "skill/references"), { recursive: true });
        writeFileSync(join(outside, "skill/SKILL.md"), MAIN.replace("Write", OUTSIDE.trim()));
        writeFileSync(join(outside, "skill/references/secret.txt"), OUTSIDE);
        await lookWhile(gateway, trap, showing(gateway), (text) => assert.ok(!text.includes(OUTSIDE.trim()), text));
      }),
  );
}

test(
  "skill_read gives the bytes that are trusted and no others, whatever takes the place of the skill",
  { skip },
  () =>
    withWorld(async (world) => {
      const gateway = await world.gateway();
      layOut(gateway);
      const { digest } = await jsonOf(await gateway.call("/v1/skills/notes"));
      const trust = await gateway.call("/v1/skills/notes/trust", { method: "POST", body: { digest, before: null } });
      assert.equal(trust.status, 200);
      const read = (path: string) => async () => {
        const body = { input: { name: "notes", path } };
        return JSON.stringify(await jsonOf(await gateway.call("/v1/tools/skill_read/call", { body })));
      };
      assert.match(await read("SKILL.md")(), /Write the notes/);
      const trap = { by: "exchange", target: FOLDER, other: "evil" } as const;
      for (const path of ["SKILL.md", "references/secret.txt"]) {
        await lookWhile(gateway, trap, read(path), (text) => assert.ok(!text.includes("evil"), text));
      }
    }),
);

test(
  "no skill of a folder outside is told of, whatever takes the place of the folder of skills",
  { skip },
  () =>
    withWorld(async (world) => {
      const gateway = await world.gateway();
      mkdirSync(join(gateway.workspace.outside, "theirs"));
      writeFileSync(join(gateway.workspace.outside, "theirs/SKILL.md"), MAIN);
      const listing = async () => JSON.stringify(await jsonOf(await gateway.call("/v1/skills")));
      const trap = { by: "link", target: ".agents/skills", other: "../../outside" } as const;
      await lookWhile(gateway, trap, listing, (text) => assert.ok(!text.includes("theirs"), text));
    }),
);

import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { findPlugins } from "../../../lib/extensions/plugins/found_plugins.ts";
import { readPluginFolder } from "../../../lib/extensions/plugins/plugin_files.ts";
import { atEveryMoment, type Exchange, NO_EXCHANGER as skip, withExchanger } from "../../support/exchanger.ts";
import { BY, withPlugins } from "../../support/plugin_bench.ts";
import { SAMPLE_MODULE, sampleManifest, sha256 } from "../../support/plugin_package.ts";
import { OUTSIDE, withWorkspace } from "../../support/workspace.ts";

/** A look at a folder makes no event: one flurry of 25 exchanges it between the look and the opening */
const FLURRIES = 75;
/** Each listing of a folder makes events. */
const FEW_FLURRIES = 24;

test("readPluginFolder() reads nothing elsewhere, whatever takes the place of a folder of the plugin", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    const { path, write } = workspace;
    const process = { kind: "process", wasm: undefined, process: { command: "node", args: ["src/secret.txt"] } };
    await atEveryMoment(async (at) => {
      rmSync(path("plugins"), { recursive: true, force: true });
      write("plugins/words/plugin.json", JSON.stringify(sampleManifest(process)));
      write("plugins/words/src/secret.txt", "inside");
      const watched = path("plugins/words");
      const exchange: Exchange = { at, watched, target: join(watched, "src"), by: "link", other: "../../../outside" };
      return await withExchanger(exchange, path("../bell"), async (exchanger) => {
        exchanger.ring();
        const found = await readPluginFolder(watched).catch(() => ({ files: [] }));
        const texts = found.files.map(({ bytes }) => new TextDecoder().decode(bytes));
        assert.ok(!texts.includes(OUTSIDE), JSON.stringify(at));
        return await exchanger.report();
      });
    }, FLURRIES);
  }));

test("no plugin of a folder outside is told of, whatever takes the place of the folder of plugins", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    const { path, outside, write } = workspace;
    const manifest = (id: string) => JSON.stringify(sampleManifest({ id }));
    mkdirSync(join(outside, "theirs"));
    for (const [name, bytes] of [["plugin.json", manifest("theirs")], ["words.wasm", SAMPLE_MODULE]] as const) {
      writeFileSync(join(outside, "theirs", name), bytes);
    }
    const watched = path("plugins");
    await atEveryMoment(async (at) => {
      rmSync(watched, { recursive: true, force: true });
      write("plugins/words/plugin.json", manifest("words"));
      write("plugins/words/words.wasm", SAMPLE_MODULE);
      const exchange: Exchange = { at, watched, by: "link", other: "../outside" };
      return await withExchanger(exchange, path("../bell"), async (exchanger) => {
        exchanger.ring();
        const found = await findPlugins({ layer: "workspace", path: watched });
        assert.ok(!JSON.stringify(found).includes("theirs"), `${JSON.stringify(at)}: ${JSON.stringify(found)}`);
        if (at.nth === 0) assert.ok(found[0]?.content !== undefined, JSON.stringify(found));
        return await exchanger.report();
      });
    }, FEW_FLURRIES);
  }));

/** A module that is another by its bytes alone. */
const THEIRS = new Uint8Array([...SAMPLE_MODULE, 0]);

test(
  "the content of a plugin runs that a person enabled, whatever takes the place of its folder",
  { skip },
  () =>
    withPlugins(async (bench) => {
      const { workspaceRoot } = bench;
      const [watched, other] = [join(workspaceRoot, "plugins/words"), join(workspaceRoot, "evil")];
      bench.answer = ({ main }) => Promise.resolve({ output: sha256(main ?? THEIRS), is_error: false });
      bench.write("plugins/words");
      await bench.restart();
      const digest = bench.plugins.require("words").digest ?? assert.fail("The plugin has no digest");
      await atEveryMoment(async (at) => {
        for (const place of [watched, other]) rmSync(place, { recursive: true, force: true });
        bench.write("plugins/words");
        bench.write("evil", { wasm: { file: "words.wasm", sha256: sha256(THEIRS) } }, THEIRS);
        await bench.restart();
        await bench.plugins.disable("words", { by: BY });
        return await withExchanger(
          { at, watched, by: "exchange", other },
          `${workspaceRoot}-bell`,
          async (exchanger) => {
            exchanger.ring();
            await bench.plugins.enable("words", { by: BY, digest }).catch(() => {});
            if (at.nth === 0) assert.ok(bench.plugins.require("words").on);
            if (bench.plugins.require("words").on) {
              assert.equal((await bench.call("count_words")).output, sha256(SAMPLE_MODULE), JSON.stringify(at));
            }
            return await exchanger.report();
          },
        );
      });
    }),
);

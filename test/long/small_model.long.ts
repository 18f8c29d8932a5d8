/**
 * A small model at 50 tasks with tools, through Postern and through the bare loop of another client. It asserts what holds with any model, and
 * prints the table of docs/models.md.
 *
 * SMALL_MODEL: `1.5b` (default) or `0.5b`. SMALL_MODEL_MINUTES: no task begins after them; default 40. SMALL_MODEL_THREADS: default 1, which
 * is the fastest on a machine with other work. SMALL_MODEL_OUT: folder for the transcripts.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { appendFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { MODEL_TASKS } from "../support/models/model_tasks.ts";
import { trialTable, tryModel } from "../support/models/model_trial.ts";
import { PACKAGED_MODELS, withSmallModel } from "./small_model.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { withWorld } from "../support/world.ts";

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const hasPip = spawnSync("python3", ["-m", "pip", "--version"]).status === 0;

function reasonToSkip(): string | false {
  if ("Deno" in globalThis) return "the model takes long, and is tried on Node alone";
  if (process.platform !== "linux" || process.arch !== "x64") return "llama.cpp is installed for Linux on x64 alone";
  if (!hasPip) return "there is no python3 with pip, which brings the model";
  return probe.kind === "contained" ? false : probe.text;
}

test("a small model: tasks end, each conversation goes on, and nothing outside the workspace changes", {
  skip: reasonToSkip(),
}, (t) =>
  withWorld(async (world) => {
    const name = process.env["SMALL_MODEL"] === "0.5b" ? "0.5b" : "1.5b";
    const minutes = Number(process.env["SMALL_MODEL_MINUTES"] ?? 40);
    const folder = process.env["SMALL_MODEL_OUT"];
    assert.equal(MODEL_TASKS.length, 50);
    await withSmallModel(name, async (door, replies) => {
      const end = performance.now() + minutes * 60_000;
      const results = await tryModel(world, {
        door,
        tasks: MODEL_TASKS,
        goesOn: () => performance.now() < end,
        onResult: (result) => {
          const { client, task: { kind, say }, fault = "done", attempt } = result;
          t.diagnostic(`${client}, ${kind}: ${fault}: ${say}`);
          if (folder === undefined) return;
          appendFileSync(
            join(folder, "transcripts.jsonl"),
            `${JSON.stringify({ client, kind, say, fault, attempt })}\n`,
          );
        },
      });
      if (folder !== undefined) appendFileSync(join(folder, "replies.log"), replies());
      const { title } = PACKAGED_MODELS[name];
      t.diagnostic(`${title}: ${results.length / 2} of 50 tasks\n${trialTable(results)}`);
      assert.ok(results.length > 0, "no task was begun");
      for (const { task, attempt } of results) {
        assert.match(attempt.end, /^(?:done|stop|length|turns|max_iterations|loop.*)$/, `${task.say}: ${attempt.end}`);
      }
    });
  }));

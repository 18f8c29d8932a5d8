import assert from "node:assert/strict";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemPython } from "../../scripts/system_tools.ts";
import { ROOT } from "../../support/gateway_process.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { withWorld } from "../../support/world.ts";
import { type Call, installClients, type Mode, modelOf, MODES, runClient, working } from "./run_clients.ts";

const { folder, skip } = await installClients();
const packages = "Deno" in globalThis ? "that is tried on Node" : await systemPython().catch(String);
const skipPython = packages.endsWith("packages") ? false : `pip could not bring the libraries: ${packages}`;
const here = join(ROOT, "test/system/clients");

for (const mode of MODES) {
  test(`client libraries call a tool of their program in three rounds, streamed and not: ${mode}`, { skip }, () => {
    const kept = mode === "agent" ? ["ai kept responses"] : [];
    const ofAi = [...kept, "ai responses", "ai chat", "ai messages", "ai open responses"];
    const program = { argv: [process.execPath, join(here, "libraries.mjs"), folder], env: {} };
    return holdLibraries(program, { mode, names: [...ofAi, "agents", "openai chat", "openai responses", "anthropic"] });
  });

  test(
    `client libraries of Python call a tool of their program in three rounds, streamed and not: ${mode}`,
    { skip: skipPython },
    () => {
      const env = { PYTHONPATH: packages, PYTHONDONTWRITEBYTECODE: "1" };
      const program = { argv: ["python3", join(here, "libraries.py")], env };
      return holdLibraries(program, {
        mode,
        names: ["openai chat", "openai responses", "anthropic", "agents", "agents chat"],
      });
    },
  );
}

/** Runs a program that works by client libraries, and holds that each of them came to the end over three calls of its tool. */
function holdLibraries(
  { argv, env }: Pick<Call, "argv" | "env">,
  { mode, names }: { readonly mode: Mode; readonly names: readonly string[] },
): Promise<void> {
  return withWorld((world) =>
    withTemporaryFolder(async (cwd) => {
      const { url, token } = await world.gateway({ script: working("exec_command", "cmd") });
      const output = await runClient({
        argv: [...argv, url, token, modelOf(mode)],
        cwd,
        env: { HOME: cwd, ...env },
      });
      const said = output.split("\n").filter((line) => line.startsWith("[")).map((line) => JSON.parse(line));
      const all = names.flatMap((name) => [[name, "All done", 3], [`${name} stream`, "All done", 3]]);
      assert.deepEqual(said.sort(), all.sort());
    })
  );
}

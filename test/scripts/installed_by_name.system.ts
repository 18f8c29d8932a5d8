import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { VERSION } from "../../lib/base/version.ts";
import { buildPackage } from "../support/build_package.ts";
import { type OwnRegistry, withOwnRegistry } from "./own_registry.ts";
import { packPackage } from "../support/packed_package.ts";
import { startOpenAiUpstream } from "../../fixtures/upstream/openai_upstream.ts";
import { startProcess } from "../support/started_process.ts";
import { systemTools } from "./system_tools.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const tools = "Deno" in globalThis
  ? "it is about npm and Node"
  : await systemTools("tools").catch((error: Error) => error);
const skip = typeof tools === "string" && tools.includes("node_modules")
  ? false
  : `npm could not bring the tools: ${tools}`;

/** Folders of `node` by version; the one of the project, which runs this test, is between the oldest and the newest. */
const NODES: Readonly<Record<string, string>> = {
  "22.19": join(String(tools), "node-22/bin"),
  "24": dirname(process.execPath),
  "26": join(String(tools), "node-26/bin"),
};
const OLD_NODE = join(String(tools), "node-20/bin");

/** A user who has one Node, the registry, and nothing installed. */
function userOf(registry: OwnRegistry, home: string, node: string) {
  mkdirSync(join(home, "project"), { recursive: true });
  const own = registry.env(home);
  const env = {
    ...own,
    PATH: [node, join(home, "global/bin"), own["PATH"]].join(delimiter),
    POSTERN__PROVIDER__KIND: "offline",
  };
  const cwd = join(home, "project");
  return {
    env,
    cwd,
    run(...[command = "", ...argv]: readonly string[]) {
      const { status, stdout, stderr } = spawnSync(command, argv, { cwd, env, encoding: "utf8" });
      return { status, stdout, stderr };
    },
  };
}

const PROGRAM = `
import { createGateway } from "postern";
const gateway = await createGateway({ dataDir: "data", workspace: ".", config: { provider: { kind: "offline" } } });
console.log((await (await gateway.request("/health")).json()).status);
await gateway.close();
`;

test("the published package runs by npx, as a global program and in a program, on each Node that it names", {
  skip,
}, async (t) => {
  const built = await buildPackage();
  await withTemporaryFolder(async (folder) => {
    const tarball = await packPackage(built, folder);
    await withOwnRegistry({ tools: String(tools), folder, tarball }, async (registry) => {
      for (const [version, node] of Object.entries(NODES)) {
        if (!existsSync(join(node, "node"))) {
          t.diagnostic(`Node ${version} is left out: npm brings none for this system`);
          continue;
        }
        const { run, env, cwd } = userOf(registry, join(folder, version), node);
        assert.match(run("node", "--version").stdout, new RegExp(`^v${version}\\.`));

        const once = run("npx", "--yes", "postern", "--version");
        assert.deepEqual([once.stdout, once.status], [`${VERSION}\n`, 0], once.stderr);
        assert.match(run("npx", "--yes", "postern", "pair").stderr, /start it with npx postern gateway/);

        const installed = run("npm", "install", "--global", "postern");
        assert.equal(installed.status, 0, installed.stderr);
        assert.doesNotMatch(installed.stderr, /EBADENGINE|deprecated/, installed.stderr);
        assert.match(run("postern", "pair").stderr, /start it with postern gateway/);
        const gateway = await startProcess(["postern", "gateway", "--port", "0"], {
          ...{ cwd, env, ready: /(http:\S+)\/\n[^]*^Pairing code: (\S+)\n/m },
        });
        try {
          const [, url = "", code = ""] = gateway.match;
          const paired = await fetch(`${url}/pair`, { method: "POST", headers: { "x-pairing-code": code } });
          assert.equal(paired.status, 200);
          assert.match(run("postern", "pair").stdout, /^Pairing code: \S+\n$/);
        } finally {
          assert.equal(await gateway.end("SIGTERM"), 0, gateway.output());
        }

        writeFileSync(join(cwd, "package.json"), '{"type":"module"}');
        writeFileSync(join(cwd, "program.js"), PROGRAM);
        assert.equal(run("npm", "install", "postern").status, 0);
        const program = run("node", "program.js");
        assert.equal(program.stdout, "ok\n", program.stderr);
        // SQLite is experimental on Node 22, and is loaded with a database
        const words = ["--input-type=module", "--eval", 'await import("postern"); await import("postern/testing")'];
        assert.deepEqual(Object.values(run("node", ...words)), [0, "", ""]);
        assert.match(run("npx", "postern", "pair").stderr, /start it with npx postern gateway/);
      }
      if (existsSync(OLD_NODE)) {
        const { run, cwd } = userOf(registry, join(folder, "20"), OLD_NODE);
        const sentence = /^(?:Error: )?Cannot (?:run|use Postern) on Node 20\.\d+\.\d+: .*22\.19 or newer; see \S+$/m;
        const once = run("npx", "--yes", "postern");
        assert.match(once.stderr, sentence);
        assert.equal(once.status, 1);
        writeFileSync(join(cwd, "package.json"), '{"type":"module"}');
        writeFileSync(join(cwd, "program.js"), PROGRAM);
        assert.match(run("npm", "install", "postern").stderr, /EBADENGINE[^]*>=22\.19/);
        const program = run("node", "program.js");
        assert.match(program.stderr, sentence);
        assert.doesNotMatch(program.stderr, /node:sqlite|SyntaxError/);
      } else t.diagnostic("Node 20 is left out: npm brings none for this system");
    });
  });
});

const isTerminal = spawnSync("script", ["--version"]).status === 0;

/** Milliseconds from the installed program to the edited file */
const MOST_MS = 60_000;

test("a stranger is at an edited file with its diff within a minute, after one question", {
  skip: skip || (isTerminal ? false : "script is not installed, which makes a terminal"),
}, async (t) => {
  const built = await buildPackage();
  const edit = { path: "plan.md", edits: [{ old_text: "Monday", new_text: "Tuesday" }] };
  const upstream = await startOpenAiUpstream(
    { kind: "tool_call", name: "file_edit", arguments: [JSON.stringify(edit)] },
    { kind: "text", chunks: ["The beans get their water on Tuesday."] },
  );
  try {
    await withTemporaryFolder(async (folder) => {
      const tarball = await packPackage(built, folder);
      await withOwnRegistry({ tools: String(tools), folder, tarball }, async (registry) => {
        const { run, env, cwd } = userOf(registry, join(folder, "stranger"), dirname(process.execPath));
        const plan = join(cwd, "plan.md");
        writeFileSync(plan, "Water the beans on Monday.\n");
        const begun = performance.now();
        const installed = run("npm", "install", "--global", "postern");
        assert.equal(installed.status, 0, installed.stderr);
        const ready = performance.now();
        const { POSTERN__PROVIDER__KIND: _offline, ...own } = env;
        const init = ["postern", "init", "--yes", "--preset", "write", "--provider", upstream.baseUrl];
        const [command = "", ...argv] = [...init, "--model", "upstream-model"];
        const wrote = spawnSync(command, argv, { cwd, env: own, encoding: "utf8" });
        assert.match(wrote.stdout, /^Wrote \S+postern\.toml\. Next: postern gateway\n$/, wrote.stderr);
        const chat = await startProcess(["script", "-qec", 'postern chat "Water on Tuesday"', "/dev/null"], {
          ...{ cwd, env: { ...own, TERM: "dumb" }, ready: /Run this call\? \S+/ },
          input: "y\n",
        });
        assert.equal(await chat.ended, 0, chat.output());
        const ended = performance.now();
        assert.equal(readFileSync(plan, "utf8"), "Water the beans on Tuesday.\n");
        const said = chat.output().replaceAll("\r\n", "\n");
        assert.match(
          said,
          / wants to change plan\.md\n[^]*\n-Water the beans on Monday\.\n\+Water the beans on Tuesday\.\n[^]*Run this call\?[^]*on Tuesday\./,
        );
        assert.equal(said.match(/Run this call\?/g)?.length, 1);
        const seconds = (from: number, to: number) => `${((to - from) / 1000).toFixed(1)} s`;
        t.diagnostic(`installed in ${seconds(begun, ready)}, at the edited file ${seconds(ready, ended)} later`);
        assert.ok(ended - ready < MOST_MS);
      });
    });
  } finally {
    await upstream.close();
  }
});

/** Tests that each door through which an effect leaves the gateway asks for the right to it, last before the effect. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { CancelError, cancelError } from "../../lib/base/cancel.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { type EffectRight, withEffectRight } from "../../lib/base/effect_right.ts";
import { UNTAINTED } from "../../lib/base/taint.ts";
import { parsePluginManifest } from "../../lib/extensions/plugins/manifest.ts";
import { createProcessOpener } from "../../lib/extensions/plugins/process/program_plugin.ts";
import { createDesktop } from "../../lib/system/desktop/desktop.ts";
import { fetchSetUp, fetchSites } from "../support/fetch_bench.ts";
import { NEVER, withMcp } from "../support/mcp_bench.ts";
import { createNodeBench } from "../support/node_bench.ts";
import { NO_SECRETS } from "../support/plugin_bench.ts";
import { sampleTool, sha256 } from "../support/plugin_package.ts";
import { configOf } from "../support/running_gateway.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { until } from "../support/until.ts";
import { createWorkspaceProcesses } from "../support/workspace_processes.ts";
import { withWorkspace } from "../support/workspace.ts";

const YES = () => Promise.resolve({ decision: "approve", reason: "" } as const);
const EFFECT = ["sh", "-c", "echo begun > effect"];

/** Way of an effect out of the gateway. */
interface Door {
  /** Lets an effect happen. @param signal of the work, which aborts when the right is lost */
  readonly pass: (signal: AbortSignal) => Promise<unknown>;
  /** Tells whether it has happened. */
  readonly hasEffect: () => boolean;
}

const { site } = fetchSites();

/** Runs `use` with a door, and closes what it has opened. */
const DOORS: Readonly<Record<string, (use: (door: Door) => Promise<void>) => Promise<void>>> = {
  "a command": (use) =>
    withCommands((processes, request, hasEffect) =>
      use({ pass: (signal) => processes.run({ ...request, signal }), hasEffect })
    ),
  "a command in the background": (use) =>
    withCommands((processes, { timeoutMs: _, ...request }, hasEffect) =>
      use({
        async pass(signal) {
          await processes.start({
            ...request,
            signal,
            owner: "run_1",
            startedBy: { tool: "process_tool", runId: "run_1" },
            maxProcesses: 2,
          });
          await until(hasEffect);
        },
        hasEffect,
      })
    ),
  async "a request"(use) {
    const place = await site((_request, response) => response.end("done"));
    const { get } = fetchSetUp();
    await use({
      pass: (signal) => get(place.origin, { method: "POST", body: "x", signal }),
      hasEffect: () => place.seen.length > 0,
    });
  },
  "a call of a plugin": (use) =>
    withWorkspace({}, async ({ root }) => {
      const folder = join(dirname(root), "package");
      mkdirSync(folder);
      const file = join(folder, "effect");
      const main = Buffer.from(`#!/bin/sh\nread -r line\necho begun > "${file}"\nprintf '{"output":"x"}\\n'\n`);
      writeFileSync(join(folder, "tool"), main, { mode: 0o700 });
      const process = { command: "./tool", sha256: sha256(main), mode: "one_shot" };
      const about = { id: "sample", version: "1.0.0", description: "A sample", tools: [sampleTool("say")] };
      const manifest = parsePluginManifest(JSON.stringify({ ...about, kind: "process", process }));
      assert.ok(manifest.kind === "process");
      const { processes, redactor } = createToolBench({ root });
      const open = createProcessOpener({ processes, clock: systemClock, secrets: NO_SECRETS, redact: redactor.part });
      const config = configOf({ plugins: { allow_process: true, sandbox: "off" } });
      const host = await open({ manifest, folder, digest: "", main, config });
      const context = { workspace_root: root, allow_sensitive_file_reads: false, allow_sensitive_file_writes: false };
      await use({
        pass: (signal) => host.call({ tool: "say", input: { text: "hi" }, context }, signal),
        hasEffect: () => existsSync(file),
      });
      await host.close();
      await processes.close();
    }),
  "an address that is opened for the user": (use) =>
    withWorkspace({}, async ({ root }) => {
      const [opener, file] = [join(root, "xdg-open"), join(root, "effect")];
      writeFileSync(opener, `#!/bin/sh\necho "$1" > "${file}"\n`, { mode: 0o700 });
      const desktop = createDesktop({
        processes: { run: () => assert.fail("It takes no picture") },
        commands: { find: (name) => Promise.resolve(name === "xdg-open" ? opener : undefined) },
        clock: systemClock,
        environment: (name) => (name === "DISPLAY" ? ":9" : undefined),
        home: "/home/nobody",
        folder: join(root, "pictures"),
        platform: "linux",
      });
      await use({
        pass: (signal) => desktop.openUrl(new URL("http://a.test/"), { signal, writable: [] }),
        hasEffect: () => existsSync(file),
      });
    }),
  "a call of an MCP server": (use) =>
    withMcp({ era: "modern", ttlMs: 60_000 }, async (bench) => {
      await bench.server().freshTools(NEVER);
      const { call } = createToolBench({ root: join(bench.folder, "workspace"), foreign: () => bench.servers.tools() });
      await use({
        pass: (signal) => call("mcp__one__echo", { text: "hi" }, { approver: YES, signal }),
        hasEffect: () => bench.notes().some((line) => line.startsWith("tools/call")),
      });
    }),
  "a call of a node": (use) =>
    withWorkspace({}, async ({ root }) => {
      const bench = createNodeBench();
      const node = bench.connect();
      const { call } = createToolBench({ root, foreign: bench.nodes.tools });
      const hasEffect = () => node.frames.some(({ type }) => type === "invoke");
      await use({
        async pass(signal) {
          const calling = call("node__pi__echo", { text: "hi" }, { approver: YES, signal });
          calling.catch(() => {});
          for (let turn = 0; turn < 20; turn++) await bench.clock.advance(0);
          if (hasEffect()) node.say({ type: "result", id: "1", output: "hi", is_error: false, ran: true });
          return await calling;
        },
        hasEffect,
      });
    }),
};

function withCommands(
  use: (
    processes: ReturnType<typeof createWorkspaceProcesses>,
    request: Parameters<ReturnType<typeof createWorkspaceProcesses>["run"]>[0],
    hasEffect: () => boolean,
  ) => Promise<void>,
): Promise<void> {
  return withWorkspace({}, async ({ root }) => {
    const processes = createWorkspaceProcesses(root);
    const scope = { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false };
    const request = {
      ...{ words: EFFECT, scope, sandbox: "off", taint: UNTAINTED, signal: NEVER } as const,
      ...{ maxOutputBytes: 1_000, timeoutMs: 10_000 },
    };
    try {
      await use(processes, request, () => existsSync(join(root, "effect")));
    } finally {
      await processes.close();
    }
  });
}

for (const [name, withDoor] of Object.entries(DOORS)) {
  describe(name, () => {
    test("has no effect once the right is lost", () =>
      withDoor(async ({ pass, hasEffect }) => {
        const lost = new AbortController();
        const right: EffectRight = {
          mayAct() {
            lost.abort(new CancelError("shutdown"));
            return Promise.reject(cancelError(lost.signal));
          },
          mayActNow: () => false,
        };
        await assert.rejects(withEffectRight({ right }, () => pass(lost.signal)), {
          name: "CancelError",
          reason: "shutdown",
        });
        assert.equal(hasEffect(), false);
      }));

    test("waits while the right is uncertain, and then has its effect", () =>
      withDoor(async ({ pass, hasEffect }) => {
        const asked = Promise.withResolvers<void>();
        let isSure = false;
        const right: EffectRight = {
          async mayAct() {
            assert.equal(hasEffect(), false);
            asked.resolve();
            await new Promise((resolve) => setImmediate(resolve));
            isSure = true;
          },
          mayActNow: () => isSure,
        };
        await Promise.all([asked.promise, withEffectRight({ right }, () => pass(NEVER))]);
        assert.equal(hasEffect(), true);
      }));

    test("has no effect in a call that was stopped before, as by a halt, also at a gateway alone", () =>
      withDoor(async ({ pass, hasEffect }) => {
        await assert.rejects(pass(AbortSignal.abort(new CancelError("halted"))), {
          name: "CancelError",
          reason: "halted",
        });
        assert.equal(hasEffect(), false);
      }));

    test("needs no right at a gateway alone", () =>
      withDoor(async ({ pass, hasEffect }) => {
        await pass(NEVER);
        assert.equal(hasEffect(), true);
      }));
  });
}

test("a command whose right became uncertain is prepared again, since the workspace may have changed", () =>
  withCommands(async (processes, request, hasEffect) => {
    const asked: string[] = [];
    const right: EffectRight = {
      mayAct: () => Promise.resolve(void asked.push("wait")),
      mayActNow: () => asked.push("look") > 2,
    };
    const { ending } = await withEffectRight({ right }, () => processes.run(request));
    assert.deepEqual([ending, asked, hasEffect()], [{ kind: "exit", code: 0 }, ["wait", "look", "wait", "look"], true]);
  }));

test("no program of an MCP server or a plugin starts while all work is halted", () =>
  withWorkspace({}, async ({ root }) => {
    const processes = createWorkspaceProcesses(root);
    processes.holdPrograms("a person has halted all work");
    // The call is refused before anything of the request is read
    const request = {} as Parameters<typeof processes.prepareProgram>[0];
    await assert.rejects(processes.prepareProgram(request), {
      code: "halted",
      message: /a person has halted all work/,
    });
    await processes.close();
  }));

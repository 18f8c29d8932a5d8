import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { type Clock, systemClock } from "../../../../lib/base/clock.ts";
import type { ToolError } from "../../../../lib/base/errors.ts";
import { createFfiOpener } from "../../../../lib/extensions/plugins/ffi/ffi_plugin.ts";
import { type ManifestOf, parsePluginManifest } from "../../../../lib/extensions/plugins/manifest.ts";
import type { PluginHost } from "../../../../lib/extensions/plugins/plugin_host.ts";
import { createCommandLookup } from "../../../../lib/system/process/command_lookup.ts";
import { createFakeClock } from "../../../support/fake_clock.ts";
import { isGone } from "../../../support/is_gone.ts";
import { sampleTool, sha256 } from "../../../support/plugin_package.ts";
import { configOf } from "../../../support/running_gateway.ts";
import { createToolBench } from "../../../support/tool_bench.ts";
import { until } from "../../../support/until.ts";
import { withWorkspace, type Workspace } from "../../../support/workspace.ts";
import { NO_SECRETS } from "../../../support/plugin_bench.ts";

const compiler = await createCommandLookup().find("cc");
const skip = compiler === undefined ? "there is no C compiler" : false;
const { kind } = await createToolBench({ root: process.cwd() }).processes.containment({ sandbox: "auto" });
/** Settings of `[plugins]` under which a library has a process of its own */
const APART: readonly Readonly<Record<string, unknown>>[] = [
  { sandbox: "off" },
  ...(kind === "contained" ? [{ sandbox: "require" }] : []),
];

interface SampleBench {
  readonly host: PluginHost;
  readonly workspace: Workspace;
  call(text: string, signal?: AbortSignal): ReturnType<PluginHost["call"]>;
}

/** Runs `use` with the sample library, built again. */
async function withLibrary(
  plugins: Readonly<Record<string, unknown>>,
  use: (bench: SampleBench) => Promise<void>,
  { symbol = "sample", clock = systemClock }: { readonly symbol?: string; readonly clock?: Clock } = {},
): Promise<void> {
  await withWorkspace({ "a.txt": "a" }, async (workspace) => {
    const folder = join(dirname(workspace.root), "package");
    mkdirSync(folder);
    const library = join(folder, "sample.so");
    execFileSync(compiler ?? "cc", ["-shared", "-fPIC", "-o", library, "fixtures/plugins/ffi-c/sample.c"]);
    const { processes } = createToolBench({ root: workspace.root });
    const main = readFileSync(library);
    const manifest = parsePluginManifest(JSON.stringify({
      ...{ id: "sample", version: "1.0.0", description: "A sample", kind: "ffi", tools: [sampleTool("say")] },
      ffi: { library: "sample.so", sha256: sha256(main), symbol },
    })) as ManifestOf<"ffi">;
    const config = configOf({ plugins: { allow_ffi: true, timeout_secs: 20, ...plugins } });
    const open = createFfiOpener({ processes, clock, secrets: NO_SECRETS });
    const context = {
      workspace_root: workspace.root,
      allow_sensitive_file_reads: false,
      allow_sensitive_file_writes: false,
    };
    const opened: PluginHost[] = [];
    try {
      const host = await open({ manifest, folder, digest: "", main, config });
      opened.push(host);
      await use({
        host,
        workspace,
        call: (text, signal = new AbortController().signal) =>
          host.call({ tool: "say", input: { text }, context }, signal),
      });
    } finally {
      await Promise.all(opened.map((host) => host.close()));
      await processes.close();
    }
  });
}

for (const plugins of APART) {
  test(
    `a library answers from a process of its own, with sandbox ${plugins["sandbox"]}`,
    { skip },
    () =>
      withLibrary(plugins, async ({ call, workspace }) => {
        const first = await call("Grüße\n\u0000");
        assert.deepEqual(Object.keys(first.data ?? {}), ["tool", "input", "context"]);
        assert.deepEqual((first.data as { readonly input: unknown }).input, { text: "Grüße\n\u0000" });
        assert.equal(first.is_error, false);
        assert.notEqual(first.output, String(process.pid));
        assert.equal((await call("again")).output, first.output, "the process stays");
        assert.equal((await call("noise")).output, first.output, "what the library prints is no answer");
        assert.match(JSON.stringify(first.data), new RegExp(workspace.root));
      }),
  );

  test(
    `a crash of a library is an error of its call, with sandbox ${plugins["sandbox"]}`,
    { skip },
    () =>
      withLibrary(plugins, async ({ call }) => {
        const { output } = await call("a");
        await assert.rejects(call("crash"), {
          code: "plugin_failed",
          message: /SIGABRT ended it|ended with the code 134/,
        });
        const { output: next } = await call("a");
        if (plugins["sandbox"] === "off") {
          assert.notEqual(next, output);
          assert.ok(await isGone(output));
        }
        await assert.rejects(call("nothing"), { code: "plugin_failed", message: /sample\(\) returned NULL/ });
      }),
  );
}

test(
  "a library that takes too long, or answers too much, is ended",
  { skip },
  () => {
    const clock = createFakeClock();
    return withLibrary({ sandbox: "off", max_output_bytes: 2048 }, async ({ call }) => {
      const { output } = await call("a");
      let ended: unknown;
      call("sleep").catch((error: unknown) => (ended = error));
      await until(async () => {
        await clock.advance(20_000);
        return ended !== undefined;
      });
      assert.equal((ended as ToolError).code, "plugin_timeout");
      assert.ok(await isGone(output));
      await assert.rejects(call("huge"), { code: "plugin_output_too_large" });
    }, { clock });
  },
);

test(
  "a library in the gateway's own process answers there",
  { skip },
  () =>
    withLibrary({ ffi: "in_process", max_output_bytes: 2048 }, async ({ call }) => {
      const { output, data } = await call("a");
      assert.equal(output, String(process.pid));
      assert.deepEqual((data as { readonly input: unknown }).input, { text: "a" });
      const all = await Promise.all(Array.from({ length: 20 }, (_, index) => call(`n${index}`)));
      assert.deepEqual(
        all.map(({ data }) => (data as { readonly input: unknown }).input),
        all.map((_, index) => ({ text: `n${index}` })),
      );
      await assert.rejects(call("nothing"), { code: "plugin_failed", message: /its function sample returned NULL/ });
      await assert.rejects(call("huge"), { code: "plugin_output_too_large" });
      const stop = new AbortController();
      stop.abort();
      await assert.rejects(call("a", stop.signal), { name: "CancelError" });
    }),
);

for (const plugins of [{ sandbox: "off" }, { ffi: "in_process" }]) {
  test(
    `a function that the library has not is an error that names it: ${JSON.stringify(plugins)}`,
    { skip },
    () =>
      assert.rejects(withLibrary(plugins, async ({ call }) => void await call("a"), { symbol: "missing" }), {
        code: "plugin_failed",
        message: /missing/,
      }),
  );
}

/**
 * Prints how long a call of a plugin takes that is a small native program or library, p50 and p99 in milliseconds, beside a bare start of the
 * same program: `node test/bench/plugins.bench.ts [calls]`. Needs a C compiler.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { createFfiOpener } from "../../lib/extensions/plugins/ffi/ffi_plugin.ts";
import { readPluginFolder } from "../../lib/extensions/plugins/plugin_files.ts";
import type { PluginHost } from "../../lib/extensions/plugins/plugin_host.ts";
import { openPlugin } from "../../lib/extensions/plugins/plugin_openers.ts";
import { createProcessOpener } from "../../lib/extensions/plugins/process/program_plugin.ts";
import { sampleTool } from "../support/plugin_package.ts";
import { configOf } from "../support/running_gateway.ts";
import { createWorkspaceProcesses } from "../support/workspace_processes.ts";
import { NO_SECRETS } from "../support/plugin_bench.ts";

const CALLS = Number(process.argv[2] ?? 200);
const PROGRAM = `#include <stdio.h>
int main(void) { char line[4096]; return fgets(line, sizeof line, stdin) == NULL || puts("{\\"output\\":\\"done\\"}") < 0; }
`;

const top = mkdtempSync(join(tmpdir(), "postern-bench-"));
const root = join(top, "workspace");
const processes = createWorkspaceProcesses(root);
const services = { processes, clock: systemClock, secrets: NO_SECRETS };
const openers = { process: createProcessOpener(services), ffi: createFfiOpener(services) };
const opened: PluginHost[] = [];
try {
  for (const name of ["workspace", "program", "library"]) mkdirSync(join(top, name));
  writeFileSync(join(top, "program.c"), PROGRAM);
  execFileSync("cc", ["-O2", "-o", join(top, "program", "tool"), join(top, "program.c")]);
  execFileSync("cc", ["-shared", "-fPIC", "-o", join(top, "library", "sample.so"), "fixtures/plugins/ffi-c/sample.c"]);
  const native = { kind: "process", process: { command: "./tool", sha256: "0".repeat(64) } };
  const library = { kind: "ffi", ffi: { library: "sample.so", sha256: "0".repeat(64), symbol: "sample" } };
  console.log(`${CALLS} calls`);
  await measure("bare start", bareStart);
  await measure("one-shot program, plain", await opener("program", native, { sandbox: "off" }));
  await measure("one-shot program, contained", await opener("program", native, { sandbox: "require" }));
  await measure("library in a process, plain", await opener("library", library, { sandbox: "off" }));
  await measure("library in a process, contained", await opener("library", library, { sandbox: "require" }));
  await measure("library in the gateway", await opener("library", library, { ffi: "in_process" }));
} finally {
  await Promise.all(opened.map((host) => host.close()));
  await processes.close();
  rmSync(top, { recursive: true });
}

/** Opens a plugin and returns a call of it. */
async function opener(name: string, kind: object, plugins: object): Promise<() => Promise<unknown>> {
  const folder = join(top, name);
  const shared = { id: "sample", version: "1.0.0", description: "A sample", tools: [sampleTool("say")] };
  writeFileSync(join(folder, "plugin.json"), JSON.stringify({ ...shared, ...kind }));
  const { manifest, digest } = await readPluginFolder(folder, { fillDigest: "always" });
  const config = configOf({ plugins });
  const host = await openPlugin(openers, { manifest, folder, digest, main: undefined, config });
  opened.push(host);
  const context = { workspace_root: root, allow_sensitive_file_reads: false, allow_sensitive_file_writes: false };
  return () => host.call({ tool: "say", input: { text: "a" }, context }, new AbortController().signal);
}

async function bareStart(): Promise<void> {
  const child = spawn(join(top, "program", "tool"), { stdio: ["pipe", "pipe", "ignore"] });
  child.stdin.end("{}\n");
  child.stdout.resume();
  await once(child, "close");
}

async function measure(name: string, work: () => Promise<unknown>): Promise<void> {
  for (let at = 0; at < 10; at++) await work();
  const times: number[] = [];
  for (let at = 0; at < CALLS; at++) {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  const part = (share: number) => (times[Math.floor(times.length * share)] ?? 0).toFixed(2);
  console.log(`${name}: p50 ${part(0.5)}, p99 ${part(0.99)}`);
}

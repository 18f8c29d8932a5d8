/**
 * Prints how long `true` takes as a command of a tool, p50 and p99 in milliseconds: plain, contained, contained with the relay, and bubblewrap alone. The workspace
 * has 10,000 files that have not changed for a while: `node test/bench/contained.bench.ts [files] [calls]`.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { Relay } from "../../lib/system/net/relay.ts";
import { createUrlPolicy } from "../../lib/system/net/url_policy.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import type { CommandNetwork, SandboxMode } from "../../lib/system/process/containment.ts";
import { runCommand } from "../../lib/system/process/run_command.ts";
import { contain, tryBubblewrap } from "../../lib/system/process/sandbox.ts";
import { createWorkspaceProcesses } from "../support/workspace_processes.ts";

const FILES = Number(process.argv[2] ?? 10_000);
const CALLS = Number(process.argv[3] ?? 200);
const FILES_IN_FOLDER = 50;
/** A file that changed less than this ago is looked at again in each call */
const QUIET_MS = 3000;

const top = mkdtempSync(join(tmpdir(), "postern-bench-"));
const root = join(top, "workspace");
const commands = createCommandLookup();
const policy = createUrlPolicy();
const { url_access: rules } = defaultConfig();
const processes = createWorkspaceProcesses(root, {
  commands,
  relays: {
    folder: join(top, "relays"),
    allowlist: () => rules.domain_allowlist,
    create: () => Promise.resolve(new Relay({ policy, rules: () => rules, clock: systemClock })),
  },
});
try {
  for (let at = 0; at < FILES; at++) {
    const folder = join(root, `folder${Math.floor(at / FILES_IN_FOLDER)}`);
    if (at % FILES_IN_FOLDER === 0) mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `file${at}.txt`), `text ${at}\n`.repeat(20));
  }
  await systemClock.sleep(QUIET_MS);
  console.log(`${FILES} files, ${CALLS} calls`);
  await measure("plain", () => call("off"));
  await measure("bubblewrap alone", await sandboxAlone());
  await measure("contained", () => call("require"));
  await measure("with the relay", () => call("require", "allowlist"));
} finally {
  await processes.close();
  rmSync(top, { recursive: true });
}

async function call(sandbox: SandboxMode, network: CommandNetwork = "none"): Promise<void> {
  const { ending } = await processes.run({
    words: ["true"],
    scope: { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
    sandbox,
    network,
    timeoutMs: 60_000,
    maxOutputBytes: 1000,
    signal: new AbortController().signal,
  });
  if (ending.kind !== "exit" || ending.code !== 0) throw new Error(`It ended with ${JSON.stringify(ending)}`);
}

/** Returns a start of the sandbox without any look at the workspace: the least that a contained call takes. */
async function sandboxAlone(): Promise<() => Promise<void>> {
  const signal = new AbortController().signal;
  const [bubblewrap, file = ""] = await Promise.all([
    tryBubblewrap({ commands, clock: systemClock, signal }),
    commands.find("true"),
  ]);
  if (bubblewrap.kind !== "bubblewrap") throw new Error(bubblewrap.reason);
  const line = await contain({ file, args: [], cwd: root, env: {} }, { bubblewrap, workspace: { root, hidden: [] } });
  if (line === undefined) throw new Error("The workspace cannot be contained");
  return async () => {
    await runCommand(line, { timeoutMs: 60_000, maxOutputBytes: 1000, signal, clock: systemClock });
  };
}

async function measure(name: string, work: () => Promise<void>): Promise<void> {
  const times: number[] = [];
  // The first tenth warms up
  for (let at = -Math.ceil(CALLS / 10); at < CALLS; at++) {
    const start = performance.now();
    await work();
    if (at >= 0) times.push(performance.now() - start);
  }
  times.sort((one, other) => one - other);
  const place = (share: number) => (times[Math.floor(times.length * share)] ?? 0).toFixed(1).padStart(7);
  console.log(`${name.padEnd(18)} p50 ${place(0.5)} ms  p99 ${place(0.99)} ms`);
}

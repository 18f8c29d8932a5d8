import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { endProcess } from "../../../lib/host/daemon/end_process.ts";
import { processIdentity } from "../../../lib/host/process_identity.ts";
import { isGone } from "../../support/is_gone.ts";
import { killIfThere } from "../../support/kill_if_there.ts";

/** A shell that says `ready` once its script has got so far, leader of a group of its own. */
async function withShell(
  script: string,
  use: (shell: { pid: number; identity: string; said: string }) => Promise<void>,
): Promise<void> {
  const child = spawn("sh", ["-c", script], { detached: true, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  const pid = child.pid ?? 0;
  try {
    const said = String((await once(child.stdout, "data"))[0]);
    await use({ pid, identity: await processIdentity(pid) ?? "", said });
  } finally {
    // With the group, what the script has started ends too: it would hold the pipe, and this process with it
    killIfThere(-pid);
    await ended;
  }
}

test("a process that ends when it is told to was ended by itself", () =>
  withShell("echo ready; sleep 60", async ({ pid, identity }) => {
    const target = { pid, identity, leads_group: false };
    assert.equal(await endProcess(target, { clock: systemClock, graceMs: 10_000 }), "itself");
    assert.equal(await processIdentity(pid), undefined);
  }));

test("one that will not end is killed after the grace, with its whole group", () =>
  withShell("trap '' TERM; sleep 60 & echo $!; wait; sleep 60", async ({ pid, identity, said }) => {
    const target = { pid, identity, leads_group: true };
    assert.equal(await endProcess(target, { clock: systemClock, graceMs: 100 }), "kill");
    assert.ok(await isGone(said.trim()));
  }));

test("one that ends already is not told again: its second SIGTERM would be an order to stop at once", () =>
  withShell("trap 'exit 3' TERM; echo ready; sleep 60 & wait", async ({ pid, identity }) => {
    const target = { pid, identity, leads_group: true };
    assert.equal(await endProcess(target, { clock: systemClock, graceMs: 100, isTold: true }), "kill");
  }));

test("another process that has got the number gets no signal", () =>
  withShell("echo ready; sleep 60", async ({ pid, identity }) => {
    const target = { pid, identity: `${identity}1`, leads_group: true };
    assert.equal(await endProcess(target, { clock: systemClock, graceMs: 0 }), "itself");
    assert.equal(await processIdentity(pid), identity);
  }));

test("a process has one identity for as long as it is there, and no other has it", async () => {
  const own = await processIdentity(process.pid);
  assert.ok(own !== undefined && own !== "");
  assert.equal(await processIdentity(process.pid), own);
  assert.notEqual(await processIdentity(1), own);
  assert.equal(await processIdentity(2 ** 22 + 1), undefined);
});

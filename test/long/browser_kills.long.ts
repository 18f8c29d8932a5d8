import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { noContainedBrowser } from "../support/browser_bench.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const CYCLES = 200;
const MARKER = "browser-kills-test";
const FIXTURE = fileURLToPath(new URL("../../fixtures/open_browser.ts", import.meta.url));

/** Ids of processes that carry the marker in their environment, or descend from one of the ids. */
function alive(known: ReadonlyMap<string, string>): readonly string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((id) => {
    const environment = read(`/proc/${id}/environ`);
    return environment.includes(`POSTERN_GATEWAY=${MARKER}`) || known.get(id) === startOf(id);
  });
}

/** Processes below one, each with the time of its start: an id alone may be another's later. */
function descendants(root: number): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const open = [String(root)];
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    for (const child of read(`/proc/${id}/task/${id}/children`).split(" ").filter((one) => one !== "")) {
      found.set(child, startOf(child));
      open.push(child);
    }
  }
  return found;
}

function startOf(id: string): string {
  return read(`/proc/${id}/stat`).replace(/^.*\)/s, "").split(" ")[20] ?? "";
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

test(`no process of a browser outlives ${CYCLES} kills of its gateway, at any moment of its start`, {
  skip: await noContainedBrowser(),
}, () =>
  withTemporaryFolder(async (folder) => {
    const random = createSeededRandom(7);
    let opened = 0;
    for (let cycle = 0; cycle < CYCLES; cycle++) {
      const child = spawn(process.execPath, [FIXTURE, `${folder}/sockets`, MARKER], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      let said = "";
      child.stdout.setEncoding("utf8").on("data", (text: string) => said += text);
      await until(() => said.includes("opening"), "the gateway does not start");
      // From the first process of the browser to some time after it is open
      await wait((random.bytes(1)[0] ?? 0) * 6);
      opened += said.includes("open\n") ? 1 : 0;
      const known = descendants(child.pid ?? 0);
      child.kill("SIGKILL");
      await once(child, "exit");
      await until(() => alive(known).length === 0, `cycle ${cycle}: ${alive(known).join()} live on`);
    }
    console.log(`${opened} of ${CYCLES} browsers were open when their gateway was killed`);
    assert.ok(opened > 10 && opened < CYCLES, "the kills come at different moments");
  }));

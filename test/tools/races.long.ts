import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { assertNoCanary } from "../support/canaries.ts";
import { type Exchange, type Moment, NO_EXCHANGER as skip, withExchanger } from "../support/exchanger.ts";
import { layOutNotes, plantSecrets, protectedBytes, RACED_CANARIES } from "../support/raced_workspace.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { withWorkspace } from "../support/workspace.ts";

const CALLS = 10_000;
/** Ends before the runner would */
const LIMIT_MS = 55 * 60_000;
/** Share of the calls in which the attacker must have exchanged something */
const LEAST_STRUCK = 0.5;

const PATCH =
  "*** Begin Patch\n*** Update File: notes/a.txt\n@@\n-one inside\n+changed\n*** Add File: notes/d.txt\n+new\n*** End Patch";
const EDIT = { path: "notes/a.txt", edits: [{ old_text: "one", new_text: "changed" }] };

const TOOL_CALLS: readonly (readonly [tool: string, input: unknown])[] = [
  ["read_file", { path: "notes/a.txt" }],
  ["read_file", { path: "notes/../notes/b.txt" }],
  ["read_file", { path: "notes/b.txt", start_line: 1, line_count: 1 }],
  ["docx_read", { path: "notes/a.docx" }],
  ["content_search", { pattern: "one|two", path: "." }],
  ["content_search", { pattern: "one|two", path: "notes" }],
  ["content_search", { pattern: "one", path: "notes/a.txt" }],
  ["glob_search", { pattern: "**/*", path: "." }],
  ["glob_search", { pattern: "*.txt", path: "notes" }],
  ["write_file", { path: "notes/a.txt", content: "changed\n", overwrite: true }],
  ["write_file", { path: "notes/c.txt", content: "new\n" }],
  ["write_file", { path: "notes/sub/c.txt", content: "new\n" }],
  ["file_edit", EDIT],
  ["apply_patch", { patch: PATCH }],
  ["shell", { command: "cat notes/a.txt notes/b.txt" }],
  ["shell", { command: "grep -r canary ." }],
];
const EVENTS = ["open", "access", "close", "any", "ring"] as const;
const FILES = ["notes/a.txt", "notes/b.txt", "notes/a.docx"];
/** Texts of links in the place of a file, and of the folder */
const FILE_LINKS = [
  "../outside/a.txt",
  "../.ssh/a.txt",
  "../private/b.txt",
  "../../outside/b.txt",
  "../.git/notes/a.txt",
  "b.txt",
];
const FOLDER_LINKS = ["../outside", ".ssh", "private", ".git/notes", "decoy", ".", ".."];

/** Numbers and choices of one seed. */
function choices(seed: number) {
  const random = createSeededRandom(seed);
  const below = (limit: number) => {
    const [high = 0, low = 0] = random.bytes(2);
    return (high * 256 + low) % limit;
  };
  const among = <T>(list: readonly T[]): T => list[below(list.length)] as T; // the lists have entries
  const moment = (): Moment => {
    const on = among(EVENTS);
    const times = 1 + below(4) * below(12);
    return { on, nth: on === "ring" ? 1 : 1 + below(1 + below(12)), delayUs: below(3) === 0 ? below(300) : 0, times };
  };
  const trap = (path: (name: string) => string): Omit<Exchange, "at" | "watched"> => {
    if (below(4) === 0) return { by: "exchange", target: path("notes"), other: path("decoy") };
    if (below(2) === 0) return { by: "link", target: path("notes"), other: among(FOLDER_LINKS) };
    const target = path(among(FILES));
    const other = among(["notes/b.txt", "decoy/a.txt"]);
    return below(3) === 0 && target !== path(other)
      ? { by: "exchange", target, other: path(other) }
      : { by: "link", target, other: among(FILE_LINKS) };
  };
  return { among, moment, trap };
}

const { variant } = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] });

test(`${CALLS} calls with an attacker at any moment show no secret and change nothing that they may not`, {
  // By looks alone each call waits for a moment in which nothing moves
  skip: skip !== false ? skip : variant === "handles" ? false : "there are no folder handles here",
}, (context) =>
  withWorkspace({}, async (workspace) => {
    const seed = Number(process.env["SEED"] ?? systemClock.now() % 1_000_000);
    context.diagnostic(`SEED=${seed}`);
    const { among, moment, trap } = choices(seed);
    plantSecrets(workspace);
    layOutNotes(workspace);
    const before = protectedBytes(workspace);
    const bench = createToolBench({
      root: workspace.root,
      config: {
        autonomy: { level: "full", forbidden_paths: [workspace.path("private")] },
        write_file: { enabled: true },
        allowed_commands: ["cat", "grep"],
      },
    });
    const end = systemClock.monotonic() + LIMIT_MS;
    let [calls, exchanges, struck, answered] = [0, 0, 0, 0];
    while (calls < CALLS && systemClock.monotonic() < end) {
      calls++;
      layOutNotes(workspace);
      const exchange: Exchange = { at: moment(), watched: workspace.path("notes"), ...trap(workspace.path) };
      const [tool, input] = among(TOOL_CALLS);
      await withExchanger(exchange, workspace.path("../bell"), async (exchanger) => {
        exchanger.ring();
        const { result } = await bench.call(tool, input);
        const what = `SEED=${seed}, call ${calls}: ${tool} ${JSON.stringify(input)}, ${JSON.stringify(exchange)}`;
        assertNoCanary(what, JSON.stringify(result), RACED_CANARIES);
        assert.deepEqual(protectedBytes(workspace), before, what);
        const report = await exchanger.report();
        exchanges += report.struck;
        if (report.struck > 0) struck++;
        if (!result.isError) answered++;
      });
    }
    await bench.processes.close();
    context.diagnostic(
      `${calls} calls, ${answered} without an error, ${struck} attacked, exchanges at ${exchanges} events`,
    );
    assert.equal(calls, CALLS, `there was time for ${calls} calls alone`);
    assert.ok(struck >= calls * LEAST_STRUCK, `the attacker struck in ${struck} of ${calls} calls`);
    assert.ok(answered >= calls * 0.25, `${answered} of ${calls} calls gave an answer`);
  }));

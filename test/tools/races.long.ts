import assert from "node:assert/strict";
import { mkdirSync, rmSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { assertNoCanary } from "../support/canaries.ts";
import {
  DEV_SERVER_CONFIG,
  type Exchange,
  type Moment,
  NO_EXCHANGER as skip,
  startDevServer,
  withExchanger,
} from "../support/exchanger.ts";
import { layOutNotes, plantSecrets, protectedBytes, RACED_CANARIES } from "../support/raced_workspace.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { git, initRepository, isThere } from "../support/git_fixture.ts";
import { startSh, uncontained } from "../support/sh_server.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { withWorkspace } from "../support/workspace.ts";

const CALLS = Number(process.env["CALLS"] ?? 10_000);
/** Starts of programs, which take the time of ten calls */
const STARTS = Math.ceil(CALLS / 20);
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
const GIT_CALLS: typeof TOOL_CALLS = [
  ["git_operations", { op: "status" }],
  ["git_operations", { op: "diff" }],
  ["git_operations", { op: "diff", staged: true }],
  ["git_operations", { op: "add", paths: ["notes"] }],
  ["git_operations", { op: "checkout", paths: ["notes/a.txt"] }],
  ["git_operations", { op: "show", path: "notes/a.txt" }],
  ["git_operations", { op: "log", path: "notes" }],
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
    layOutNotes(workspace);
    // Before there are secrets: they are in no commit
    if (isThere("git")) initRepository(workspace.root);
    plantSecrets(workspace);
    const known = isThere("git") ? [...TOOL_CALLS, ...GIT_CALLS] : TOOL_CALLS;
    const before = protectedBytes(workspace);
    const bench = createToolBench({
      root: workspace.root,
      config: {
        autonomy: { level: "full", forbidden_paths: [workspace.path("private")] },
        write_file: { enabled: true },
        allowed_commands: ["cat", "grep"],
        enable_git: true,
      },
    });
    const end = systemClock.monotonic() + LIMIT_MS;
    let [calls, exchanges, struck, answered] = [0, 0, 0, 0];
    while (calls < CALLS && systemClock.monotonic() < end) {
      calls++;
      layOutNotes(workspace);
      const exchange: Exchange = { at: moment(), watched: workspace.path("notes"), ...trap(workspace.path) };
      const [tool, input] = among(known);
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
    // Nothing from outside was added to the index
    if (isThere("git")) assertNoCanary("the index", git(workspace.root, "diff", "--cached"), RACED_CANARIES);
    context.diagnostic(
      `${calls} calls, ${answered} without an error, ${struck} attacked, exchanges at ${exchanges} events`,
    );
    assert.equal(calls, CALLS, `there was time for ${calls} calls alone`);
    assert.ok(struck >= calls * LEAST_STRUCK, `the attacker struck in ${struck} of ${calls} calls`);
    assert.ok(answered >= calls * 0.25, `${answered} of ${calls} calls gave an answer`);
  }));

/** Looks of a program for what it must not see. */
const LOOKS =
  "cat a.txt b.txt sub/a.txt .env ../.ssh/a.txt ../private/a.txt ../../outside/a.txt ../outside/a.txt; true";
const MADE = "mkdir -p notes/sub && echo one > notes/a.txt && echo two > notes/b.txt && echo deep > notes/sub/a.txt";
const START_TRAPS = [
  ["notes", "../outside"],
  ["notes", "."],
  ["notes", ".ssh"],
  ["notes", "private"],
  ["notes/sub", "../../outside"],
  ["notes/sub", "../.ssh"],
  ["notes/a.txt", "../../outside/a.txt"],
  ["notes/a.txt", "../private/a.txt"],
] as const;

test(`${STARTS} starts of MCP servers and plugins beside a contained attacker show no secret and change nothing`, {
  skip: skip !== false ? skip : uncontained,
}, (context) =>
  withWorkspace({}, async (workspace) => {
    const seed = Number(process.env["SEED"] ?? systemClock.now() % 1_000_000);
    context.diagnostic(`SEED=${seed}`);
    const { among, moment } = choices(seed);
    const { root, path } = workspace;
    plantSecrets(workspace);
    const forbiddenPaths = [path("private")];
    const bench = createToolBench({
      root,
      config: {
        ...DEV_SERVER_CONFIG,
        autonomy: { level: "full", forbidden_paths: forbiddenPaths },
        shell: { sandbox: "require" },
      },
    });
    const before = protectedBytes(workspace);
    let [struck, begun] = [0, 0];
    const asPlugin = async (script: string) => {
      const prepared = await bench.processes.prepareProgram({
        program: { file: "sh", args: ["-c", script], folder: path("../package") },
        rights: { workspace: among(["read", "write"] as const), hosts: { key: "", entries: [] } },
        ...{ title: "plugin", taint: [], sandbox: "require", section: "[plugins]" },
        signal: new AbortController().signal,
        scope: { workspaceRoot: root, workspaceOnly: true, forbiddenPaths, allowSensitive: false },
      });
      return { program: await prepared.start(), after: prepared.after };
    };
    mkdirSync(path("../package"));
    for (let start = 1; start <= STARTS; start++) {
      rmSync(path("notes"), { recursive: true, force: true });
      const [target, other] = among(START_TRAPS);
      const exchange: Exchange = { at: moment(), watched: path("notes"), target: path(target), by: "link", other };
      mkdirSync(path("notes"));
      const server = await startDevServer({ bench, workspace }, exchange, MADE);
      const what = `SEED=${seed}, start ${start}: ${JSON.stringify(exchange)}`;
      try {
        server.ring();
        const script = `cd '${path("notes")}' && ${LOOKS}`;
        const started = await (among([true, false])
          ? startSh(workspace, bench.processes, { paths: [path("notes")], script, forbidden: forbiddenPaths }).then((
            program,
          ) => ({
            program,
            after: () => Promise.resolve(),
          }))
          : asPlugin(script)).catch((error: unknown) => String(error));
        let said = "";
        if (typeof started === "string") said = started;
        else {
          begun++;
          for (const stream of [started.program.stdout, started.program.stderr]) {
            stream.on("data", (part) => void (said += part));
          }
          await started.program.exited;
          await started.program.end();
          await started.after();
        }
        assertNoCanary(what, said, RACED_CANARIES);
        assert.deepEqual(protectedBytes(workspace), before, what);
        if ((await server.report()).struck > 0) struck++;
      } finally {
        await server.end();
      }
    }
    await bench.processes.close();
    context.diagnostic(`${STARTS} starts, ${begun} begun, ${struck} attacked`);
    assert.ok(struck >= STARTS * 0.3 && begun >= STARTS * 0.2, `${struck} attacked, ${begun} begun of ${STARTS}`);
  }));

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import type { FilesVariant } from "../../../lib/system/files/files.ts";
import { assertNoCanary } from "../../support/canaries.ts";
import {
  atEveryMoment,
  type Exchange,
  type Moment,
  NO_EXCHANGER as skip,
  withExchanger,
} from "../../support/exchanger.ts";
import { layOutNotes, plantSecrets, protectedBytes, RACED_CANARIES } from "../../support/raced_workspace.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

type Trap = (file: string) => Pick<Exchange, "by" | "target" | "other">;

const folderTo = (other: string): Trap => (file) => ({ by: "link", target: dirname(file), other });
const fileTo = (other: string): Trap => (file) => ({ by: "link", target: file, other });
const swapped: Trap = (file) => ({ by: "exchange", target: dirname(file), other: join(dirname(file), "../decoy") });

/** Traps in the place of the file, or of its folder, in the middle of a call that reads. */
const READ_TRAPS: readonly Trap[] = [
  ...["../../outside/a.txt", "../.ssh/a.txt"].map(fileTo),
  ...["../outside", "private"].map(folderTo),
  swapped,
];
/** And of one that writes, which may not reach the repository either. */
const WRITE_TRAPS: readonly Trap[] = [
  ...["../outside", ".git/notes"].map(folderTo),
  swapped,
];

interface RacedCall {
  readonly tool: string;
  readonly input: unknown;
  /** Relative to the workspace */
  readonly file: string;
  readonly traps: readonly Trap[];
  readonly variant?: FilesVariant;
}

const PATCH = "*** Begin Patch\n*** Update File: notes/a.txt\n@@\n-one inside\n+changed\n*** End Patch";
const WRITE = { tool: "write_file", input: { path: "notes/a.txt", content: "changed\n", overwrite: true } };
const EDIT = { path: "notes/a.txt", edits: [{ old_text: "one", new_text: "changed" }] };

const CALLS: readonly RacedCall[] = [
  { tool: "read_file", input: { path: "notes/a.txt" }, file: "notes/a.txt", traps: READ_TRAPS },
  { tool: "docx_read", input: { path: "notes/a.docx" }, file: "notes/a.docx", traps: READ_TRAPS },
  { tool: "content_search", input: { pattern: "one", path: "notes" }, file: "notes/a.txt", traps: READ_TRAPS },
  { tool: "glob_search", input: { pattern: "**/*.txt", path: "notes" }, file: "notes/a.txt", traps: READ_TRAPS },
  { ...WRITE, file: "notes/a.txt", traps: WRITE_TRAPS },
  { tool: "write_file", input: { path: "notes/c.txt", content: "new\n" }, file: "notes/a.txt", traps: WRITE_TRAPS },
  { tool: "file_edit", input: EDIT, file: "notes/a.txt", traps: WRITE_TRAPS },
  { tool: "apply_patch", input: { patch: PATCH }, file: "notes/a.txt", traps: WRITE_TRAPS },
];
const { variant: native } = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] });
/** By looks before and after, as on other platforms: each call waits for a moment in which nothing moves. */
const CHECKED: readonly RacedCall[] = native === "checked" ? [] : [
  { tool: "read_file", input: { path: "notes/a.txt" }, file: "notes/a.txt", traps: [folderTo("../outside")] },
  { ...WRITE, file: "notes/a.txt", traps: [folderTo("../outside")] },
].map((call) => ({ ...call, variant: "checked" }));

for (const call of [...CALLS, ...CHECKED]) {
  const { tool, input, traps, variant = native } = call;
  test(
    `${variant}: ${tool} ${JSON.stringify(input)} shows and changes nothing that it may not, whatever is exchanged`,
    {
      skip,
    },
    () =>
      withWorkspace({}, async (workspace) => {
        plantSecrets(workspace);
        const bench = createToolBench({
          ...{ root: workspace.root, variant },
          config: {
            autonomy: { level: "full", forbidden_paths: [workspace.path("private")] },
            write_file: { enabled: true },
          },
        });
        for (const trap of traps) await atEveryMoment((at) => race(call, { trap, at, workspace, bench }));
      }),
  );
}

async function race({ tool, input, file }: RacedCall, { trap, at, workspace, bench }: {
  readonly trap: Trap;
  readonly at: Moment;
  readonly workspace: Workspace;
  readonly bench: ToolBench;
}) {
  layOutNotes(workspace);
  const before = protectedBytes(workspace);
  const exchange: Exchange = { at, watched: workspace.path("notes"), ...trap(workspace.path(file)) };
  return await withExchanger(exchange, workspace.path("../bell"), async (exchanger) => {
    exchanger.ring();
    const { result } = await bench.call(tool, input);
    const what = `${tool} at ${JSON.stringify(at)}, ${exchange.by} ${exchange.other}`;
    assertNoCanary(what, JSON.stringify(result), RACED_CANARIES);
    if (at.nth === 0) assert.equal(result.isError, false, result.output);
    assert.deepEqual(protectedBytes(workspace), before, what);
    return await exchanger.report();
  });
}

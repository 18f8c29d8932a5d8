import assert from "node:assert/strict";
import { linkSync, renameSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { RunTaint } from "../../../lib/base/taint.ts";
import type { ToolCallOutcome } from "../../../lib/tools/runtime/tool_executor.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const ORIGIN = "web_fetch example.com";
const CONFIG = {
  autonomy: { level: "full" },
  write_file: { enabled: true },
  allowed_commands: ["find", "cat", "grep", "echo", "ls", "cp", "sleep"],
  shell: { sandbox: "off" },
} as const;

/** A bench with `page.md`, which a tainted run has written, and `own.md`. */
const withPage = (use: (bench: ToolBench, workspace: Workspace) => Promise<void>) =>
  withWorkspace({ "own.md": "mine\n" }, async (workspace) => {
    const bench = createToolBench({ root: workspace.root, config: CONFIG });
    try {
      await tainted(bench, "write_file", { path: "page.md", content: "Do as I say\nnow\n" });
      await use(bench, workspace);
    } finally {
      await bench.processes.close();
    }
  });
const tainted = (bench: ToolBench, name: string, input: unknown) =>
  bench.call(name, input, { taint: new RunTaint([ORIGIN]) });
const isTainted = ({ taint }: ToolCallOutcome) => taint?.includes(ORIGIN) === true;
const patch = (...lines: readonly string[]) => ({
  patch: ["*** Begin Patch", ...lines, "*** End Patch"].join("\n"),
});

describe("a file that outside content reached", () => {
  test("is known under the name that a patch moves it to", () =>
    withPage(async (bench) => {
      const move = patch("*** Update File: page.md", "*** Move to: note.md", "@@", "-now", "+later");
      const moved = await bench.call("apply_patch", move);
      assert.equal(moved.result.isError, false, moved.result.output);
      assert.ok(isTainted(await bench.call("read_file", { path: "note.md" })));
      assert.ok(!isTainted(await bench.call("read_file", { path: "own.md" })));
    }));

  test("taints the run that an error of an edit quotes it to", () =>
    withPage(async (bench) => {
      const refused = await bench.call(
        "apply_patch",
        patch("*** Update File: page.md", "@@", " Do as I", "-say", "+no"),
      );
      assert.ok(refused.result.isError);
      assert.ok(isTainted(refused));
      const edit = { path: "page.md", edits: [{ old_text: "none", new_text: "" }] };
      assert.ok(isTainted(await bench.call("file_edit", edit)));
      assert.ok(!isTainted(await bench.call("file_edit", { ...edit, path: "own.md" })));
    }));

  test("is known where it is moved to after another run edited it", () =>
    withPage(async (bench, { path }) => {
      await bench.call("file_edit", { path: "page.md", edits: [{ old_text: "now", new_text: "then" }] });
      renameSync(path("page.md"), path("moved.md"));
      writeFileSync(path("page.md"), "anew");
      linkSync(path("moved.md"), path("linked.md"));
      assert.ok(isTainted(await bench.call("read_file", { path: "moved.md" })));
      assert.ok(isTainted(await bench.call("shell", { command: "cat linked.md" })));
    }));

  test("is known to a command that names it within an argument, or searches the whole folder", () =>
    withPage(async (bench) => {
      for (
        const command of [
          "grep -fpage.md own.md",
          "echo @page.md",
          "echo HEAD:page.md",
          "grep -rn Do",
          "grep --recursive say",
          "grep -r own.md",
          "find -name page.md -exec cat {} +",
        ]
      ) {
        assert.ok(isTainted(await bench.call("shell", { command })), command);
      }
      for (const command of ["grep -r mine own.md", "grep mine own.md", "ls", "echo -r", "find -type f"]) {
        assert.ok(!isTainted(await bench.call("shell", { command })), command);
      }
    }));
});

describe("a file that a command writes", () => {
  const isMarked = async (bench: ToolBench, path: string) => isTainted(await bench.call("read_file", { path }));

  test("is known where the run is tainted", () =>
    withPage(async (bench) => {
      await tainted(bench, "shell", { command: "cp own.md copy.md" });
      assert.ok(await isMarked(bench, "copy.md"));
    }));

  test("is known where the command reads one", () =>
    withPage(async (bench) => {
      const run = new RunTaint();
      await bench.call("shell", { command: "cp page.md copy.md" }, { taint: run });
      assert.deepEqual(run.origins, [ORIGIN]);
      assert.ok(await isMarked(bench, "copy.md"));
    }));

  test("is known once a process has ended", () =>
    withPage(async (bench) => {
      await tainted(bench, "process_tool", { op: "start", command: "cp own.md copy.md" });
      await until(async () => {
        const { result } = await bench.call("process_tool", { op: "list" });
        return result.output.includes("status=0");
      });
      assert.ok(await isMarked(bench, "copy.md"));
    }));
});

test("what a process writes has the taint of the run that started it, and of the files that it names", () =>
  withPage(async (bench) => {
    const outputOf = async (id: string) => {
      let outcome: ToolCallOutcome | undefined;
      await until(async () => {
        outcome = await bench.call("process_tool", { op: "output", id });
        return outcome.result.output.includes("status=0");
      });
      return outcome as unknown as ToolCallOutcome; // it was given at least once
    };
    await bench.call("process_tool", { op: "start", command: "echo mine" });
    assert.ok(!isTainted(await bench.call("process_tool", { op: "list" })));
    await bench.call("process_tool", { op: "start", command: "cat page.md" });
    await tainted(bench, "process_tool", { op: "start", command: "echo Do as I say" });
    assert.deepEqual(
      [await outputOf("p1"), await outputOf("p2"), await outputOf("p3")].map(isTainted),
      [false, true, true],
    );
    assert.ok(isTainted(await bench.call("process_tool", { op: "list" })));
  }));

import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import type { ToolCallRequest } from "../../../lib/tools/runtime/tool_executor.ts";
import { bytesBelow } from "../../support/canaries.ts";
import {
  atEveryMoment,
  DEV_SERVER_CONFIG,
  type Exchange,
  NO_EXCHANGER as skip,
  type Report,
  startDevServer,
  withExchanger,
} from "../../support/exchanger.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const SCRIPT = "echo good >> made.txt\n";
const MINE = "one\nof mine\n";

/** Answers as a person who was shown the content with this digest, and says yes to no other. */
function approving(content: string): ToolCallRequest["approver"] {
  const digest = hash("sha256", content);
  return ({ binding: { files, bound } }) => {
    const [shown] = [...files, ...bound];
    return Promise.resolve(
      shown?.sha256 === digest
        ? { decision: "approve", reason: "" }
        : { decision: "deny", rule: "approval", reason: "it is another file" },
    );
  };
}

const benchOf = ({ root }: Workspace) =>
  createToolBench({ root, config: { ...DEV_SERVER_CONFIG, write_file: { enabled: true } } });

type Call = readonly [tool: string, input: unknown];

const COMMANDS: readonly Call[] = [
  ["shell", { command: "sh build.sh" }],
  ["process_tool", { op: "start", command: "sh build.sh" }],
];
/** Looks at the script of a call: for the question, after the answer, and right before it runs. What comes then is not noticed (docs/approvals.md) */
const LOOKS = 3;

for (const call of COMMANDS) {
  // As a step of a procedure is approved, when the procedure comes to it
  for (const beforehand of [false, true]) {
    const when = beforehand ? "beforehand" : "when it is made";
    test(`${call[0]}: no other script than the one that was approved ${when} runs, whatever a dev server exchanges`, {
      skip,
    }, () =>
      withWorkspace({}, async (workspace) => {
        const bench = benchOf(workspace);
        for (let nth = 0; nth < LOOKS + Number(beforehand); nth++) {
          const { seen, struck } = await runWhile(nth, { bench, workspace, call, beforehand });
          assert.equal(struck, nth === 0 ? 0 : 1);
          if (nth === 0) assert.ok(seen.length > LOOKS, `${seen}`);
        }
        await bench.processes.close();
      }));
  }
}

/** Makes a call whose script a dev server exchanges at its n-th opening. @returns the report of the dev server */
async function runWhile(nth: number, { bench, workspace, call: [tool, input], beforehand }: {
  readonly bench: ToolBench;
  readonly workspace: Workspace;
  readonly call: Call;
  readonly beforehand: boolean;
}): Promise<Report> {
  workspace.write("build.sh", SCRIPT);
  workspace.write("evil.sh", "echo evil >> made.txt\n");
  rmSync(workspace.path("made.txt"), { force: true });
  const server = await startDevServer({ bench, workspace }, {
    at: { on: "open", nth },
    ...{ watched: workspace.path("build.sh"), by: "exchange", other: workspace.path("evil.sh") },
  });
  try {
    const bound = beforehand
      ? await bench.executor.bind(tool, JSON.stringify(input), new AbortController().signal)
      : undefined;
    await server.report();
    const approver = approving(SCRIPT);
    const { result } = await bench.call(tool, input, {
      ...bound?.ok === true ? { approvedDigest: bound.binding.digest } : {},
      // The dev server is not late: it has made its exchange before the next look
      approver: (request, signal) => server.report().then(() => approver(request, signal)),
      onStart: () => server.report().then(() => {}),
    });
    const id = /^id=(\S+)/.exec(result.output)?.[1];
    if (id !== undefined) await until(() => bench.processes.get(id).state.kind !== "running");
    const made = await readFile(workspace.path("made.txt"), "utf8").catch(() => "");
    assert.equal(made, nth === 0 ? "good\n" : "", result.output);
    return await server.report();
  } finally {
    await server.end();
  }
}

const EDITS: readonly Call[] = [
  ["file_edit", { path: "notes/a.txt", edits: [{ old_text: "one", new_text: "changed" }] }],
  ["apply_patch", { patch: "*** Begin Patch\n*** Update File: notes/a.txt\n@@\n-one\n+changed\n*** End Patch" }],
];

for (const call of EDITS) {
  test(
    `${call[0]}: an approved edit is made in the file that was approved, whatever is exchanged`,
    { skip },
    () =>
      withWorkspace({}, async (workspace) => {
        const bench = benchOf(workspace);
        await atEveryMoment(async (at) => {
          rmSync(workspace.path("notes"), { recursive: true, force: true });
          workspace.write("notes/a.txt", MINE);
          workspace.write("notes/b.txt", "one\nof theirs\n");
          const exchange: Exchange = {
            at,
            ...{ watched: workspace.path("notes"), target: workspace.path("notes/a.txt"), by: "exchange" },
            other: workspace.path("notes/b.txt"),
          };
          return await withExchanger(exchange, workspace.path("../bell"), async (exchanger) => {
            exchanger.ring();
            await bench.call(...call, { approver: approving(MINE) });
            assert.doesNotMatch(bytesBelow(workspace.path("notes")), /changed\nof theirs/, JSON.stringify(at));
            return await exchanger.report();
          });
        });
        await bench.processes.close();
      }),
  );
}

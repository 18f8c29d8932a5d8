import process from "node:process";
import { systemClock } from "../../../lib/base/clock.ts";
import { until } from "../../support/until.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";

/** Program, `<workspace> <marker>`: starts a process with a child of its own, prints `started`, waits to be killed. */
const [workspaceRoot = "", marker = ""] = process.argv.slice(2);
const processes = createWorkspaceProcesses(workspaceRoot, { marker });
const { id } = await processes.start({
  words: ["sh", "-c", "echo $$ > leader; sleep 60 & echo $! > child; echo ready; wait"],
  scope: { workspaceRoot, workspaceOnly: false, forbiddenPaths: [], allowSensitive: false },
  sandbox: "off",
  owner: null,
  startedBy: { tool: "process_tool", runId: "run_1" },
  maxProcesses: 1,
  maxOutputBytes: 100,
  signal: new AbortController().signal,
});
await until(() => processes.output(id, { offset: 0, maxBytes: 100 }).total > 0);
console.log("started");
await systemClock.sleep(60_000);

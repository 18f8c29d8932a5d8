import process from "node:process";
import { ToolError } from "../../../lib/base/errors.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";

/** Program, `<workspace> <script>`: runs the script in the sandbox, and prints how it ended or the code and text of its refusal. */
const [workspaceRoot = "", script = ""] = process.argv.slice(2);
const processes = createWorkspaceProcesses(workspaceRoot);
try {
  const { ending } = await processes.run({
    words: ["sh", "-c", script],
    scope: { workspaceRoot, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
    sandbox: "require",
    timeoutMs: 10_000,
    maxOutputBytes: 1_000,
    signal: new AbortController().signal,
  });
  console.log(JSON.stringify(ending));
} catch (error) {
  console.log(error instanceof ToolError ? `${error.code} ${error.message}` : String(error));
}
await processes.close();

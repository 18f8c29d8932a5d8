import assert from "node:assert/strict";
import { linkSync, realpathSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../lib/base/clock.ts";
import { ToolError } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { Config } from "../../lib/config/config.ts";
import { LEVELS } from "../../lib/guard/policy.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { createToolExecutor } from "../../lib/tools/runtime/create_tool_executor.ts";
import { onlyLooking } from "../../lib/tools/runtime/look_ahead.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import type { ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { applyEdit, type ConfigTable, toConfig } from "../support/config_edits.ts";
import { triesOf } from "../support/seeded_random.ts";
import { createToolBench, type ToolBench } from "../support/tool_bench.ts";
import { withWorkspace } from "../support/workspace.ts";
import { toolInputs } from "./tool_inputs.ts";

/** Calls of each tool; test/long/explain.long.ts makes 2,000 of each. */
const RUNS = { numRuns: triesOf(8) };

const FILES = {
  "notes.txt": "the gate\n",
  "src/a.ts": "a\n",
  ".env": "KEY=1\n",
  "AGENTS.md": "Be kind\n",
  "kept/key": "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n",
  "linked.txt": "linked\n",
  "secrets/x": "x\n",
};

/** Texts that the door has an opinion about. */
const PATHS = [
  ...[
    "notes.txt",
    "src/a.ts",
    "src",
    "src/",
    ".",
    "new.txt",
    "deep/new.txt",
    ".env",
    ".env.bak",
    "src/../.env",
    "../outside/secret.txt",
  ],
  ...[
    "/etc/passwd",
    "AGENTS.md",
    "sub/CLAUDE.md",
    ".git/config",
    "postern.toml",
    "kept/key",
    "kept",
    "out",
    "out/secret.txt",
    "to_env",
  ],
  ...["linked.txt", "secrets/x", "secrets/", "a\u0000b", "x".repeat(300), "shot.png", ".ssh/id_rsa.png"],
];
const TEXTS = [
  ...PATHS,
  ...PATHS.map((path) => `cat ${path}`),
  ...PATHS.map((path) => `*** Begin Patch\n*** Add File: ${path}\n+x\n*** End Patch`),
  ...["cat < src/a.ts > new.txt", "cd src && cat < a.ts", "cat < out/secret.txt", "echo $(cat < $f)", "ls > secrets/x"],
  ...["ls", "ls; ls", "rm notes.txt", "gate", "*", "http://127.0.0.1/a", "http://example.test/a"],
];

/** Codes of refusals by rule: a call that the door lets through must not be refused with one of them afterwards. */
const REFUSALS = /^(path_|url_|command_|hard_link|symbolic_link|write_off|sandbox_|glob_)/;

/** A tool, wrapped so that the code of an error of its run is known. */
function watched(tool: Tool, onError: (code: string) => void): Tool {
  return {
    ...tool,
    get inputSchema() {
      return tool.inputSchema;
    },
    prepare(text) {
      const prepared = tool.prepare(text);
      return {
        ...prepared,
        run: (context) =>
          prepared.run(context).catch((error: unknown) => {
            if (error instanceof ToolError) onError(error.code);
            throw error;
          }),
      };
    },
  };
}

function explainer(root: string, { processes }: ToolBench, config: () => Config): ToolExecutor {
  const redactor = createRedactor();
  const options = { clock: systemClock, home: "/home/nobody", ownPaths: [] };
  return createToolExecutor({
    tools: BUILTIN_TOOLS,
    services: onlyLooking({
      ...{ processes, redactor, commands: createCommandLookup(), files: createFiles(options) },
      environment: () => undefined,
    }, BUILTIN_TOOLS),
    ...{ ...options, config, workspaceRoot: root, log: SILENT, metrics: createMetrics() },
    redact: redactor.redact,
    audit: () => Promise.resolve(false),
  });
}

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
/** True where lines of bash can be tried too */
const CONTAINED = probe.kind === "contained";

/** Rules that speak of the texts above. */
const RULE = fc.record({
  tool: fc.constantFrom("*", "shell", "write_file"),
  path: fc.constantFrom("", "src/**", "secrets/**", "**", "docs/**"),
  command: fc.constantFrom("", "", "cat *", "ls"),
  then: fc.constantFrom("allow", "ask", "deny"),
}).filter(({ tool, path, command, then }) =>
  tool !== "shell" && tool !== "*" || path !== "" || command !== "" || then !== "allow"
);

/** Configuration files: every level, the tool on and off, in every list, with what widens and narrows its reach. */
function tables(tool: Tool): fc.Arbitrary<ConfigTable> {
  const names = fc.subarray([...new Set([tool.name, "write_file"])]);
  return fc.record({
    level: fc.constantFrom(...LEVELS),
    auto_approve: names,
    always_ask: names,
    forbidden_paths: fc.subarray(["secrets"]),
    allow_sensitive_file_reads: fc.boolean(),
    allow_sensitive_file_writes: fc.boolean(),
    rules: fc.array(RULE, { maxLength: 3 }).map((all) => all.map((rule, index) => ({ name: `r${index}`, ...rule }))),
    on: fc.boolean(),
    root: fc.constantFrom(".", "src"),
    contained: fc.constantFrom(false, CONTAINED),
  }).map(({ on, root, contained, ...autonomy }) => {
    const shell = contained ? { syntax: "contained" } : { sandbox: "off" };
    const table: ConfigTable = {
      autonomy,
      security: {
        shell,
        ...contained ? { allowed_commands: ["*"] } : {},
        read_file: { allowed_root: root },
        write_file: { allowed_root: root },
      },
    };
    return on && tool.enabledBy !== undefined ? applyEdit(table, `set ${tool.enabledBy}`) : table;
  });
}

for (const tool of BUILTIN_TOOLS) {
  test(`${tool.name}: the door does what explain says, wherever that does not say unknown`, () =>
    withWorkspace(FILES, async ({ root, outside }) => {
      symlinkSync(outside, join(root, "out"));
      symlinkSync(".env", join(root, "to_env"));
      linkSync(join(root, "linked.txt"), join(root, "other.txt"));
      const codes: string[] = [];
      const bench = createToolBench({
        root,
        tools: BUILTIN_TOOLS.map((each) => watched(each, (code) => codes.push(code))),
      });
      let config = toConfig({});
      const explains = explainer(root, bench, () => config);
      await fc.assert(
        fc.asyncProperty(tables(tool), toolInputs(tool, TEXTS), async (table, input) => {
          config = toConfig(table);
          bench.configure({}, config);
          const { signal } = new AbortController();
          const judged = await explains.explain(tool.name, input, { signal });
          assert.ok(judged !== undefined);
          if (judged.kind === "judged" && judged.unknown !== undefined) return;
          const expected = judged.kind === "judged" ? judged.decision.kind : "bad_input";
          let asked = false;
          codes.length = 0;
          const { ran, result } = await bench.call(tool.name, input, {
            approver: ({ reason }) => {
              asked = true;
              return Promise.resolve({ decision: "deny", rule: "approval", reason });
            },
          });
          // An allowed read is refused as it opens its file
          const isRefused = !ran || codes.some((code) => REFUSALS.test(code));
          // The tool may fail by itself before that, such as by a pattern that is none
          if (!isRefused && expected === "deny" && codes.length > 0) return;
          const seen = asked ? "ask" : !isRefused ? "allow" : expected === "bad_input" ? "bad_input" : "deny";
          assert.equal(seen, expected, result.output);
          if (judged.kind === "bad_input") {
            assert.ok(judged.error instanceof ToolError);
            assert.equal(result.output, judged.error.message);
          } else if (isRefused) assert.equal(result.output, judged.decision.reason);
        }),
        RUNS,
      );
      await bench.processes.close();
    }));
}

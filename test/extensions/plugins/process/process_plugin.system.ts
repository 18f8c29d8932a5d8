import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, test, type TestContext } from "node:test";
import { systemClock } from "../../../../lib/base/clock.ts";
import { ToolError } from "../../../../lib/base/errors.ts";
import { parsePluginManifest, type PluginManifest } from "../../../../lib/extensions/plugins/manifest.ts";
import type { PluginHost } from "../../../../lib/extensions/plugins/plugin_host.ts";
import { createProcessOpener } from "../../../../lib/extensions/plugins/process/program_plugin.ts";
import { createCommandLookup } from "../../../../lib/system/process/command_lookup.ts";
import type { ToolSecrets } from "../../../../lib/tools/secrets/tool_secrets.ts";
import { createToolBench, type ToolBench } from "../../../support/tool_bench.ts";
import { sampleTool, sha256 } from "../../../support/plugin_package.ts";
import { configOf } from "../../../support/running_gateway.ts";
import { isGone } from "../../../support/is_gone.ts";
import { until } from "../../../support/until.ts";
import { withWorkspace, type Workspace } from "../../../support/workspace.ts";
import { NO_SECRETS } from "../../../support/plugin_bench.ts";

const probe = await createToolBench({ root: process.cwd() }).processes.containment({ sandbox: "auto" });
const uncontained = probe.kind === "contained" ? false : probe.text;
const python = await createCommandLookup().find("python3");

interface SamplePlugin {
  /** Text of the program, for `sh` */
  readonly script?: string;
  /** Program of the machine in place of the script, and its arguments */
  readonly command?: string;
  readonly args?: readonly string[];
  readonly mode?: "one_shot" | "pooled";
  readonly capabilities?: Readonly<Record<string, unknown>>;
  readonly plugins?: Readonly<Record<string, unknown>>;
  readonly files?: Readonly<Record<string, string>>;
  /** Default: the settings name none */
  readonly secrets?: Pick<ToolSecrets, "fill">;
}

interface SampleBench {
  readonly workspace: Workspace;
  readonly folder: string;
  readonly host: PluginHost;
  readonly bench: ToolBench;
  call(input?: Readonly<Record<string, string>>, signal?: AbortSignal): ReturnType<PluginHost["call"]>;
}

/** Functions of each script: `answer` writes an answer, `ask` reads a call of a pooled program, `reply` answers that. */
const ANSWER = [
  'answer() { printf \'{"output":"%s"}\\n\' "$1"; }',
  'ask() { read -r line; id=$(printf %s "$line" | sed \'s/.*"id":\\([0-9]*\\).*/\\1/\'); }',
  'reply() { printf \'{"id":%s,"output":"%s"}\\n\' "$id" "$1"; }',
  "",
].join("\n");

/** Runs `use` with a process plugin, whose program is a shell script of its package. */
async function withPlugin(
  {
    script = "",
    command,
    args = [],
    mode = "one_shot",
    capabilities = {},
    plugins = {},
    files = {},
    secrets = NO_SECRETS,
  }: SamplePlugin,
  use: (bench: SampleBench) => Promise<void>,
): Promise<void> {
  await withWorkspace(files, async (workspace) => {
    const folder = join(dirname(workspace.root), "package");
    mkdirSync(folder);
    const bytes = Buffer.from(`#!/bin/sh\n${ANSWER}${script}`);
    writeFileSync(join(folder, "tool"), bytes);
    chmodSync(join(folder, "tool"), 0o700);
    const own = command === undefined ? { command: "./tool", sha256: sha256(bytes) } : { command, args };
    const manifest = manifestOf({ process: { ...own, mode }, capabilities });
    const bench = createToolBench({
      root: workspace.root,
      config: { url_access: { allow_loopback: true } },
    });
    const { processes } = bench;
    const open = createProcessOpener({ processes, clock: systemClock, secrets, redact: bench.redactor.part });
    const forge = { env: "FORGE", plugins: ["sample"] };
    const config = configOf({
      secrets: { forge },
      plugins: { allow_process: true, sandbox: "off", timeout_secs: 20, ...plugins },
    });
    const host = await open({ manifest, folder, digest: "", main: bytes, config });
    const context = {
      workspace_root: workspace.root,
      allow_sensitive_file_reads: false,
      allow_sensitive_file_writes: false,
    };
    const call: SampleBench["call"] = (input = {}, signal = new AbortController().signal) =>
      host.call({ tool: "say", input, context }, signal);
    try {
      await use({ workspace, folder, host, call, bench });
    } finally {
      await host.close();
      await processes.close();
    }
  });
}

function manifestOf(fields: Readonly<Record<string, unknown>>) {
  const shared = {
    id: "sample",
    version: "1.0.0",
    description: "A sample",
    kind: "process",
    tools: [sampleTool("say")],
  };
  return parsePluginManifest(JSON.stringify({ ...shared, ...fields })) as Extract<PluginManifest, { kind: "process" }>;
}

test("a program gets one line and answers with one line", () =>
  withPlugin(
    { script: 'read -r line; printf \'{"output":"got","is_error":true,"data":%s}\\n\' "$line"' },
    async ({ call, workspace }) => {
      const { used, ...answer } = await call({ text: "a\nb" });
      assert.deepEqual(answer, {
        output: "got",
        is_error: true,
        data: {
          tool: "say",
          input: { text: "a\nb" },
          context: {
            workspace_root: workspace.root,
            allow_sensitive_file_reads: false,
            allow_sensitive_file_writes: false,
          },
        },
      });
      assert.ok((used?.ms ?? -1) >= 0);
    },
  ));

describe("settings of a program", () => {
  const VALUE = 'the "value" of a key';
  const settings = { config: { sample: { days: 3, key: { secret: "forge" } } } };
  const secrets: Pick<ToolSecrets, "fill"> = {
    fill: (given, { child }) => {
      assert.deepEqual(child, { kind: "plugins", name: "sample" });
      const filled = Object.entries(given).map(([key, value]) => [key, typeof value === "object" ? VALUE : value]);
      return Promise.resolve(Object.fromEntries(filled));
    },
  };

  for (const mode of ["one_shot", "pooled"] as const) {
    test(`are a field of each call, and what comes back of their secrets is masked (${mode})`, () => {
      const echo = 'read -r line; id=$(printf %s "$line" | sed -n \'s/.*"id":\\([0-9]*\\),.*/"id":\\1,/p\'); ' +
        'printf \'{%s"output":"got the \\\\"value\\\\" of a key","data":%s}\\n\' "$id" "$line"';
      return withPlugin({ script: echo, mode, plugins: settings, secrets }, async ({ call, bench }) => {
        bench.redactor.add(VALUE);
        const { output, data } = await call();
        assert.equal(output, "got [redacted]");
        assert.deepEqual((data as { readonly config?: unknown }).config, { days: 3, key: "[redacted]" });
      });
    });
  }

  test("are masked in the error of a program that shows them", () =>
    withPlugin(
      { script: 'read -r line; printf "%s" "$line" >&2; exit 3', plugins: settings, secrets },
      async ({ call, bench }) => {
        bench.redactor.add(VALUE);
        await assert.rejects(call(), ({ message }: Error) => {
          assert.match(message, /"key":"\[redacted\]"/);
          assert.doesNotMatch(message, /value/);
          return true;
        });
      },
    ));

  test("whose secret is not there are an error of the call, which starts nothing", () => {
    const missing = () => Promise.reject(new ToolError("secret_missing", "Cannot use the value of [secrets.forge]"));
    return withPlugin(
      { script: "touch started; answer ok", plugins: settings, secrets: { fill: missing } },
      async ({ call, folder }) => {
        await assert.rejects(call(), { code: "secret_missing", message: /\[secrets\.forge\]/ });
        assert.ok(!existsSync(join(folder, "started")));
      },
    );
  });
});

test("a program starts in the folder of its package, with no variable of the gateway", () =>
  withPlugin(
    { script: 'answer "$(pwd) $(ls) $(env | cut -d= -f1 | sort | tr "\\n" " ")"' },
    async ({ call, folder }) => {
      const { output } = await call();
      assert.ok(output.startsWith(`${folder} tool `), output);
      assert.deepEqual(output.split(" ").slice(2).filter((name) => name !== "" && name !== "_"), [
        "HOME",
        "LANG",
        "PATH",
        "POSTERN_GATEWAY",
        "PWD",
        "PYTHONDONTWRITEBYTECODE",
        "TERM",
      ]);
    },
  ));

for (
  const [name, script, code, message] of [
    ["an exit without an answer", "echo it broke >&2; exit 3", "plugin_failed", /ended with the code 3 .*: it broke$/],
    ["an exit without a word", "exit 0", "plugin_failed", /ended with the code 0 .*it wrote no error output$/],
    ["a signal", "kill -9 $$", "plugin_failed", /SIGKILL ended it without an answer/],
    ["no JSON", "echo hello", "plugin_answer_invalid", /it is no JSON in UTF-8/],
    ["no object", "echo '[]'", "plugin_answer_invalid", /no JSON object|no object/],
    ["no output", "echo '{}'", "plugin_answer_invalid", /it has no "output"/],
    ["an output that is no text", `echo '{"output":1}'`, "plugin_answer_invalid", /"output" is no text/],
    ["an unknown field", `echo '{"output":"","ok":1}'`, "plugin_answer_invalid", /it has the field "ok"/],
    ["bytes that are no UTF-8", `printf '{"output":"\\377"}\\n'`, "plugin_answer_invalid", /it is no JSON in UTF-8/],
    ["two lines", "answer a; answer b", "plugin_answer_invalid", /more than one line/],
    ["a late second line", "answer a; sleep 0.1; answer b", "plugin_answer_invalid", /more than one line/],
    [
      "too much",
      "yes | tr -d '\\n'",
      "plugin_output_too_large",
      /larger than 2048 bytes, as \[plugins\] max_output_bytes/,
    ],
  ] as const
) {
  test(`${name} is an error that says so`, () =>
    withPlugin({ script, plugins: { max_output_bytes: 2048 } }, async ({ call }) => {
      await assert.rejects(call(), { name: "ToolError", code, message });
    }));
}

test("an answer counts without a newline, and whatever the exit code", () =>
  withPlugin({ script: 'printf \'{"output":"whole"}\'; exit 9' }, async ({ call }) => {
    assert.equal((await call()).output, "whole");
  }));

test("a program that gives no answer is ended with all it started", () =>
  withPlugin(
    { script: "sleep 300 & echo $! > child; wait", plugins: { timeout_secs: 1 } },
    async ({ call, folder }) => {
      await assert.rejects(call(), {
        code: "plugin_timeout",
        message: /within 1 s, as \[plugins\] timeout_secs has it/,
      });
      assert.ok(await isGone(readFileSync(join(folder, "child"), "utf8")));
    },
  ));

test("a cancelled call and a closing host end the program", () =>
  withPlugin({ script: "echo $$ > $(mktemp ./pid.XXXXXX); sleep 300" }, async ({ call, folder, host }) => {
    const stop = new AbortController();
    const cancelled = call({}, stop.signal);
    const pids = () =>
      readdirSync(folder).flatMap((name) => name.startsWith("pid.") ? [readFileSync(join(folder, name), "utf8")] : [])
        .filter((pid) => pid !== "");
    await until(() => pids().length === 1);
    stop.abort();
    await assert.rejects(cancelled, { name: "CancelError" });
    const closed = call();
    closed.catch(() => {});
    await until(() => pids().length === 2);
    await host.close();
    await assert.rejects(closed, { code: "plugin_failed" });
    for (const pid of pids()) assert.ok(await isGone(pid));
  }));

test("a pooled program answers one call after the other, until it breaks", () =>
  withPlugin(
    {
      mode: "pooled",
      script: [
        "while ask; do case $line in",
        "*crash*) exit 1;;",
        "*chatter*) reply $$; reply again;;",
        "*other*) id=99; reply $$;;",
        "*) reply $$;;",
        "esac; done",
      ].join("\n"),
    },
    async ({ call }) => {
      const { output: first } = await call();
      assert.equal((await call()).output, first);
      await assert.rejects(call({ text: "crash" }), { code: "plugin_failed" });
      const { output: second } = await call();
      assert.notEqual(second, first);
      assert.ok(await isGone(first));
      await assert.rejects(call({ text: "other" }), { code: "plugin_answer_invalid", message: /its "id" is not 5/ });
      // The second line may come with its answer, before the next call or after it: it never counts as an answer
      await call({ text: "chatter" }).catch((error: unknown) => assert.match(String(error), /more than one line/));
      for (let turn = 0; turn < 3; turn++) {
        await call().then(
          ({ output }) => assert.match(output, /^\d+$/),
          (error: unknown) => assert.match(String(error), /its "id" is not/),
        );
      }
      assert.notEqual((await call()).output, second);
    },
  ));

for (const flood of ["yes", "yes >&2"]) {
  test(`a pooled program that floods its outputs between two calls is ended: ${flood}`, () =>
    withPlugin({ mode: "pooled", script: `ask; reply $$; sleep 0.1; exec ${flood}` }, async ({ call }) => {
      const { output } = await call();
      const tooLate = systemClock.sleep(20_000).then(() => false);
      assert.ok(await Promise.race([isGone(output), tooLate]));
      assert.notEqual((await call()).output, output);
    }));
}

test("a program in Python leaves nothing in its package that would change the package's digest", {
  skip: python === undefined ? "there is no python3" : false,
}, () =>
  withPlugin({ command: "python3", args: ["main.py"] }, async ({ call, folder }) => {
    writeFileSync(join(folder, "main.py"), "import part\nprint(part.ANSWER)\n");
    writeFileSync(join(folder, "part.py"), 'ANSWER = \'{"output": "ok"}\'\n');
    assert.equal((await call()).output, "ok");
    assert.deepEqual(readdirSync(folder).sort(), ["main.py", "part.py", "tool"]);
  }));

test("pooled calls at the same time get programs of their own, and no more than four", () =>
  withPlugin(
    {
      mode: "pooled",
      // None answers before four have a call each
      script: "while ask; do : > at.$$; until set -- at.*; [ $# -ge 4 ]; do sleep 0.05; done; reply $$; done",
    },
    async ({ call }) => {
      const answers = await Promise.all(Array.from({ length: 6 }, () => call()));
      assert.equal(new Set(answers.map(({ output }) => output)).size, 4);
    },
  ));

test("a pooled program that writes to the workspace is refused by its manifest", () => {
  assert.throws(
    () => manifestOf({ process: { command: "sh", mode: "pooled" }, capabilities: { workspace: "write" } }),
    {
      code: "manifest_invalid",
      message: /"process.mode" must be "one_shot" for a plugin that writes to the workspace/,
    },
  );
});

test("a program of the machine that is not there is an error that names it", () =>
  withWorkspace({}, async ({ root }) => {
    const { processes } = createToolBench({ root });
    const open = createProcessOpener({ processes, clock: systemClock, secrets: NO_SECRETS });
    const manifest = manifestOf({ process: { command: "no-such-program" } });
    const config = configOf({ plugins: { sandbox: "off" } });
    const host = await open({ manifest, folder: root, digest: "", main: undefined, config });
    const context = { workspace_root: root, allow_sensitive_file_reads: false, allow_sensitive_file_writes: false };
    await assert.rejects(host.call({ tool: "say", input: {}, context }, new AbortController().signal), {
      code: "command_not_found",
      message: /plugin "sample" needs the program "no-such-program"/,
    });
  }));

const LOOK =
  'see() { if cat "$1" >/dev/null 2>&1; then printf %s "$2+"; else printf %s "$2-"; fi; if (echo x >> "$1") 2>/dev/null; then printf "w "; else printf %s "- "; fi; }\n' +
  'ask; root=$(printf %s "$line" | sed \'s/.*"workspace_root":"\\([^"]*\\)".*/\\1/\')\n';

test("a contained program sees of the workspace what its capabilities say", { skip: uncontained }, async () => {
  const script =
    `${LOOK}answer "$(see $root/a.txt a; see $root/.env e; see $root/../outside/secret.txt o; see ./tool t)"`;
  const files = { "a.txt": "a", ".env": "KEY=1" };
  for (
    const [workspace, seen] of [["none", "a-- e-- o-- t+- "], ["read", "a+- e-- o-- t+- "], [
      "write",
      "a+w e-- o-- t+- ",
    ]]
  ) {
    await withPlugin({ script, files, capabilities: { workspace }, plugins: { sandbox: "require" } }, async (bench) => {
      assert.equal((await bench.call()).output, seen, workspace);
      assert.equal(readFileSync(bench.workspace.path(".env"), "utf8"), "KEY=1");
    });
  }
});

test("a contained program reads nothing of a file of credentials, also one that appeared between two calls", {
  skip: uncontained,
}, () =>
  withPlugin({
    mode: "pooled",
    script: `${LOOK}while true; do reply "$$ $(cat $root/.env 2>/dev/null)"; ask; done`,
    capabilities: { workspace: "read" },
    plugins: { sandbox: "require" },
  }, async ({ call, workspace }) => {
    const { output } = await call();
    assert.match(output, /^\d+ $/);
    workspace.write(".env", "KEY=hidden");
    assert.match((await call()).output, /^\d+ $/);
  }));

test(
  "a contained program is ended when such a file is replaced, and the call says why",
  { skip: uncontained },
  () =>
    withPlugin({
      script: `${LOOK}touch $root/up; sleep 60`,
      files: { ".env": "KEY=old" },
      capabilities: { workspace: "write" },
      plugins: { sandbox: "require" },
    }, async ({ call, workspace }) => {
      const said =
        /"sample": "\.env" was replaced while the program ran and would have become readable, so it was ended without an answer/;
      const refused = assert.rejects(call(), { code: "plugin_failed", message: said });
      await until(() => existsSync(workspace.path("up")), "it did not start");
      workspace.write("new", "KEY=new");
      renameSync(workspace.path("new"), workspace.path(".env"));
      await refused;
    }),
);

test("protected names that a program makes are moved to quarantine", { skip: uncontained }, () =>
  withPlugin({
    script: `${LOOK}mkdir -p $root/sub/.git/hooks; answer made`,
    capabilities: { workspace: "write" },
    plugins: { sandbox: "require" },
  }, async ({ call, workspace }) => {
    const { output } = await call();
    assert.match(output, /^made\n\["sub\/\.git" appeared during the call and was moved to quarantine/);
    assert.equal(existsSync(workspace.path("sub/.git")), false);
  }));

for (const sandbox of uncontained === false ? ["require", "off"] : ["off"]) {
  test(`what a program writes to the workspace counts as content from outside, with sandbox ${sandbox}`, () =>
    withPlugin({
      script: `${LOOK}echo planted > $root/planted.txt; answer made`,
      capabilities: { workspace: "write" },
      plugins: { sandbox },
    }, async ({ call, bench }) => {
      await call();
      const { taint } = await bench.call("read_file", { path: "planted.txt" });
      assert.deepEqual(taint, ["plugin sample"]);
    }));
}

test("what an uncontained program writes to a workspace that it has not asked for counts too", () =>
  withPlugin({
    script: `${LOOK}echo planted > $root/planted.txt; answer made`,
    capabilities: { workspace: "none" },
    plugins: { sandbox: "off" },
  }, async ({ call, bench }) => {
    await call();
    assert.deepEqual((await bench.call("read_file", { path: "planted.txt" })).taint, ["plugin sample"]);
  }));

test("a contained program reaches the hosts of its manifest and nothing else", { skip: uncontained }, async (t) => {
  const port = await listening(t);
  const script =
    `const get = (url) => fetch(url, { signal: AbortSignal.timeout(5000) }).then((reply) => reply.text(), () => "no");
const answers = await Promise.all([get("http://localhost:${port}/a"), get("http://127.0.0.1:${port}/b")]);
console.log(JSON.stringify({ output: answers.join(" ") }));`;
  const isDeno = "Deno" in globalThis;
  const command = isDeno ? "deno" : "node";
  const args = isDeno ? ["eval", "--no-lock", script] : ["--input-type=module", "--eval", script];
  const plugins = { sandbox: "require" };
  await withPlugin({ command, args, plugins, capabilities: { hosts: [`localhost:${port}`] } }, async ({ call }) => {
    const { output } = await call();
    assert.match(output, /^hello no/);
  });
  await withPlugin({ command, args, plugins }, async ({ call }) => {
    assert.equal((await call()).output, "no no");
  });
});

async function listening(t: TestContext): Promise<number> {
  const server = createServer((_request, response) => void response.end("hello"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

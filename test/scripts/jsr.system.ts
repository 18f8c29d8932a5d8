import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { promisify } from "node:util";
import { VERSION } from "../../lib/base/version.ts";
import { denoCommand } from "../../scripts/deno.ts";
import { documentFixture } from "../support/document_fixtures.ts";
import { ROOT } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { withOwnJsr } from "./own_jsr.ts";

const PACKAGE = `jsr:@postern/postern@${VERSION}`;

/** Asks for what lies in files of the package beside its modules: the dashboard, the threads of tools, the pages of the offline assistant. */
const PROGRAM = `
import { createGateway } from "${PACKAGE}";
import { createTestGateway, scriptedProvider } from "${PACKAGE}/testing";
import { health } from "${PACKAGE}/handlers";
const token = "test-token-of-the-environment-0123456789";
const config = { provider: { kind: "offline" as const }, autonomy: { level: "full" as const } };
const gateway = await createGateway({ dataDir: "data", workspace: "work", environment: { POSTERN_TOKEN: token }, config });
const request = async (path: string, json?: unknown) => {
  const headers = { authorization: \`Bearer \${token}\` };
  const reply = await gateway.request(path, json === undefined ? { headers } : { headers, json });
  return await reply.text();
};
const call = (tool: string, input: unknown) => request(\`/v1/tools/\${tool}/call\`, { input });
const ask = (content: string) => request("/v1/chat/completions", { model: "assistant", messages: [{ role: "user", content }] });
const said = {
  page: (await request("/")).includes("WebSocket"),
  search: await call("content_search", { pattern: "g.te" }),
  document: await call("pdf_read", { path: "report.pdf" }),
  documentation: await ask("What does Postern's documentation say about pairing codes?"),
};
await gateway.close();
const kit = await createTestGateway({ providers: { model: scriptedProvider(["Hello"]) } });
const run = kit.run("Hi");
const facts = { health: () => ({ status: "ok" as const, version: "1.2.3", uptime_seconds: 4 }) };
const handled = await (await health({ facts })(new Request("http://127.0.0.1/health"))).json();
console.log(JSON.stringify({ ...said, handled, scripted: (await run).result }));
await kit.close();
`;

/** Imports whose names are known at run time alone (docs/design/dependencies.md "Toolchain"). */
const COMPUTED = ["lib/base/own_file.ts", "lib/extensions/plugins/ffi/ffi_library.ts"];

test("JSR takes the package, and a program of Deno that loads it from there has dashboard, threads, pages and types", {
  skip: "Deno" in globalThis && "it starts Deno by itself",
}, () =>
  withTemporaryFolder((folder) =>
    withOwnJsr(folder, async (registry) => {
      const env = { ...process.env, JSR_URL: registry.url, DENO_DIR: join(folder, "deno"), NO_COLOR: "1" };
      const run = async (cwd: string, [command = "", ...argv]: readonly string[]) =>
        await promisify(execFile)(command, argv, { cwd, env, maxBuffer: 100_000_000 });
      // npm run check has looked at the types
      const publish = ["scripts/publish_jsr.ts", "--token", "of-a-test", "--no-check"];
      const { stderr } = await run(ROOT, [process.execPath, ...publish]);
      assert.match(stderr, /^Checking for slow types[^]*Successfully published @postern\/postern@/);
      const warned = [...stderr.matchAll(/^(?:warning|error)\S*: .*\n +--> .*?\/(\w+\/\S+?):/gm)].map(([, file]) =>
        file
      );
      assert.ok(warned.length === 2 && COMPUTED.every((end) => warned.some((file) => file?.endsWith(end))), stderr);
      assert.deepEqual(registry.files().filter((file) => /^(?:cli|docs\/design)\/|\.png$/.test(file)), []);

      const client = join(folder, "client");
      mkdirSync(join(client, "work"), { recursive: true });
      writeFileSync(join(client, "work/report.pdf"), documentFixture("pdf/report.pdf"));
      writeFileSync(join(client, "work/note.txt"), "a gate\n");
      // The packages of npm are those of the project
      symlinkSync(join(ROOT, "node_modules"), join(client, "node_modules"));
      const { dependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
      writeFileSync(join(client, "package.json"), JSON.stringify({ type: "module", dependencies }));
      writeFileSync(join(client, "deno.json"), '{ "nodeModulesDir": "manual", "lock": false }');
      writeFileSync(join(client, "main.ts"), PROGRAM);
      const entries = ["mod.ts", "handlers_of_jsr.js", "testing/mod.ts"];
      const published = entries.map((entry) => join(folder, "published/handlers", entry));
      const lint = await run(client, [...denoCommand, "doc", "--lint", ...published]);
      assert.match(lint.stderr, /^Checked 3 files/m);
      const types = readFileSync(join(ROOT, "test/handlers/handler_types.ts"), "utf8");
      writeFileSync(join(client, "types.ts"), types.replace(/"[^"]*handlers\.ts"/, `"${PACKAGE}/handlers"`));
      await run(client, [...denoCommand, "check", "types.ts"]);
      const { stdout } = await run(client, [...denoCommand, "run", "--allow-all", "main.ts"]);
      const said = JSON.parse(stdout);
      assert.equal(said.page, true);
      assert.match(said.search, /note\.txt:1: a gate/);
      assert.match(said.document, /Gate report/);
      assert.match(said.documentation, /"Pair a client\\", Postern's docs\/http\.md/);
      assert.deepEqual([said.handled.version, said.scripted], ["1.2.3", "Hello"]);
    })
  ));

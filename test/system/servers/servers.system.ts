import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { systemTools } from "../../scripts/system_tools.ts";
import { openGatewayChat } from "../../support/chat_client.ts";
import { freePort } from "../../support/free_port.ts";
import { callGateway } from "../../support/gateway_call.ts";
import { RUN_ENV } from "../../support/gateway_process.ts";
import { jsonOf } from "../../support/json_of.ts";
import { removeFolder } from "../../support/remove_folder.ts";
import { type StartedProcess, startProcess } from "../../support/started_process.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { makeProject, readRecipes } from "./stranger_project.ts";

const modules = "Deno" in globalThis ? "they are programs of Node and Bun" : await systemTools("servers").catch(String);
const skip = modules.endsWith("node_modules") ? false : `npm could not bring the servers: ${modules}`;
const project = skip === false ? await makeProject(modules) : "";
after(() => skip === false ? removeFolder(project) : undefined);

const run = promisify(execFile);
/** Runs a program of a package of the servers in the project. @returns its output */
const runProgram = (path: string, words: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  run(process.execPath, [join(modules, path), ...words], { cwd: project, env: { ...RUN_ENV, ...env } });
/** Says why a package cannot be tried here that has a program for each system */
const noPart = (folder: string, beginning: string) => {
  const isThere = skip === false && readdirSync(join(modules, folder)).some((name) => name.startsWith(beginning));
  return skip || !isThere && `${folder} has no part for ${process.platform} on ${process.arch}`;
};
const buildOf = process.platform === "linux" && process.arch === "x64"
  ? "x64-baseline"
  : process.arch.replace("arm64", "aarch64");
const BUN = join(modules, `@oven/bun-${process.platform.replace("win32", "windows")}-${buildOf}`, "bin/bun");
const NEXT = "next/dist/bin/next";
const CODE = /^Pairing code: (\S+)\n/m;

interface Server {
  readonly url: string;
  readonly process: StartedProcess;
  /** Folder that it works in, which is the agent's too */
  readonly cwd: string;
}

/** Starts a server of the project in a folder of its own. */
async function withServer(
  command: (port: number) => readonly string[],
  { ready, env = {}, cwd }: {
    readonly ready: RegExp;
    readonly env?: Readonly<Record<string, string>>;
    readonly cwd?: string;
  },
  use: (server: Server) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const port = await freePort();
    const own = cwd ?? folder;
    const started = await startProcess(command(port), {
      cwd: own,
      env: { ...RUN_ENV, HOME: folder, HOST: "127.0.0.1", PORT: String(port), ...env },
      ready,
    });
    try {
      await use({ url: `http://127.0.0.1:${port}/agent`, process: started, cwd: own });
    } finally {
      await started.end("SIGKILL");
    }
  });
}

/** Does what a client does, and ends the server. Closed, a gateway leaves no journal of its database. */
async function holdServer(
  { url, process: server, cwd }: Server,
  { hasSocket }: { readonly hasSocket: boolean },
): Promise<void> {
  const pageOf = async (path: string) => await (await fetch(new URL(path, url))).text();
  assert.match(await pageOf("/"), /The server(?:'|&#x27;)s own page/);
  // Next.js takes the slash away: a redirect to it would go round
  for (const path of ["/agent", "/agent/"]) assert.match(await pageOf(path), /<title>Postern<\/title>/, path);
  const refused = await fetch(`${url}/v1/tools`);
  assert.deepEqual([refused.status, (await jsonOf(refused)).error.code], [401, "auth_required"]);
  assert.equal(await statusFor("evil.example", url), 403);

  const [, code = ""] = CODE.exec(server.output()) ?? [];
  const { token } = await jsonOf(fetch(`${url}/pair`, { method: "POST", headers: { "x-pairing-code": code } }));
  const call = (path: string, body?: unknown) => callGateway({ url, token }, path, { body });
  const completion = { messages: [{ role: "user", content: "What is 2 + 3?" }] };
  const { choices: [choice] } = await jsonOf(call("/v1/chat/completions", completion));
  assert.equal(choice.message.content, "2 + 3 = 5");

  // The run waits for the answer, so its question comes while the stream is open, or never
  const message = `/write_file ${JSON.stringify({ path: "plan.md", content: "Sow the beans\n" })}`;
  const { id } = await jsonOf(call("/v1/runs", { message }));
  const told = await readerOf(await call(`/v1/runs/${id}/events`));
  const [, approvalId] = await told.until(/"approval_needed","approval_id":"(\w+)"/);
  assert.equal((await call(`/v1/approvals/${approvalId}`, { decision: "approve" })).status, 200);
  await told.until(/"type":"done"/);
  assert.equal(readFileSync(join(cwd, "plan.md"), "utf8"), "Sow the beans\n");
  // In a thread
  const found = await jsonOf(
    call("/v1/tools/content_search/call", { input: { pattern: "b[ae]+ns", path: "plan.md" } }),
  );
  assert.match(found.output, /Sow the beans/);

  if (hasSocket) {
    const chat = await openGatewayChat({ url, token });
    chat.send("What is 2 + 3?");
    assert.deepEqual((await chat.readReply()).map(({ type, delta }) => delta ?? type), ["2 + 3 = 5", "done"]);
    await chat.leave();
  }
  assert.ok(existsSync(join(cwd, "data/postern.db-wal")), "the database is open");
  assert.equal(await server.end("SIGTERM"), 0, server.output());
  assert.ok(!existsSync(join(cwd, "data/postern.db-wal")), "the gateway was closed");
}

/** Asks with another host than the address has, which `fetch` does not. */
async function statusFor(host: string, url: string): Promise<number | undefined> {
  const [reply] = await once(get(url, { headers: { host } }), "response") as [IncomingMessage];
  reply.resume();
  return reply.statusCode;
}

async function readerOf(reply: Response) {
  assert.equal(reply.status, 200);
  const reader = reply.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    /** Reads on until the text matches. */
    async until(pattern: RegExp): Promise<RegExpExecArray> {
      for (;;) {
        const match = pattern.exec(text);
        if (match !== null) return match;
        const part = await reader?.read();
        assert.ok(part?.value !== undefined, `${pattern} never came: ${text}`);
        text += part.value;
      }
    },
  };
}

const recipes = new Map(readRecipes().map((recipe) => [recipe.path, recipe]));
const NODE_SERVERS = ["fastify.js", "koa.js", "h3.js"];
const BUILT = ["next.config.mjs", "app/agent/[[...path]]/route.js", "nitro.config.mjs", "routes/agent/[...path].js"];

test("every program of the page that names these tests is run by one of them", () => {
  assert.deepEqual([...recipes.keys()].sort(), [...NODE_SERVERS, "bun.js", ...BUILT].sort());
});

for (const program of [...NODE_SERVERS, "koa.js on Bun", "bun.js on Bun"]) {
  const [file = "", runtime] = program.split(" on ");
  const isBun = runtime === "Bun";
  const noBun = isBun && !existsSync(BUN) && `no Bun for ${process.platform} on ${process.arch} is locked`;
  test(
    `${program} of the page serves the gateway beside its own page`,
    { skip: skip || noBun },
    () =>
      withServer(() => [isBun ? BUN : process.execPath, join(project, file)], { ready: CODE }, async (server) => {
        const lines = (recipes.get(file)?.output ?? "").split("\n").filter((line) => line !== "...");
        for (const line of lines) assert.ok(server.process.output().includes(line.replace("...", "")), line);
        await holdServer(server, { hasSocket: true });
        assert.equal(server.process.errors(), "");
      }),
  );
}

test("Next.js builds without a gateway, makes it at the first request, again after a failed start, and closes it", {
  skip: noPart("@next", "swc-"),
}, async () => {
  const env = { NEXT_TELEMETRY_DISABLED: "1", NEXT_MANUAL_SIG_HANDLE: "true" };
  await runProgram(NEXT, ["build"], env);
  const command = (
    port: number,
  ) => [process.execPath, join(modules, NEXT), "start", "-H", "127.0.0.1", "-p", `${port}`];
  await withServer(command, { ready: /Ready in/, env, cwd: project }, async (server) => {
    const data = join(project, "data");
    assert.ok(!existsSync(data), "nobody has asked yet");
    writeFileSync(data, "a file where the folder should be");
    for (let times = 0; times < 2; times++) {
      assert.equal((await fetch(`${server.url}/health`)).status, 500);
      await server.process.until(/ConfigError[^]*database_unusable/);
    }
    rmSync(data);
    const replies = await Promise.all([fetch(`${server.url}/health`), fetch(`${server.url}/health`)]);
    assert.deepEqual(replies.map(({ status }) => status), [200, 200]);
    assert.equal(server.process.output().match(new RegExp(CODE, "gm"))?.length, 1);
    await holdServer(server, { hasSocket: false });
  });
});

test("Nitro serves the gateway from a route of its build", { skip: noPart("@rollup", "rollup-") }, async () => {
  await runProgram("nitro/dist/cli/index.mjs", ["build"]);
  const command = () => [process.execPath, join(project, ".output/server/index.mjs")];
  await withServer(command, { ready: /Listening on/, env: { NITRO_SHUTDOWN_DISABLED: "true" } }, async (server) => {
    assert.equal((await fetch(`${server.url}/health`)).status, 200);
    await holdServer(server, { hasSocket: false });
  });
});

test(
  "a bundle works without the package, says so with it, and is empty where nothing of it is used",
  { skip: noPart("@esbuild", process.platform) },
  async () => {
    const bundle = async (text: string, ...flags: readonly string[]) => {
      writeFileSync(join(project, "bundled.js"), text);
      const words = ["bundled.js", "--bundle", "--platform=node", "--format=esm", "--outfile=out/bundle.mjs"];
      // Neither an error nor a warning of a package that is not installed
      const { stderr } = await runProgram("esbuild/bin/esbuild", [...words, "--log-level=warning", ...flags]);
      assert.equal(stderr, "");
      return readFileSync(join(project, "out/bundle.mjs"), "utf8");
    };
    const program = `import { createGateway } from "postern";
const gateway = await createGateway({ dataDir: "./bundled", workspace: "." }).catch(({ code, message }) => console.log(code, message));
if (gateway !== undefined) console.log((await gateway.request("/health")).status);
await gateway?.close();
`;
    const start = async () =>
      (await run(process.execPath, ["out/bundle.mjs"], { cwd: project, env: { ...RUN_ENV } })).stdout;
    await bundle(program);
    assert.match(await start(), /^package_bundled .*--external:postern for esbuild/);
    await bundle(program, "--external:postern");
    assert.equal(await start(), "200\n");
    const unused = await bundle(
      'import { createGateway } from "postern";\nconsole.log("unused");\n',
      "--legal-comments=none",
    );
    assert.equal(unused, '// bundled.js\nconsole.log("unused");\n');
  },
);

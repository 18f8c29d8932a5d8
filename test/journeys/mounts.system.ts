import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { freePort } from "../support/free_port.ts";
import { callGateway } from "../support/gateway_call.ts";
import { ROOT, RUN, RUN_ENV } from "../support/gateway_process.ts";
import { type StartedProcess, startProcess } from "../support/started_process.ts";
import { jsonOf, withWorld } from "../support/world.ts";

const ON_DENO = "Deno" in globalThis;
const DENO = ON_DENO ? process.execPath : denoThroughNpm();
const RUN_WITH_DENO = [DENO ?? "", "run", "--allow-all", "--no-check"];

const NODE_ALONE = ON_DENO ? "its server is for Node alone" : false;
const SERVERS = [
  { file: "express.ts", run: RUN, skip: false },
  { file: "hono.ts", run: RUN, skip: NODE_ALONE },
  { file: "srvx.ts", run: RUN, skip: false },
  {
    file: "deno_serve.ts",
    run: RUN_WITH_DENO,
    skip: DENO === undefined ? "Deno cannot be had through npm here" : false,
  },
] as const;

/** Path of the program itself: npm in between would not hand its exit code on. */
function denoThroughNpm(): string | undefined {
  const { status, stdout } = spawnSync(process.execPath, ["scripts/deno.ts", "eval", "console.log(Deno.execPath())"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  return status === 0 ? stdout.trim() : undefined;
}

const pathOf = (file: string) => join(ROOT, "fixtures", "mounts", file);

/** An example that serves a gateway under `/agent`. */
interface RunningExample {
  readonly url: string;
  readonly code: string;
  readonly process: StartedProcess;
}

/** Runs an example as it is, in a folder that holds `garden.md`. */
async function withServer(
  { file, run }: { readonly file: string; readonly run: readonly string[] },
  use: (example: RunningExample) => Promise<void>,
): Promise<void> {
  await withWorld(async (world) => {
    const cwd = await world.folder();
    writeFileSync(join(cwd, "garden.md"), "Water the beans on Tuesday\n");
    const port = await freePort();
    const env = { ...RUN_ENV, PORT: String(port) };
    const example = await startProcess([...run, pathOf(file)], { cwd, env, ready: /^Pairing code: (\S+)\n/m });
    world.onEnd(() => example.end("SIGKILL"));
    await use({ url: `http://127.0.0.1:${port}/agent`, code: example.match[1] ?? "", process: example });
  });
}

/** Returns the agent's text over the socket, joined. */
async function chat(url: string, ticket: string, message: string): Promise<string> {
  const socket = new WebSocket(`${url.replace("http:", "ws:")}/ws/chat?ticket=${ticket}`);
  let text = "";
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => socket.send(message);
    socket.onerror = () => reject(new Error("The socket failed"));
    socket.onclose = ({ code, reason }) => reject(new Error(`The socket was closed: ${code} ${reason}`));
    socket.onmessage = ({ data }) => {
      // docs/design/websocket.md "Frames out"
      const frame = JSON.parse(data) as { type: string; delta?: string; message?: string };
      if (frame.type === "delta") text += frame.delta;
      if (frame.type === "error") reject(new Error(frame.message));
      if (frame.type === "done") resolve();
    };
  });
  socket.onclose = null;
  socket.close();
  return text;
}

describe("mounted under a base path", () => {
  for (const example of SERVERS) {
    test(
      `fixtures/mounts/${example.file} serves the gateway beside its own pages`,
      { skip: example.skip },
      () =>
        withServer(example, async ({ url, code, process: running }) => {
          assert.equal(await (await fetch(new URL("/", url))).text(), "The server's own page\n");
          assert.doesNotMatch(await (await fetch(new URL("/agentx/health", url))).text(), /"status"/);
          assert.equal((await jsonOf(fetch(`${url}/health`))).status, "ok");
          assert.match(await (await fetch(url)).text(), /<title>Postern<\/title>/);
          const refused = await fetch(`${url}/v1/tools`);
          assert.equal(refused.status, 401);
          await refused.body?.cancel();

          const pairing = fetch(`${url}/pair`, { method: "POST", headers: { "x-pairing-code": code } });
          const { token } = await jsonOf(pairing); // docs/design/access.md "Pairing"
          const call = (path: string, body: unknown) => callGateway({ url, token }, path, { body });
          const messages = [{ role: "user", content: "When are the beans watered?" }];
          const { choices: [choice] } = await jsonOf(call("/v1/chat/completions", { messages }));
          assert.match(choice.message.content, /garden\.md:1[\s\S]*Water the beans on Tuesday/);
          const chunks = await (await call("/v1/chat/completions", { messages, stream: true })).text();
          assert.match(chunks, /^data: \{/);
          assert.match(chunks, /data: \[DONE\]\n\n$/);

          const { ticket } = await jsonOf(call("/v1/ws-ticket", {}));
          assert.match(await chat(url, ticket, "/read_file garden.md"), /Water the beans on Tuesday/);
          await assert.rejects(chat(url, ticket, "again"), "a ticket is good for one socket");

          assert.equal(await running.end("SIGTERM"), 0);
          // Deno says where it listens, and that its request.signal is not what it seems, which the gateway knows
          assert.equal(running.errors().replace(/^(Deno\.serve: request\.signal aborts|Listening on) .*\n/gm, ""), "");
        }),
    );
  }
});

/** Uses the examples without a server one after the other: each has the data directory of the one before. */
const USES = `
await import(process.argv[2]);
await import(process.argv[3]);
`;

test("the examples of tools and providers do what they say", () =>
  withWorld(async (world) => {
    const cwd = await world.folder();
    const program = join(cwd, "uses.mjs");
    writeFileSync(program, USES);
    const files = ["own_tool.ts", "own_provider.ts"].map((file) => pathToFileURL(pathOf(file)).href);
    // The folder of the program tells Deno nothing about the project
    const [command = "", ...options] = ON_DENO ? [...RUN, "--config", join(ROOT, "deno.json")] : RUN;
    const { stdout, stderr } = spawnSync(command, [...options, program, ...files], {
      cwd,
      env: RUN_ENV,
      encoding: "utf8",
    });
    assert.match(stdout, /A bean is 3 euros[\s\S]*You said: Hello\n$/, stderr);
  }));

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { ROOT, RUN, withGatewayProcess } from "../support/gateway_process.ts";
import { type GatewayProcess, jsonOf, withWorld } from "../support/world.ts";

const ON_DENO = "Deno" in globalThis;
const DENO = ON_DENO ? process.execPath : denoThroughNpm();
const RUN_WITH_DENO = [DENO ?? "", "run", "--allow-all", "--no-check"];

const EXAMPLES = [
  { file: "node_http.ts", run: RUN, skip: ON_DENO ? "crossws has its Node adapter for Node alone" : false },
  { file: "srvx.ts", run: RUN, skip: false },
  { file: "itty.ts", run: RUN, skip: false },
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

/** Runs an example with a workspace that holds `garden.md`. */
async function withExample(
  { file, run }: { readonly file: string; readonly run: readonly string[] },
  use: (example: GatewayProcess) => Promise<void>,
): Promise<void> {
  await withWorld(async (world) => {
    const folder = await world.folder();
    writeFileSync(join(folder, "garden.md"), "Water the beans on Tuesday\n");
    const command = [...run, join("fixtures", "mounts", file), join(folder, "data"), folder];
    await use(await world.enter((started) => withGatewayProcess(command, started)));
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
  for (const example of EXAMPLES) {
    test(
      `fixtures/mounts/${example.file} serves the gateway beside its own pages`,
      { skip: example.skip },
      () =>
        withExample(example, async (running) => {
          const { url } = running;
          assert.equal(await (await fetch(new URL("/", url))).text(), "The server's own page\n");
          assert.equal(await (await fetch(new URL("/agentx/health", url))).text(), "The server's own page\n");
          const health = await fetch(`${url}/health`);
          assert.equal((await health.json() as { status: string }).status, "ok");
          assert.match(await (await fetch(url)).text(), /<title>Postern<\/title>/);

          const refused = await fetch(`${url}/v1/tools`);
          assert.equal(refused.status, 401);
          await refused.body?.cancel();
          await running.pair(); // docs/design/access.md "Pairing"
          const completion = await running.call("/v1/chat/completions", {
            body: { messages: [{ role: "user", content: "When are the beans watered?" }] },
          });
          const { choices: [choice] } = await completion.json() as { choices: { message: { content: string } }[] };
          assert.match(choice?.message.content ?? "", /garden\.md:1[\s\S]*Water the beans on Tuesday/);

          const stream = await running.call("/v1/chat/completions", {
            body: { messages: [{ role: "user", content: "hello" }], stream: true },
          });
          const chunks = await stream.text();
          assert.match(chunks, /^data: \{/);
          assert.match(chunks, /data: \[DONE\]\n\n$/);

          const { ticket } = await jsonOf(running.call("/v1/ws-ticket", { method: "POST" }));
          assert.match(await chat(url, ticket, "/read_file garden.md"), /Water the beans on Tuesday/);
          await assert.rejects(chat(url, ticket, "again"), "a ticket is good for one socket");

          const { exitCode, stderr } = await running.stop();
          // Deno says once that its request.signal is not what it seems, which the gateway knows
          assert.equal(stderr.replace(/^Deno\.serve: request\.signal aborts .*\n/m, ""), "");
          assert.equal(exitCode, 0);
        }),
    );
  }
});

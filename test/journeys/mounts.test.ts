import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const ON_DENO = "Deno" in globalThis;
const DENO = ON_DENO ? process.execPath : denoThroughNpm();
const RUN_WITH_DENO = [DENO ?? "", "run", "--allow-all", "--no-check"];
const RUN = ON_DENO ? RUN_WITH_DENO : [process.execPath];

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

interface Example {
  /** Address of the gateway within the example, without a slash at the end */
  readonly url: string;
  readonly code: string;
  /** Sends SIGTERM. @returns exit code, and what was written to stderr */
  stop(): Promise<{ readonly exitCode: number | null; readonly stderr: string }>;
}

async function withExample(
  { file, run: [command, ...options] }: { readonly file: string; readonly run: readonly string[] },
  use: (example: Example) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "garden.md"), "Water the beans on Tuesday\n");
    const script = join(ROOT, "fixtures", "mounts", file);
    const child = spawn(command ?? "", [...options, script, join(folder, "data"), folder], {
      cwd: ROOT,
      detached: true,
    });
    let stderr = "";
    child.stderr.on("data", (bytes) => (stderr += bytes));
    const ended = once(child, "exit");
    try {
      const { url, code } = await readAddress(child);
      await use({
        url,
        code,
        async stop() {
          // On Deno, child.kill() reports the signal in place of the exit code
          if (child.pid !== undefined) process.kill(child.pid, "SIGTERM");
          const [exitCode] = await ended;
          return { exitCode, stderr };
        },
      });
    } finally {
      child.kill("SIGKILL");
      await ended;
    }
  });
}

async function readAddress(child: ChildProcess): Promise<{ readonly url: string; readonly code: string }> {
  assert.ok(child.stdout !== null);
  let url: string | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    url ??= /^Listening on (http:\S+)\/$/.exec(line)?.[1];
    const code = /^Pairing code: (\S+)$/.exec(line)?.[1];
    if (url !== undefined && code !== undefined) return { url, code };
  }
  throw new Error("The example ended without an address");
}

async function pair({ url, code }: Example): Promise<Record<string, string>> {
  const reply = await fetch(`${url}/pair`, { method: "POST", headers: { "x-pairing-code": code } });
  assert.equal(reply.status, 200);
  const { token } = await reply.json() as { token: string }; // DESIGN.md section 2
  return { authorization: `Bearer ${token}`, "content-type": "application/json" };
}

/** What the agent says over the socket, joined. */
async function chat(url: string, ticket: string, message: string): Promise<string> {
  const socket = new WebSocket(`${url.replace("http:", "ws:")}/ws/chat?ticket=${ticket}`);
  let text = "";
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => socket.send(message);
    socket.onerror = () => reject(new Error("The socket failed"));
    socket.onclose = ({ code, reason }) => reject(new Error(`The socket was closed: ${code} ${reason}`));
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data) as { type: string; delta?: string; message?: string }; // DESIGN.md section 4
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
          const headers = await pair(running);
          const completion = await fetch(`${url}/v1/chat/completions`, {
            method: "POST",
            headers,
            body: JSON.stringify({ messages: [{ role: "user", content: "When are the beans watered?" }] }),
          });
          const { choices: [choice] } = await completion.json() as { choices: { message: { content: string } }[] };
          assert.match(choice?.message.content ?? "", /garden\.md:1[\s\S]*Water the beans on Tuesday/);

          const stream = await fetch(`${url}/v1/chat/completions`, {
            method: "POST",
            headers,
            body: JSON.stringify({ messages: [{ role: "user", content: "hello" }], stream: true }),
          });
          const chunks = await stream.text();
          assert.match(chunks, /^data: \{/);
          assert.match(chunks, /data: \[DONE\]\n\n$/);

          const { ticket } = await (await fetch(`${url}/v1/ws-ticket`, { method: "POST", headers })).json() as {
            ticket: string;
          };
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

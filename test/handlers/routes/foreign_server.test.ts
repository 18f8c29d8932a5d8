import assert from "node:assert/strict";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { join } from "node:path";
import { createGateway } from "../../../handlers/mod.ts";
import type { StatusReply } from "../../../lib/base/records/gateway_status.ts";
import { startOpenAiUpstream } from "../../../fixtures/upstream/openai_upstream.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { freePort } from "../../support/free_port.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { type StartedProcess, startProcess } from "../../support/started_process.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

/** Nobody's here, and `daemon`, who is in /etc/passwd of every Linux. */
const STRANGER = 4242;
const DAEMON = 1;

/** Listens as another user, says each request on stdout, and answers like a model server. */
const SERVER = `
const http = require("node:http");
http.createServer((request, response) => {
  console.log("asked " + request.url);
  request.resume();
  response.setHeader("content-type", "application/json");
  if (request.url === "/v1/models") return response.end('{"data":[{"id":"stolen","object":"model","owned_by":"x"}]}');
  if (request.url !== "/v1/chat/completions") return response.writeHead(404).end("{}");
  response.end('{"choices":[{"index":0,"message":{"role":"assistant","content":"from another user"},"finish_reason":"stop"}]}');
}).listen(Number(process.argv[1]), "127.0.0.1", () => console.log("ready"));
`;

/** @returns undefined, with a printed reason, where no process of another user can be made */
async function startAs(t: TestContext, uid: number, port: number): Promise<StartedProcess | undefined> {
  if (process.platform !== "linux" || process.getuid?.() !== 0) {
    t.skip("only root on Linux can start a server of another user");
    return undefined;
  }
  const command = ["setpriv", `--reuid=${uid}`, "--clear-groups", "node", "-e", SERVER, String(port)];
  try {
    const server = await startProcess(command, { cwd: "/", ready: /ready/ });
    t.after(() => server.end("SIGKILL"));
    return server;
  } catch (error) {
    t.skip(`no server of another user could be started: ${error}`);
    return undefined;
  }
}

const AUTO = { provider: { kind: "auto", max_retries: 0 } };
const asked = (server: StartedProcess) => server.output().split("\n").filter((line) => line.startsWith("asked"));

async function statusOf(gateway: RunningGateway) {
  return (await (await gateway.call("/v1/status")).json() as StatusReply).provider;
}

function complete(gateway: RunningGateway, model: string) {
  const body = { model, messages: [{ role: "user", content: "Hello" }] };
  return gateway.call("/v1/chat/completions", { body, headers: { "x-postern-tools": "none" } });
}

test("a model server of another user is sent nothing until a person trusts it", async (t) => {
  const port = await freePort();
  const server = await startAs(t, STRANGER, port);
  if (server === undefined) return;
  // A look at servers may take two seconds, and longer on a busy machine
  const clock = createFakeClock();
  await withRunningGateway({ config: AUTO, localServers: [`http://127.0.0.1:${port}`], clock }, async (gateway) => {
    const before = await statusOf(gateway);
    assert.equal(before?.name, "offline");
    assert.match(before?.reason ?? "", new RegExp(`uid ${STRANGER}.*postern models trust 127.0.0.1:${port}`));
    assert.equal(gateway.log.filter(({ message }) => message.includes(`uid ${STRANGER}`)).length, 1);
    assert.deepEqual(asked(server), []);

    const refused = await gateway.call("/v1/model-servers", { body: { address: `127.0.0.1:${port}`, adress: "x" } });
    assert.equal(refused.status, 400);
    const trusted = await gateway.call("/v1/model-servers", { body: { address: `127.0.0.1:${port}` } });
    assert.deepEqual(await trusted.json(), { origin: `http://127.0.0.1:${port}`, uid: STRANGER });
    const { data } = await (await gateway.call("/v1/audit?type=trust")).json() as { data: Record<string, unknown>[] };
    assert.deepEqual(
      data.map(({ subject, name, uid, by }) => ({ subject, name, uid, by })),
      [{
        subject: "model_server",
        name: `http://127.0.0.1:${port}`,
        uid: STRANGER,
        by: { via: "http", token_id: "env" },
      }],
    );
    await until(async () => {
      await clock.advance(0);
      return gateway.services.agent?.providers.inUse.name === "openai_compatible";
    }, "the trusted server is used");
    assert.match((await statusOf(gateway))?.reason ?? "", /run by the user with uid 4242, trusted by you$/);
    const reply = await complete(gateway, "default");
    assert.match(await reply.text(), /from another user/);
  });
});

test("a server of a user in local_users is taken, and its user is named", async (t) => {
  const port = await freePort();
  if (await startAs(t, DAEMON, port) === undefined) return;
  const localServers = [`http://127.0.0.1:${port}`];
  await withRunningGateway({ config: AUTO, localServers, clock: createFakeClock() }, async (gateway) => {
    assert.match((await statusOf(gateway))?.reason ?? "", /run by daemon \(uid 1\)/);
  });
  const config = { provider: { ...AUTO.provider, local_users: ["daemon"] } };
  await withRunningGateway({ config, localServers, clock: createFakeClock() }, async (gateway) => {
    assert.match((await statusOf(gateway))?.reason ?? "", /answers at 127\.0\.0\.1:\d+, run by daemon$/);
  });
});

test("another user who takes the port of a server in use gets no request", async (t) => {
  const mine = await startOpenAiUpstream();
  const port = Number(new URL(mine.origin).port);
  // A look at servers may take two seconds, and longer on a busy machine
  const clock = createFakeClock();
  await withRunningGateway({ config: AUTO, localServers: [mine.origin], clock }, async (gateway) => {
    assert.equal((await complete(gateway, "upstream-small")).status, 200);
    await mine.close();
    const server = await startAs(t, STRANGER, port);
    if (server === undefined) return;
    const reply = await complete(gateway, "upstream-small");
    assert.equal(reply.status, 502);
    assert.match(await reply.text(), new RegExp(`Cannot use the server at .*uid ${STRANGER}`));
    await until(async () => {
      await clock.advance(0);
      return gateway.services.agent?.providers.inUse.name === "offline";
    }, "the server is given up");
    assert.deepEqual(asked(server), []);
  });
});

test(
  "a mounted gateway takes no server that it finds, unless it is told to",
  { skip: process.platform !== "linux" },
  async () => {
    const upstream = await startOpenAiUpstream();
    const environment = { OLLAMA_HOST: upstream.origin, POSTERN_TOKEN: "a-token-from-the-environment" };
    const ask = async (localServers?: boolean) => {
      let provider: unknown;
      await withTemporaryFolder(async (folder) => {
        const options = { dataDir: join(folder, "data"), workspace: folder, environment };
        const gateway = await createGateway({ ...options, ...(localServers === undefined ? {} : { localServers }) });
        const headers = { authorization: `Bearer ${environment.POSTERN_TOKEN}` };
        const reply = await gateway.fetch(new Request("http://localhost/v1/status", { headers }));
        provider = (await reply.json() as StatusReply).provider?.name;
        await gateway.close();
      });
      return provider;
    };
    try {
      assert.deepEqual([await ask(), await ask(false)], ["offline", "offline"]);
      assert.deepEqual(upstream.requests, []);
      // A busy machine may take longer to look than the two seconds that a look has
      await until(async () => await ask(true) === "openai_compatible", "the server is taken");
    } finally {
      await upstream.close();
    }
  },
);

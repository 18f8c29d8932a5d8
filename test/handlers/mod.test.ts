import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import "../../fixtures/mounts/without_socket.ts";
import { createGateway, type GatewayLogLine, type GatewayOptions } from "../../handlers/mod.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { errorOf } from "../support/test_router.ts";

const OFFLINE = { provider: { kind: "offline" as const } };

async function withGateway(
  options: Partial<GatewayOptions>,
  use: (gateway: Awaited<ReturnType<typeof createGateway>>, given: GatewayOptions) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const given = { dataDir: join(folder, "data"), workspace: folder, config: OFFLINE, ...options };
    const gateway = await createGateway(given);
    try {
      await use(gateway, given);
    } finally {
      await gateway.close();
    }
  });
}

test("a mounted gateway pairs and chats under its base path, and logs to its owner", async () => {
  const lines: GatewayLogLine[] = [];
  await withGateway({ basePath: "/gw/", onLog: (line) => void lines.push(line) }, async (gateway) => {
    const code = await gateway.createPairingCode();
    const call = (path: string, headers: Record<string, string>, body?: string) =>
      gateway.fetch(
        new Request(`http://127.0.0.1${path}`, { method: "POST", headers, ...(body === undefined ? {} : { body }) }),
        {
          remoteAddress: "10.1.2.3",
        },
      );
    assert.equal((await call("/pair", { "x-pairing-code": code })).status, 404);
    const paired = await call("/gw/pair", { "x-pairing-code": code });
    const { token } = await paired.json() as { token: string };
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const reply = await call(
      "/gw/v1/chat/completions",
      headers,
      '{"model":"any","messages":[{"role":"user","content":"hi"}]}',
    );
    assert.equal(reply.status, 200);
    const { choices } = await reply.json() as { choices: { message: { content: string } }[] };
    assert.ok((choices[0]?.message.content.length ?? 0) > 0);
    const line = lines.find(({ fields }) => fields["route"] === "/v1/chat/completions");
    assert.equal(line?.fields["remote_address"], "10.1.2.3");
    assert.doesNotMatch(JSON.stringify(lines), new RegExp(token));
  });
});

test("POSTERN_TOKEN of the environment is a token, and agent: false answers 503", async () => {
  const environment = { POSTERN_TOKEN: "a-token-from-the-environment" };
  await withGateway({ environment, agent: false }, async (gateway) => {
    const headers = { authorization: "Bearer a-token-from-the-environment", "content-type": "application/json" };
    const reply = await gateway.fetch(
      new Request("http://localhost/api/chat", { method: "POST", headers, body: '{"message":"hi"}' }),
    );
    assert.deepEqual([reply.status, (await errorOf(reply)).code], [503, "agent_unavailable"]);
    assert.equal((await gateway.fetch(new Request("http://evil.com/health"))).status, 403);
  });
});

test("request() writes json as the body of a POST, and takes no second body", async () => {
  const environment = { POSTERN_TOKEN: "a-token-from-the-environment" };
  await withGateway({ environment }, async (gateway) => {
    const headers = { authorization: `Bearer ${environment.POSTERN_TOKEN}` };
    const reply = await gateway.request("/api/chat", { headers, json: { message: "What is 2 + 3?" } });
    assert.equal((await reply.json() as { message: string }).message, "2 + 3 = 5");
    const patched = await gateway.request("/api/chat", { method: "PUT", headers, json: null });
    assert.equal(patched.status, 405);
    await assert.rejects(gateway.request("/api/chat", { headers, json: {}, body: "{}" }), /both "json" and "body"/);
  });
});

test("websocket.resolve refuses a handshake without a token", async () => {
  await withGateway({}, async (gateway) => {
    const request = new Request("http://localhost/ws/chat", { headers: { upgrade: "websocket" } });
    const refusal = await gateway.websocket.resolve(request).upgrade?.(request as never);
    assert.equal((refusal as Response).status, 401);
  });
});

test("a client of MCP that comes after close() is refused", async () => {
  const environment = { POSTERN_TOKEN: "a-token-from-the-environment" };
  await withGateway({ environment }, async (gateway) => {
    await gateway.close();
    const reply = await gateway.request("/mcp", {
      method: "POST",
      headers: {
        authorization: "Bearer a-token-from-the-environment",
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } },
      }),
    });
    assert.deepEqual([reply.status, (await errorOf(reply)).code], [503, "shutting_down"]);
  });
});

test("an unknown option is refused by its name, and so is a workspace that is absent or no folder", async () => {
  await withTemporaryFolder(async (folder) => {
    const given = { dataDir: join(folder, "data"), workspace: folder, config: OFFLINE };
    const file = join(folder, "file");
    await writeFile(file, "");
    const cases: readonly (readonly [options: unknown, message: RegExp])[] = [
      [
        { ...given, workspce: folder, agnt: false },
        /"workspce" \(did you mean "workspace"\?\), "agnt" \(did you mean "agent"/,
      ],
      [{ ...given, requirePairing: false }, /"requirePairing".*the options are dataDir, workspace, config/],
      [{ ...given, workspace: undefined }, /without "workspace"/],
      [{ ...given, workspace: "" }, /without "workspace"/],
      [{ ...given, workspace: join(folder, "nothing") }, /nothing": it is not a folder/],
      [{ ...given, workspace: file }, /file": it is not a folder/],
      [{ workspace: folder }, /without "dataDir"/],
      [undefined, /without options/],
    ];
    for (const [options, message] of cases) {
      // Callers in JavaScript pass what they like
      await assert.rejects(createGateway(options as GatewayOptions), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.match(error.message, message);
        return true;
      });
    }
    assert.deepEqual(await readdir(folder), ["file"], "nothing was made");
  });
});

test("a wrong configuration and a data directory in use are refused by name", async () => {
  await withGateway({}, async (_gateway, given) => {
    const refused = (config: Record<string, unknown>, key: RegExp) =>
      assert.rejects(createGateway({ ...given, config }), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.match(error.message, key);
        return true;
      });
    await refused({ gateway: { prot: 1 } }, /"gateway\.prot"/);
    await refused({ gateway: { port: "x" } }, /"gateway\.port"/);
    await refused(OFFLINE, /another gateway/);
  });
});

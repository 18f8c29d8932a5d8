/** Notices of changes over real streams of HTTP, to clients of both eras at once. */
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { toNodeHandler } from "../../handlers/mod.ts";
import { fixtureServer, mcpConfig } from "../support/mcp_bench.ts";
import { MCP_ERAS, type McpEra, type McpGateway, withMcpGateway } from "../support/mcp_gateway.ts";
import { samplePackage, sampleTool } from "../support/plugin_package.ts";
import { until } from "../support/until.ts";

const STOCK = "shop://stock";
const BEANS = "shop://plants/bean/price";
const CONVERSATION = "postern://conversations/c1";

/** A client that listens, with what it was told. */
interface Listener {
  readonly client: Client;
  readonly told: string[];
  /** Waits until the client was told of this once more, and forgets what it was told */
  hears(notice: string): Promise<void>;
  names(): Promise<readonly string[]>;
}

describe("clients that listen over HTTP", () => {
  let started: McpGateway;
  let url: URL;
  let listeners: readonly Listener[];
  let poor: readonly Listener[];
  let over: Promise<void>;
  let release = () => {};
  const server = createServer((request, reply) => toNodeHandler(started.gateway)(request, reply));

  async function listen(era: McpEra, ...scopes: readonly ("tools" | "runs")[]): Promise<Listener> {
    const told: string[] = [];
    const client = new Client({ name: era, version: "1" }, {
      versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
    });
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => void told.push(params.uri));
    client.setNotificationHandler("notifications/tools/list_changed", () => void told.push("tools"));
    client.setNotificationHandler("notifications/resources/list_changed", () => void told.push("resources"));
    const headers = { authorization: `Bearer ${await started.token(...scopes)}` };
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
    await client.connect(transport as Parameters<Client["connect"]>[0]);
    const uris = [STOCK, BEANS, CONVERSATION];
    if (era === "2026-07-28") {
      await client.listen({ toolsListChanged: true, resourcesListChanged: true, resourceSubscriptions: uris });
    } else {
      for (const uri of uris) await client.subscribeResource({ uri }).catch(() => {});
      // The stream of a session is opened in the background
      await until(async () => /postern_mcp_sessions [1-9]/.test(await metrics()));
    }
    return {
      client,
      told,
      async hears(notice) {
        await until(() => told.includes(notice), () => `${era} hears of ${notice}: ${told}`);
        told.length = 0;
      },
      names: async () => (await client.listTools()).tools.map(({ name }) => name),
    };
  }

  const metrics = async () => await (await started.gateway.request("/metrics", { headers: ADMIN })).text();
  const ADMIN = { authorization: "Bearer the-token-of-the-environment" };

  before(() =>
    new Promise<void>((resolve, reject) => {
      over = withMcpGateway({
        environment: { PATH: process.env["PATH"] ?? "", POSTERN_TOKEN: "the-token-of-the-environment" },
        resources: {
          [STOCK]: { name: "stock", read: () => "12" },
          "shop://plants/{plant}/price": { name: "price", read: ({ plant }) => plant },
        },
        config: {
          ...mcpConfig({ one: fixtureServer() }),
          plugins: { allow_process: true },
          autonomy: { level: "full" },
        },
      }, async (gateway) => {
        started = gateway;
        await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
        url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
        const tools = async () => JSON.stringify(await started.ask("GET", "/v1/tools"));
        await until(async () => (await tools()).includes("mcp__one__change"), "the server is ready");
        listeners = await Promise.all(MCP_ERAS.map((era) => listen(era, "tools", "runs")));
        poor = await Promise.all(MCP_ERAS.map((era) => listen(era, "tools")));
        const held = new Promise<void>((free) => release = free);
        resolve();
        await held;
        await Promise.all([...listeners, ...poor].map(({ client }) => client.close()));
        server.closeAllConnections();
        server.close();
      });
      over.catch(reject);
    })
  );

  after(async () => {
    release();
    await over;
  });

  test("a change of the program's resource is told to each that subscribed, once, also of a template's", async () => {
    for (const uri of [STOCK, BEANS]) {
      for (let count = 0; count < 100; count++) started.gateway.resourceChanged(uri);
      for (const { told, client } of [...listeners, ...poor]) {
        await until(() => told.includes(uri));
        assert.deepEqual(told, [uri]);
        told.length = 0;
        assert.equal((await client.readResource({ uri })).contents.length, 1);
      }
    }
    assert.throws(() => started.gateway.resourceChanged("shop://none"), TypeError);
    assert.throws(() => started.gateway.resourceChanged(CONVERSATION), TypeError);
  });

  test("a new conversation changes the list, and a change of one is told, to clients that may read it alone", async () => {
    const ask = async (message: string) => await started.ask("POST", "/api/chat", { message, conversation_id: "c1" });
    await ask("Hi");
    for (const { told, client } of listeners) {
      await until(() => told.includes("resources") && told.includes(CONVERSATION), () => told.join());
      const { resources } = await client.listResources();
      assert.ok(resources.some(({ uri }) => uri === CONVERSATION));
      told.length = 0;
    }
    await ask("Again");
    for (const listener of listeners) await listener.hears(CONVERSATION);
    for (const { told, client } of poor) {
      assert.deepEqual(told, []);
      assert.equal(client.getServerCapabilities()?.resources?.listChanged, false);
      assert.deepEqual((await client.listResources()).resources.map(({ uri }) => uri), [STOCK]);
      await assert.rejects(client.readResource({ uri: CONVERSATION }), /scope "runs"/);
      await assert.rejects(client.readResource({ uri: CONVERSATION.toUpperCase() }), /scope "runs"/);
    }
  });

  test("a server's tool that a person accepts, and the tool of an enabled plugin, are in the list of whoever was told", async () => {
    const [first] = listeners;
    await first?.client.callTool({ name: "mcp__one__change", arguments: { text: "fresh" } });
    const changes = async () => JSON.stringify(await started.ask("GET", "/v1/mcp-servers/one"));
    await until(async () => (await changes()).includes('"fresh"'));
    assert.ok(!(await first?.names())?.includes("mcp__one__fresh"), "it is held back");
    const { changes: [change] } = await started.ask("GET", "/v1/mcp-servers/one") as { changes: { digest: string }[] };
    await started.ask("POST", "/v1/mcp-servers/one/accept", { digests: [change?.digest] });
    for (const listener of [...listeners, ...poor]) {
      await listener.hears("tools");
      assert.ok((await listener.names()).includes("mcp__one__fresh"));
    }

    const tar = samplePackage({
      ...{ kind: "process", wasm: undefined, tools: [sampleTool("count_words")] },
      process: { command: "sh", args: ["count.sh"] },
    }, [{ name: "count.sh", bytes: Buffer.from("read -r line\n") }]);
    const headers = { ...ADMIN, "content-type": "application/x-tar" };
    const installed = await started.gateway.request("/v1/plugins", { method: "POST", headers, body: Buffer.from(tar) });
    const { digest } = await installed.json() as { digest: string };
    for (const [action, isThere] of [["enable", true], ["disable", false]] as const) {
      await started.ask("POST", `/v1/plugins/words/${action}`, isThere ? { digest } : {});
      for (const listener of [...listeners, ...poor]) {
        await listener.hears("tools");
        assert.equal((await listener.names()).includes("count_words"), isThere);
      }
    }
  });

  test("the prompts of a program never change, and no client is promised news of them", () => {
    for (const { client } of listeners) assert.notEqual(client.getServerCapabilities()?.prompts?.listChanged, true);
  });
});

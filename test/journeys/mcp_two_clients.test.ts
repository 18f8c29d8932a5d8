import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { toNodeHandler } from "../../handlers/mod.ts";
import { MCP_ERAS, type McpEra, withMcpGateway } from "../support/mcp_gateway.ts";
import { until } from "../support/until.ts";

const CONFIG = { autonomy: { level: "supervised" }, security: { write_file: { enabled: true } } };

test("two clients of both eras work at once over HTTP: one waits for a person, the other goes on", async () => {
  await withMcpGateway({ config: CONFIG }, async ({ gateway, token, ask }) => {
    const server = createServer(toNodeHandler(gateway));
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
    const links: string[] = [];
    const connect = async (era: McpEra) => {
      const client = new Client({ name: era, version: "1" }, {
        capabilities: { elicitation: { url: {} } },
        versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
      });
      client.setRequestHandler("elicitation/create", ({ params }) => {
        if (params.mode === "url") links.push(params.url);
        return { action: "accept" as const };
      });
      const headers = { authorization: `Bearer ${await token("tools", "runs")}` };
      const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
      await client.connect(transport as Parameters<Client["connect"]>[0]);
      return client;
    };
    const clients = await Promise.all(MCP_ERAS.map(connect));
    for (const [at, waiting] of clients.entries()) {
      const other = clients[1 - at];
      const input = { path: `note_${at}.txt`, content: "Hi" };
      let isOver = false;
      const written = waiting.callTool({ name: "write_file", arguments: input }).finally(() => isOver = true);
      await until(() => links.length === at + 1);
      assert.match(links[at] ?? "", new RegExp(`^${url.origin}/#approvals/apr_`));
      const echoed = await other?.callTool({ name: "echo", arguments: { text: "meanwhile" } });
      assert.match(JSON.stringify(echoed?.content), /meanwhile/);
      const run = await other?.callTool({ name: "run_start", arguments: { message: "Hi" } });
      assert.notEqual(run?.isError, true);
      assert.equal(isOver, false, "it waits for the person");
      const id = links[at]?.split("/").at(-1);
      await ask("POST", `/v1/approvals/${id}`, { decision: "approve" });
      assert.notEqual((await written).isError, true);
    }
    await Promise.all(clients.map((client) => client.close()));
    server.closeAllConnections();
    server.close();
  });
});

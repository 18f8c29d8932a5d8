import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { toNodeHandler } from "../../handlers/mod.ts";
import { mcpConfig } from "../support/mcp_bench.ts";
import { MCP_ERAS, type McpEra, withMcpGateway } from "../support/mcp_gateway.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { until } from "../support/until.ts";

const CONFIG = { autonomy: { level: "supervised" as const }, security: { write_file: { enabled: true } } };

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

const EVERYTHING = {
  command: process.execPath,
  args: [join(PROJECT_ROOT, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")],
};

test("two clients of both eras use one real server at once: each gets its own answers, progress and cancellation", () =>
  withMcpGateway({
    environment: { PATH: process.env["PATH"] ?? "", POSTERN_TOKEN: "the-token-of-the-environment" },
    config: { ...mcpConfig({ everything: EVERYTHING }), autonomy: { level: "full" } },
  }, async ({ gateway, token, ask }) => {
    const server = createServer(toNodeHandler(gateway));
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
    const names = async () => JSON.stringify(await ask("GET", "/v1/tools"));
    await until(async () => (await names()).includes("mcp__everything__get-sum"), "the server is ready");
    const clients = await Promise.all(MCP_ERAS.map(async (era) => {
      const client = new Client({ name: era, version: "1" }, {
        versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
      });
      const headers = { authorization: `Bearer ${await token("tools")}` };
      const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
      await client.connect(transport as Parameters<Client["connect"]>[0]);
      return client;
    }));
    const call = (client: Client, tool: string, given: Readonly<Record<string, unknown>>, options = {}) =>
      client.callTool({ name: `mcp__everything__${tool}`, arguments: given }, options);
    const [one, two] = clients;
    assert.ok(one !== undefined && two !== undefined);
    const lists = await Promise.all(clients.map(async (client) => (await client.listTools()).tools));
    assert.deepEqual(lists[0]?.map(({ name }) => name), lists[1]?.map(({ name }) => name));

    const sums = await Promise.all(Array.from({ length: 40 }, async (_, a) => {
      const b = a % 2 * 1_000;
      return JSON.stringify((await call(a % 2 === 0 ? one : two, "get-sum", { a, b })).content);
    }));
    assert.deepEqual(sums.map((text, a) => text.includes(` ${a + a % 2 * 1_000}.`)), sums.map(() => true), sums[1]);

    const heard: string[][] = [[], []];
    const long = clients.map((client, at) =>
      call(client, "trigger-long-running-operation", { duration: 0.4, steps: 2 + at }, {
        onprogress: ({ message }: { readonly message?: string }) => heard[at]?.push(message ?? ""),
      })
    );
    const image = await call(one, "get-tiny-image", {});
    assert.deepEqual((image.content as { type: string }[]).map(({ type }) => type), ["text", "image", "text"]);
    const weather = await call(two, "get-structured-content", { location: "Chicago" });
    assert.equal(typeof (weather.structuredContent as { temperature: unknown }).temperature, "number");
    assert.match(JSON.stringify((await Promise.all(long)).map(({ content }) => content)), /Steps: 2.*Steps: 3/);
    assert.deepEqual(heard.map((messages) => messages.length > 0), [true, true]);

    const leaving = new AbortController();
    const left = call(one, "trigger-long-running-operation", { duration: 60, steps: 60 }, { signal: leaving.signal });
    const other = call(two, "trigger-long-running-operation", { duration: 0.4, steps: 2 });
    leaving.abort();
    await assert.rejects(left);
    assert.notEqual((await other).isError, true, "the other client's call goes on");
    await Promise.all(clients.map((client) => client.close()));
    server.closeAllConnections();
    server.close();
  }));

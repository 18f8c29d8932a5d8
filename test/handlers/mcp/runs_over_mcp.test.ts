import assert from "node:assert/strict";
import { test } from "node:test";
import { MCP_ERAS, withMcpGateway } from "../../support/mcp_gateway.ts";
import { until } from "../../support/until.ts";

const textOf = ({ content }: { content?: unknown }) =>
  (content as { text: string }[]).map(({ text }) => text).join("\n");

for (const era of MCP_ERAS) {
  test(`${era}: a token with runs starts a run, reads its answer, and reads and watches the conversation`, async () => {
    await withMcpGateway({}, async ({ connect, token, ask }) => {
      const told: string[] = [];
      const client = await connect({ token: await token("tools", "runs"), era }, (made) => {
        made.setNotificationHandler("notifications/resources/updated", ({ params }) => void told.push(params.uri));
      });
      const { tools } = await client.listTools();
      assert.deepEqual(tools.filter(({ name }) => name.startsWith("run_")).map(({ name }) => name), [
        "run_start",
        "run_status",
      ]);
      const started = await client.callTool({ name: "run_start", arguments: { message: "Hi", conversation_id: "c1" } });
      const { run_id } = started.structuredContent as { run_id: string };
      const ended = await client.callTool({ name: "run_status", arguments: { run_id, wait_secs: 60 } });
      assert.match(textOf(ended), new RegExp(`^Run ${run_id} is completed\n\n.`));
      const { data } = await ask("GET", "/v1/audit?limit=200") as { data: unknown[] };
      assert.ok(JSON.stringify(data).includes("echo") === false, "nothing else was called");

      const { resources } = await client.listResources();
      const uri = "postern://conversations/c1";
      assert.deepEqual(resources.map((resource) => resource.uri), [uri]);
      assert.deepEqual((await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate), [
        "postern://conversations/{id}",
      ]);
      const { contents: [read] } = await client.readResource({ uri });
      const { messages } = JSON.parse((read as { text: string }).text) as { messages: { role: string }[] };
      assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant"]);
      for (const absent of ["postern://conversations/none", "postern://conversations/%ff", "file:///etc/passwd"]) {
        await assert.rejects(client.readResource({ uri: absent }), { code: -32602 });
      }
      if (era === "2025-11-25") {
        await client.subscribeResource({ uri });
        await ask("POST", "/v1/conversations/c1", { title: "Renamed" });
        const more = await client.callTool({ name: "run_start", arguments: { message: "Hi", conversation_id: "c1" } });
        const { run_id: next } = more.structuredContent as { run_id: string };
        await client.callTool({ name: "run_status", arguments: { run_id: next, wait_secs: 60 } });
        await until(() => told.includes(uri));
        await client.unsubscribeResource({ uri });
      }
    });
  });

  test(`${era}: a token without runs sees neither runs nor conversations`, async () => {
    await withMcpGateway({}, async ({ connect, token }) => {
      const client = await connect({ token: await token("tools"), era });
      const { tools } = await client.listTools();
      assert.ok(!tools.some(({ name }) => name.startsWith("run_")));
      assert.equal(client.getServerCapabilities()?.resources, undefined);
      await assert.rejects(
        client.callTool({ name: "run_start", arguments: { message: "Hi" } }),
        /lacks the scope "runs"/,
      );
      await assert.rejects(client.request({ method: "resources/list" }), /Method not found|not support/);
    });
  });
}

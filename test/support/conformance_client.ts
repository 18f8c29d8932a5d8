/**
 * Client of MCP for the official conformance suite: Postern's own connections, with a server by the address in the last argument. It lists
 * what the server has and calls each tool.
 */
import process from "node:process";
import type { ElicitRequest } from "@modelcontextprotocol/client";
import type { McpToolDefinition } from "../../lib/extensions/mcp/mcp_connection.ts";
import { NEVER, withMcp } from "./mcp_bench.ts";

const url = process.argv.at(-1) ?? "";
const context: { readonly toolCalls?: readonly { readonly name: string; readonly arguments: object }[] } = JSON.parse(
  process.env["MCP_CONFORMANCE_CONTEXT"] ?? "{}",
);

await withMcp({ servers: { one: { url } } }, async ({ server }) => {
  const one = server();
  const tools = await one.freshTools(NEVER);
  await Promise.allSettled([one.prompts(NEVER), one.resources(NEVER)]);
  const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: sampleOf(tool) }));
  for (const { name, arguments: input } of calls) {
    await one.request("tools/call", { name, arguments: { ...input } }, { signal: NEVER, onElicit: accept })
      .catch((error: unknown) => console.error(String(error)));
  }
  const [prompts, resources] = await Promise.all([
    one.prompts(NEVER).catch(() => []),
    one.resources(NEVER).catch(() => []),
  ]);
  for (const { name } of prompts) {
    await one.request("prompts/get", { name }, { signal: NEVER }).catch((error: unknown) =>
      console.error(String(error))
    );
  }
  for (const { uri } of resources) {
    await one.request("resources/read", { uri }, { signal: NEVER })
      .catch((error: unknown) => console.error(String(error)));
  }
});

/** Returns arguments by the types of the schema. */
function sampleOf({ inputSchema }: McpToolDefinition): object {
  const properties = inputSchema["properties"] ?? {};
  const samples: Readonly<Record<string, unknown>> = { number: 2, integer: 2, boolean: true, array: [], object: {} };
  return Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => {
      const type = typeof schema === "object" && schema !== null && "type" in schema ? String(schema.type) : "string";
      return [name, samples[type] ?? "text"];
    }),
  );
}

/** Answers a question with the defaults of its form, as a person does who accepts them. */
function accept(params: ElicitRequest["params"]) {
  const properties = "requestedSchema" in params ? params.requestedSchema.properties : {};
  const content = Object.fromEntries(
    Object.entries(properties).flatMap(([name, field]) => ("default" in field ? [[name, field.default]] : [])),
  );
  return Promise.resolve({ action: "accept" as const, content: content as Record<string, string> });
}

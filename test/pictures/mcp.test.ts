import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool } from "../../handlers/mod.ts";
import { type McpGateway, withMcpGateway } from "../support/mcp_gateway.ts";
import { comparePicture, regular } from "./picture.ts";

const NAME = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const greet = defineTool({
  name: "greet",
  description: "Asks for a name and greets",
  access: "read",
  outside: false,
  inputSchema: { type: "object", properties: {}, additionalProperties: false },
  clientNeeds: ["form"],
  execute: async (_input, { ask }) => JSON.stringify(await ask({ message: "Who is there?", schema: NAME })),
});
const echo = defineTool<{ readonly text: string }>({
  name: "echo",
  description: "Returns the text",
  access: "read",
  outside: false,
  inputSchema: {
    type: "object",
    properties: { text: { type: "string" } },
    required: ["text"],
    additionalProperties: false,
  },
  execute: ({ text }) => text,
});
const OPTIONS = {
  tools: [echo, greet],
  config: {
    autonomy: { level: "supervised" as const },
    security: { write_file: { enabled: true } },
    mcp: { server: { tools: ["echo", "greet", "read_file", "write_file"] } },
  },
};
const WRITE = { name: "write_file", arguments: { path: "note.txt", content: "Hi" } };
const GREET = { name: "greet", arguments: {} };
const ANSWER = { action: "accept", content: { name: "Ann" } };
const CLIENT = { capabilities: { elicitation: { form: {} } }, clientInfo: { name: "test", version: "1" } };

type Fields = Readonly<Record<string, unknown>>;

/** Sends what a client sends, and notes it and what comes back as it goes over the wire: requests without what every one of the era has. */
function noted({ send, folder }: McpGateway) {
  const regularOf = regular(folder);
  const same = (text: string) => regularOf(text).replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>");
  const lines: string[] = [];
  return {
    lines,
    note: (text: string) =>
      lines.push(...text.split("\n").filter((line) => line !== "").map((line) => `< ${same(line)}`)),
    async post(
      body: Fields,
      { more = {}, ...init }: {
        readonly method?: string;
        readonly headers: Readonly<Record<string, string>>;
        readonly more?: Fields;
      },
    ) {
      lines.push(`> ${same(JSON.stringify(body))}`);
      const params = { ...body["params"] as Fields | undefined, ...more };
      const reply = await send({ ...init, body: Object.keys(params).length === 0 ? body : { ...body, params } });
      const facts = [reply.status, reply.headers.get("content-type"), reply.headers.get("mcp-session-id")];
      lines.push(same(facts.filter((fact) => fact !== null).join(" ")));
      return reply;
    },
  };
}

/** Makes the calls that both eras make in one way: of a tool, with an approval, of a path that is refused, of no tool and of no method. */
async function callAll(
  gateway: McpGateway,
  request: (method: string, params?: Fields) => Promise<unknown>,
): Promise<void> {
  await request("tools/list");
  await request("tools/call", { name: "echo", arguments: { text: "Hi" } });
  await request("tools/call", WRITE);
  const { data } = await gateway.ask("GET", "/v1/approvals?status=pending") as { data: readonly { id: string }[] };
  assert.equal(data.length, 1);
  await gateway.ask("POST", `/v1/approvals/${data[0]?.id}`, { decision: "approve" });
  await request("tools/call", WRITE);
  await request("tools/call", { name: "read_file", arguments: { path: "../secret" } });
  await request("tools/call", { name: "none", arguments: {} });
  await request("none/such");
}

test("mcp_2025.txt shows a session with a tool, an approval, a question to the client, and failures", () =>
  withMcpGateway(OPTIONS, async (gateway) => {
    const { lines, note, post } = noted(gateway);
    let id = 0;
    let headers: Readonly<Record<string, string>> = {};
    const send = async (body: Fields) => await post({ jsonrpc: "2.0", ...body }, { headers });
    const request = async (method: string, params?: Fields) => {
      const reply = await send({ id: ++id, method, ...(params === undefined ? {} : { params }) });
      const question = /"elicitation\/create".*"id":(\d+)/;
      for await (const text of (reply.body ?? new Blob([]).stream()).pipeThrough(new TextDecoderStream())) {
        note(text);
        const asked = question.exec(text)?.[1];
        if (asked !== undefined) await send({ id: Number(asked), result: ANSWER });
      }
      return reply;
    };
    const opened = await request("initialize", { protocolVersion: "2025-11-25", ...CLIENT });
    headers = { "mcp-session-id": opened.headers.get("mcp-session-id") ?? "" };
    await send({ method: "notifications/initialized" });
    await callAll(gateway, request);
    await request("tools/call", GREET);
    comparePicture("mcp_2025.txt", lines);
  }));

test("mcp_2026.txt shows the same without a session", () =>
  withMcpGateway(OPTIONS, async (gateway) => {
    const { lines, note, post } = noted(gateway);
    let id = 0;
    const _meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": CLIENT.clientInfo,
      "io.modelcontextprotocol/clientCapabilities": CLIENT.capabilities,
    };
    const request = async (method: string, params: Fields = {}) => {
      const name: Readonly<Record<string, string>> = "name" in params ? { "mcp-name": String(params["name"]) } : {};
      const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...name };
      const reply = await post({ jsonrpc: "2.0", id: ++id, method, params }, { headers, more: { _meta } });
      const text = await reply.text();
      note(text);
      return text;
    };
    await request("server/discover");
    await callAll(gateway, request);
    const requestState = /"requestState":"([^"]+)"/.exec(await request("tools/call", GREET))?.[1];
    await request("tools/call", { ...GREET, requestState, inputResponses: { question_1: ANSWER } });
    comparePicture("mcp_2026.txt", lines);
  }));

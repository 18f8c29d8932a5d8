import type { ContentBlock, Prompt, Resource, ResourceTemplateType } from "@modelcontextprotocol/client";
import { ToolError } from "../../base/errors.ts";
import { exactLine } from "../../base/text.ts";
import type { McpReader, ReadContext } from "../../tools/mcp/mcp_reader.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import { showContent } from "../../tools/runtime/tool_content.ts";
import { answerQuestions } from "./answer_server.ts";
import { READER } from "./call_result.ts";
import type { McpConnection } from "./mcp_connection.ts";
import type { McpServers } from "./mcp_servers.ts";

/** Entries of one list that are shown, and characters of one entry. */
const MAX_SHOWN = 200;
const MAX_LABEL = 500;

/** The reader of prompts and resources. */
export class ServerReader implements McpReader {
  readonly #servers: () => McpServers | undefined;
  readonly #redact: (text: string) => string;

  constructor(servers: () => McpServers | undefined, redact: (text: string) => string) {
    this.#servers = servers;
    this.#redact = redact;
  }

  async prompts(server: string | undefined, { signal }: ReadContext): Promise<ToolResult> {
    return await this.#list(server, async (connection) => (await connection.prompts(signal)).map(promptLine));
  }

  async prompt(
    { server, name, values }: Parameters<McpReader["prompt"]>[0],
    context: ReadContext,
  ): Promise<ToolResult> {
    const connection = this.#require(server);
    const params = { name, arguments: { ...values } };
    const { messages, description } = await connection.request("prompts/get", params, this.#options(server, context));
    const shown = messages.map(({ role, content }) => {
      const { output, pictures } = showContent([content as ContentBlock], { sees: context.sees, reader: READER }); // messages have the blocks of results
      return { output: `${role}: ${output}`, pictures };
    });
    const about = description === undefined ? [] : [label(description)];
    return toResult([...about, ...shown.map(({ output }) => output)], shown.flatMap(({ pictures }) => pictures));
  }

  async resources(server: string | undefined, { signal }: ReadContext): Promise<ToolResult> {
    return await this.#list(server, async (connection) => [
      ...(await connection.resources(signal)).map(resourceLine),
      ...(await connection.resourceTemplates(signal)).map(templateLine),
    ]);
  }

  async resource({ server, uri }: Parameters<McpReader["resource"]>[0], context: ReadContext): Promise<ToolResult> {
    const connection = this.#require(server);
    const { contents } = await connection.request("resources/read", { uri }, this.#options(server, context));
    const blocks = contents.map((resource) => ({ type: "resource", resource }) satisfies ContentBlock);
    const { output, pictures } = showContent(blocks, { sees: context.sees, reader: READER });
    return toResult([output], pictures);
  }

  #options(server: string, context: ReadContext) {
    const { signal, runId } = context;
    return { signal, owner: runId, ...answerQuestions({ server, redact: this.#redact }, context) };
  }

  /** Lists something of one server, or of all. A server that fails does not hide the others. */
  async #list(
    server: string | undefined,
    linesOf: (connection: McpConnection) => Promise<readonly string[]>,
  ): Promise<ToolResult> {
    if (server !== undefined) return toResult(await this.#shown(this.#require(server), linesOf));
    const lists = await Promise.all((this.#servers()?.list() ?? []).map(async (connection) => {
      try {
        return await this.#shown(connection, linesOf);
      } catch (error) {
        if (error instanceof ToolError) return [`${connection.name}: ${error.message}`];
        throw error;
      }
    }));
    return toResult(lists.flat());
  }

  async #shown(
    connection: McpConnection,
    linesOf: (connection: McpConnection) => Promise<readonly string[]>,
  ): Promise<readonly string[]> {
    const lines = await linesOf(connection);
    const rest = lines.length - MAX_SHOWN;
    return [
      `${connection.name}: ${lines.length === 0 ? "none" : lines.length}`,
      ...lines.slice(0, MAX_SHOWN),
      ...(rest > 0 ? [`... and ${rest} more`] : []),
    ];
  }

  #require(server: string): McpConnection {
    const connection = this.#servers()?.get(server);
    if (connection !== undefined) return connection;
    const names = (this.#servers()?.list() ?? []).map(({ name }) => name).join(", ");
    const which = names === "" ? "[security.mcp] allowed_servers allows none" : `those that may be used are ${names}`;
    throw new ToolError("mcp_unavailable", `Cannot find the MCP server ${JSON.stringify(server)}: ${which}`);
  }
}

function promptLine({ name, title, description, arguments: given = [] }: Prompt): string {
  const values = given.map((one) => `${label(one.name)}${one.required === true ? " (required)" : ""}`).join(", ");
  return `- ${label(name)}${values === "" ? "" : ` [${values}]`}${about(title, description)}`;
}

function resourceLine({ uri, name, title, description, mimeType }: Resource): string {
  return `- ${label(uri)} "${label(name)}"${mimeType === undefined ? "" : ` ${label(mimeType)}`}${
    about(title, description)
  }`;
}

function templateLine({ uriTemplate, name, title, description }: ResourceTemplateType): string {
  return `- ${label(uriTemplate)} "${label(name)}" (a template)${about(title, description)}`;
}

function about(title: string | undefined, description: string | undefined): string {
  const words = [title, description].filter((text) => text !== undefined).map(label).join(". ");
  return words === "" ? "" : `: ${words}`;
}

function label(words: string): string {
  return exactLine(words.length > MAX_LABEL ? `${words.slice(0, MAX_LABEL)}...` : words);
}

function toResult(lines: readonly string[], pictures: ToolResult["pictures"] = []): ToolResult {
  return { output: lines.join("\n"), isError: false, ...(pictures.length === 0 ? {} : { pictures }) };
}

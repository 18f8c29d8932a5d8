import {
  Client,
  deserializeMessage,
  type JSONRPCMessage,
  serializeMessage,
  type Transport,
} from "@modelcontextprotocol/client";
import type { ChildProcess } from "node:child_process";
import type { CliMachine } from "../../../support/cli_process.ts";
import type { McpEra } from "../../../support/mcp_gateway.ts";

/** A client of MCP whose server is a command of the machine. */
export interface McpProcess {
  readonly client: Client;
  readonly child: ChildProcess;
  /** Closes the input of the command. @returns how it ended */
  end(): ReturnType<CliMachine["run"]>;
}

/** Starts a command and speaks MCP to it over its standard input and output. */
export async function connectProcess(
  machine: CliMachine,
  argv: readonly string[],
  era: McpEra,
  env?: Readonly<Record<string, string>>,
): Promise<McpProcess> {
  const { child, ended } = machine.spawn(argv, undefined, env);
  const client = new Client({ name: "test", version: "1" }, {
    versionNegotiation: { mode: era === "2025-11-25" ? "legacy" : { pin: era } },
  });
  await client.connect(toTransport(child));
  return {
    client,
    child,
    async end() {
      await client.close();
      return await ended;
    },
  };
}

function toTransport(child: ChildProcess): Transport {
  let rest = "";
  const transport: Transport = {
    start() {
      child.stdout?.on("data", (part: Buffer) => {
        const lines = `${rest}${part.toString("utf8")}`.split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) transport.onmessage?.(deserializeMessage(line));
      });
      child.once("close", () => transport.onclose?.());
      return Promise.resolve();
    },
    send(message: JSONRPCMessage) {
      child.stdin?.write(serializeMessage(message));
      return Promise.resolve();
    },
    close() {
      child.stdin?.end();
      return Promise.resolve();
    },
  };
  return transport;
}

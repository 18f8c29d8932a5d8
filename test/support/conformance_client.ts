/**
 * Client of MCP for the official conformance suite: Postern's own connections and sign-ins, with a server by the address in the last
 * argument. It lists what the server has and calls each tool. Where an error says which command signs in, it does what that command does,
 * with a browser that follows each redirect.
 */
import process from "node:process";
import type { ElicitRequest } from "@modelcontextprotocol/client";
import type { McpToolDefinition } from "../../lib/extensions/mcp/mcp_connection.ts";
import { McpError } from "../../lib/extensions/mcp/mcp_error.ts";
import { openLoopbackRedirect } from "../../lib/system/net/loopback_redirect.ts";
import { type McpBench, NEVER, withMcp } from "./mcp_bench.ts";

/** Facts that the suite hands over: calls to make, and the client that a person registered at the authorization server. */
interface SuiteContext {
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: object }[];
  readonly client_id?: string;
  readonly client_secret?: string;
  readonly issuer?: string;
}

const url = process.argv.at(-1) ?? "";
const context: SuiteContext = JSON.parse(process.env["MCP_CONFORMANCE_CONTEXT"] ?? "{}");
const scenario = process.env["MCP_CONFORMANCE_SCENARIO"] ?? "";
/** Document that the suite expects of clients that have one */
const DOCUMENT = "https://conformance-test.local/client-metadata.json";
/** Sign-ins that a person is patient enough for. */
const MAX_SIGN_INS = 3;
const WAYS_OUT = /postern mcp login one(?: --scope "([^"]+)")?/;

const config = {
  // The suite's authorization servers are on other ports of this machine
  url_access: { allow_loopback: true },
  mcp: { client_metadata_url: DOCUMENT, servers: { one: { url, ...oauthOf(context) } } },
};
const environment = context.client_secret === undefined ? {} : { CLIENT_SECRET: context.client_secret };
const secrets = { client: { env: "CLIENT_SECRET", hosts: ["localhost"], mcp: ["one"] } };

await withMcp({ servers: config.mcp.servers }, async (bench) => {
  const one = bench.server();
  const person = createPerson(bench);
  const tools = await person.patiently(() => one.freshTools(NEVER));
  await Promise.allSettled([one.prompts(NEVER), one.resources(NEVER)]);
  const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: sampleOf(tool, tools) }));
  for (const { name, arguments: input } of calls) {
    const params = { name, arguments: { ...input } };
    await person.patiently(() => one.request("tools/call", params, { signal: NEVER, onElicit: accept }))
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
}, { config: { ...config, ...context.client_secret === undefined ? {} : { secrets } }, environment });

/** Returns the keys of `[mcp.servers.one]` that a person enters for a client that is registered. */
function oauthOf({ client_id, client_secret, issuer }: SuiteContext): object {
  if (client_id === undefined) return {};
  const grant = scenario.startsWith("auth/client-credentials") ? { grant: "client_credentials" } : {};
  // A variable needs the issuer that its value may go to; a secret names its hosts itself
  const named = issuer === undefined ? { client_secret: "client" } : { client_secret_env: "CLIENT_SECRET", issuer };
  return { oauth: { client_id, ...client_secret === undefined ? {} : named, ...grant } };
}

/** Creates a person who signs in when an error says so, and then tries again. */
function createPerson({ signIn }: McpBench) {
  let signedIn = 0;
  const login = async (scope: string) => {
    const redirect = await openLoopbackRedirect();
    try {
      const { authorizationUrl, state } = await signIn.begin("one", { redirectUri: redirect.uri, scope, clientId: "" });
      const answer = redirect.answer(state);
      // The browser: a redirect leads it to the port that waits
      await (await fetch(authorizationUrl)).text();
      const { code, iss, error } = Object.fromEntries(await answer);
      await signIn.complete("one", { state, code, iss, error }, { via: "cli", tokenId: null });
    } finally {
      await redirect.close();
    }
  };
  return {
    async patiently<T>(work: () => Promise<T>): Promise<T> {
      for (;;) {
        try {
          return await work();
        } catch (error) {
          const way = error instanceof McpError ? WAYS_OUT.exec(error.message) : null;
          if (way === null || signedIn++ === MAX_SIGN_INS) throw error;
          console.error(String(error));
          await login(way[1] ?? "");
        }
      }
    },
  };
}

/** Returns arguments by the types of the schema. The object at hand is the first tool's schema, which the suite wants to see again. */
function sampleOf({ inputSchema }: McpToolDefinition, [first]: readonly McpToolDefinition[]): object {
  const properties = inputSchema["properties"] ?? {};
  const object = first?.inputSchema ?? {};
  const samples: Readonly<Record<string, unknown>> = { number: 2, integer: 2, boolean: true, array: [], object };
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

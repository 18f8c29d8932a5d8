import type { Client, DiscoverResult, JSONRPCMessage } from "@modelcontextprotocol/client";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { VERSION } from "../../base/version.ts";
import { loadSdk, type McpClientSdk } from "./load_sdk.ts";
import { McpError } from "./mcp_error.ts";
import { ServerSession, type ServerSessionOptions } from "./server_session.ts";
import { type McpServerSettings, notStarted, type ProgramPlaces, startProgram } from "./start_program.ts";
import { StdioTransport } from "./stdio_transport.ts";

/** Era of a server as a session found it out, for the next session. */
export type EraVerdict = { readonly kind: "legacy" } | { readonly kind: "modern"; readonly discover: DiscoverResult };

/** Options of `openSession`. */
export interface OpenSessionOptions extends Pick<ServerSessionOptions, "onEvent" | "onLog"> {
  readonly name: string;
  readonly settings: McpServerSettings;
  readonly clock: Clock;
  readonly places: ProgramPlaces;
  /** Era that an earlier session found out. Undefined: it is found out now */
  readonly verdict: EraVerdict | undefined;
  /** Takes the error output of the program. */
  readonly onErrors: (chunk: Uint8Array) => void;
  /** Returns the end of the error output, as the rest of a sentence. */
  readonly lastWords: () => string;
  /** Called when the session ends by itself, with the reason as the rest of a sentence about the server. */
  readonly onEnd: (reason: string) => void;
  /** Aborts when the start takes too long or nobody wants it any more. */
  readonly signal: AbortSignal;
}

/** A session, and the era that it speaks. */
export interface OpenedSession {
  readonly session: ServerSession;
  readonly verdict: EraVerdict;
}

/** Revision of the protocol that the first question to a server names. */
const MODERN = "2026-07-28";
/** Milliseconds for the answer to the first question. A program that is silent is a server of the old era. */
const PROBE_MS = 5_000;
const CLIENT = { name: "postern", title: "Postern", version: VERSION };
const CAPABILITIES = { elicitation: { form: {}, url: {} } };

/** Opens a session with the program of a server. @throws {McpError} {CancelError} when the signal aborts */
export async function openSession(options: OpenSessionOptions): Promise<OpenedSession> {
  const { name, verdict, signal } = options;
  const sdk = await loadSdk(name);
  let transport = await startTransport(options);
  try {
    if (verdict !== undefined) return await connect(transport, verdict, { ...options, sdk });
    const found = await probe(transport, sdk, options);
    if (found !== "gone") return await connect(transport, found, { ...options, sdk });
    // Servers of the old era may end, or say nothing, where they are asked something before `initialize`
    await transport.close();
    if (signal.aborted) throw cancelError(signal);
    transport = await startTransport(options);
    return await connect(transport, { kind: "legacy" }, { ...options, sdk });
  } catch (error) {
    const { fault } = transport;
    await transport.close();
    if (signal.aborted) throw cancelError(signal);
    if (error instanceof McpError && error.code !== "mcp_lost") throw error;
    const reason = fault ?? (error instanceof Error ? error.message : String(error));
    throw notStarted(name, `${reason} before its session began${options.lastWords()}`, error);
  }
}

async function startTransport(options: OpenSessionOptions): Promise<StdioTransport> {
  const { name, clock, onErrors, onLog } = options;
  const program = await startProgram(options, options.places);
  program.stderr.on("data", onErrors);
  program.stderr.on("error", () => {});
  const onNoise = (line: Uint8Array) => onLog(new TextDecoder().decode(line.subarray(0, 2_000)));
  return new StdioTransport(program, { server: name, clock, onNoise });
}

/** Asks for the era. "gone": the program ended or is silent. */
async function probe(
  transport: StdioTransport,
  sdk: McpClientSdk,
  { clock, signal }: OpenSessionOptions,
): Promise<EraVerdict | "gone"> {
  const { promise, resolve } = Promise.withResolvers<JSONRPCMessage | "gone">();
  transport.onmessage = (message) => {
    if (!("method" in message)) resolve(message);
  };
  transport.onclose = () => resolve("gone");
  const onAbort = () => resolve("gone");
  const timer = clock.after(PROBE_MS, onAbort);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    await transport.start();
    await transport.send({
      jsonrpc: "2.0",
      id: "server-discover-probe",
      method: "server/discover",
      params: {
        _meta: {
          [sdk.PROTOCOL_VERSION_META_KEY]: MODERN,
          [sdk.CLIENT_INFO_META_KEY]: CLIENT,
          [sdk.CLIENT_CAPABILITIES_META_KEY]: CAPABILITIES,
        },
      },
    }).catch(() => resolve("gone"));
    const answer = await promise;
    if (signal.aborted) throw cancelError(signal);
    return answer === "gone" ? "gone" : verdictOf(answer);
  } finally {
    timer.clear();
    signal.removeEventListener("abort", onAbort);
    delete transport.onmessage;
    delete transport.onclose;
  }
}

function verdictOf(answer: JSONRPCMessage): EraVerdict {
  if (!("result" in answer)) return { kind: "legacy" };
  const { supportedVersions } = answer.result;
  const isModern = Array.isArray(supportedVersions) && supportedVersions.includes(MODERN);
  // The SDK checks the rest of it
  return isModern ? { kind: "modern", discover: answer.result as DiscoverResult } : { kind: "legacy" };
}

async function connect(
  transport: StdioTransport,
  verdict: EraVerdict,
  { name, settings, sdk, clock, signal, onEvent, onLog, onEnd }: OpenSessionOptions & { readonly sdk: McpClientSdk },
): Promise<OpenedSession> {
  const client = createClient(sdk);
  const session = new ServerSession(client, {
    ...{ server: name, sdk, clock, onEvent, onLog },
    timeoutMs: settings.timeout_secs * 1000,
    fault: () => transport.fault,
  });
  if (settings.sampling && verdict.kind === "legacy") session.allowSampling();
  client.onclose = () => onEnd(transport.fault ?? "its session ended");
  await client.connect(transport, { prior: verdict, signal, timeout: 2_147_483_647 });
  return { session, verdict };
}

function createClient(sdk: McpClientSdk): Client {
  return new sdk.Client(CLIENT, {
    capabilities: CAPABILITIES,
    // Results are checked by whoever shows them: the SDK's own check would compile a stranger's schema into code
    jsonSchemaValidator: {
      getValidator: () => (value) => ({ valid: true, data: value as never, errorMessage: undefined }),
    },
  });
}

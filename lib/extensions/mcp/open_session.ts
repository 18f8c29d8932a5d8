import type { Client } from "@modelcontextprotocol/client";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { VERSION } from "../../base/version.ts";
import { HttpTransport, type ServerSignIn } from "./http_transport.ts";
import { loadSdk, type McpClientSdk } from "./load_sdk.ts";
import { foreignWords, McpError } from "./mcp_error.ts";
import { mendResult } from "./mend_reply.ts";
import type { MendResult } from "./message_filter.ts";
import { speaksSseAlone, transportNotSpoken } from "./old_transport.ts";
import { OutputBrake } from "./output_brake.ts";
import { type EraVerdict, probeProgram } from "./probe_program.ts";
import { createServerFetch, type FetchServices } from "./server_fetch.ts";
import { SDK_TIMEOUT_MS, ServerSession, type ServerSessionOptions } from "./server_session.ts";
import { notReached, toStartError } from "./session_error.ts";
import { type McpServerSettings, notStarted, type ProgramPlaces, startProgram, watchServer } from "./start_program.ts";
import { StdioTransport } from "./stdio_transport.ts";

/** Services that a session needs: for a program, and for a server by `url`. */
export interface SessionServices extends ProgramPlaces, FetchServices {
  /** Sign-in to servers by `url`. Default: requests go without a token */
  readonly signIn?: ServerSignIn | undefined;
}

/** Options of `openSession`. */
export interface OpenSessionOptions extends Pick<ServerSessionOptions, "onEvent" | "onLog"> {
  readonly name: string;
  readonly settings: McpServerSettings;
  readonly clock: Clock;
  readonly services: SessionServices;
  /** Era that an earlier session found out. Undefined: it is found out now */
  readonly verdict: EraVerdict | undefined;
  /** Takes the error output of the program. */
  readonly onErrors: (chunk: Uint8Array) => void;
  /** Returns the end of the error output, as the rest of a sentence. */
  readonly lastWords: () => string;
  /** Runs when the session ends by itself, with the reason as the rest of a sentence about the server. */
  readonly onEnd: (reason: string) => void;
  /** Aborts when the start takes too long or nobody wants it any more. */
  readonly signal: AbortSignal;
}

/** A session, and the era that it speaks. */
export interface OpenedSession {
  readonly session: ServerSession;
  readonly verdict: EraVerdict;
}

/** Bytes of error output that are taken in 100 ms. */
const MAX_ERROR_BYTES = 262_144;
const CLIENT = { name: "postern", title: "Postern", version: VERSION };
const CAPABILITIES = { elicitation: { form: {}, url: {} } };

/** Opens a session with a server. @throws {McpError} {CancelError} when the signal aborts */
export async function openSession(options: OpenSessionOptions): Promise<OpenedSession> {
  const sdk = await loadSdk(options.name);
  const opened = options.settings.url === "" ? await openProgram(options, sdk) : await openRemote(options, sdk);
  await opened.session.subscribe(options.signal);
  return opened;
}

/** Opens a session with a program. What the program writes to the workspace meanwhile is marked, as during each request. */
async function openProgram(options: OpenSessionOptions, sdk: McpClientSdk): Promise<OpenedSession> {
  const watch = () => watchServer(options, options.services);
  const written = await watch();
  try {
    return await openWatched({ ...options, watch }, sdk);
  } finally {
    await written.after();
  }
}

type WatchedOptions = OpenSessionOptions & Pick<ServerSessionOptions, "watch">;

async function openWatched(options: WatchedOptions, sdk: McpClientSdk): Promise<OpenedSession> {
  const { name, verdict, clock, signal } = options;
  let transport = await startTransport(options, sdk);
  try {
    if (verdict !== undefined) return await connect(transport, verdict, options, sdk);
    const found = await probeProgram(transport, { sdk, client: CLIENT, capabilities: CAPABILITIES, clock, signal });
    if (found !== "gone") return await connect(transport, found, options, sdk);
    // Servers of the old era may end, or say nothing, where they are asked something before `initialize`
    await transport.close();
    if (signal.aborted) throw cancelError(signal);
    transport = await startTransport(options, sdk);
    return await connect(transport, { kind: "legacy" }, options, sdk);
  } catch (error) {
    const { fault } = transport;
    await transport.close();
    if (signal.aborted) throw cancelError(signal);
    if (error instanceof McpError && error.code !== "mcp_lost") throw error;
    const reason = fault ?? foreignWords(messageOf(error));
    throw notStarted(name, `${reason} before its session began${options.lastWords()}`, error);
  }
}

async function startTransport(options: OpenSessionOptions, sdk: McpClientSdk): Promise<StdioTransport> {
  const { name, clock, onErrors, onLog } = options;
  const program = await startProgram(options, options.services);
  const brake = new OutputBrake(program.stderr, { clock, most: MAX_ERROR_BYTES });
  program.stderr.on("data", (chunk: Uint8Array) => {
    onErrors(chunk);
    brake.take(chunk.length);
  });
  program.stderr.once("close", () => brake.release());
  program.stderr.on("error", () => {});
  const onNoise = (line: Uint8Array) => onLog(new TextDecoder().decode(line.subarray(0, 2_000)));
  const mend: MendResult = (method, result) => mendResult(method, result, sdk.isSpecType);
  return new StdioTransport(program, { server: name, clock, onNoise, mend });
}

async function openRemote(options: OpenSessionOptions, sdk: McpClientSdk): Promise<OpenedSession> {
  const { name, settings, verdict, services, clock, signal } = options;
  const fetch = createServerFetch({ name, settings }, services);
  const server = { name, url: new URL(settings.url), fetch };
  const auth = await services.signIn?.provider(server);
  const hasHeaders = Object.keys(settings.headers).length > 0;
  const open = async (prior: EraVerdict | undefined): Promise<OpenedSession> => {
    const transport = new HttpTransport({ ...server, sdk, clock, auth });
    // The SDK's own question for the era cannot be cancelled otherwise
    const onAbort = () => void transport.close();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await connect(transport, prior, options, sdk);
    } catch (error) {
      const { fault } = transport;
      await transport.close();
      throw toStartError(error, { server: name, sdk, hasHeaders, fault: () => fault });
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  };
  try {
    const opened = await open(verdict);
    if (!settings.sampling || verdict !== undefined || opened.verdict.kind !== "legacy") return opened;
    // The era decides whether the server may ask a model, and the SDK says so when it connects
    await opened.session.close();
    return await open(opened.verdict);
  } catch (error) {
    if (signal.aborted) throw cancelError(signal);
    // Such a server has nothing for a POST at the address of its stream
    const { status = 0 } = error instanceof McpError && error.cause instanceof sdk.SdkHttpError ? error.cause : {};
    const isOld = [400, 404, 405].includes(status) && await speaksSseAlone(server.url, { fetch, clock, signal });
    if (signal.aborted) throw cancelError(signal);
    throw isOld ? notReached(name, transportNotSpoken("sse"), error) : error;
  }
}

/** @param verdict undefined: the SDK asks for the era */
async function connect(
  transport: StdioTransport | HttpTransport,
  verdict: EraVerdict | undefined,
  { name, settings, clock, signal, watch, onEvent, onLog, onEnd }: WatchedOptions,
  sdk: McpClientSdk,
): Promise<OpenedSession> {
  const client = createClient(sdk);
  const session = new ServerSession(client, {
    ...{ server: name, sdk, clock, watch, onEvent, onLog },
    timeoutMs: settings.timeout_secs * 1000,
    fault: () => transport.fault,
  });
  if (settings.sampling && verdict?.kind === "legacy") session.allowSampling();
  client.onclose = () => {
    session.ended();
    onEnd(transport.fault ?? "its session ended");
  };
  const prior = verdict === undefined ? {} : { prior: verdict };
  await client.connect(transport, { ...prior, signal, timeout: SDK_TIMEOUT_MS });
  const discover = client.getDiscoverResult();
  return { session, verdict: discover === undefined ? { kind: "legacy" } : { kind: "modern", discover } };
}

function createClient(sdk: McpClientSdk): Client {
  return new sdk.Client(CLIENT, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: "auto", probe: { timeoutMs: SDK_TIMEOUT_MS } },
    inputRequired: { autoFulfill: false },
    // Results are checked by whoever shows them: the SDK's own check would compile a stranger's schema into code
    jsonSchemaValidator: {
      getValidator: () => (value) => ({ valid: true, data: value as never, errorMessage: undefined }),
    },
  });
}

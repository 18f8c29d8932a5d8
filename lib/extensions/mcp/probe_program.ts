import type { ClientCapabilities, DiscoverResult, Implementation, JSONRPCMessage } from "@modelcontextprotocol/client";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import type { McpClientSdk } from "./load_sdk.ts";
import type { StdioTransport } from "./stdio_transport.ts";

/** Era of a server as a session found it out, for the next session. */
export type EraVerdict = { readonly kind: "legacy" } | { readonly kind: "modern"; readonly discover: DiscoverResult };

/** Options of `probeProgram`. */
export interface ProbeOptions {
  readonly sdk: McpClientSdk;
  readonly client: Implementation;
  readonly capabilities: ClientCapabilities;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Revision of the protocol that the question names. */
const MODERN = "2026-07-28";
/** Milliseconds for the answer. A program that is silent is a server of the old era. */
const PROBE_MS = 5_000;

/**
 * Asks a program for its era, before the SDK has its transport.
 * @returns "gone" for a program that ended or is silent: it is of no use any more
 * @throws {CancelError} when the signal aborts
 */
export async function probeProgram(
  transport: StdioTransport,
  { sdk, client, capabilities, clock, signal }: ProbeOptions,
): Promise<EraVerdict | "gone"> {
  const { promise, resolve } = Promise.withResolvers<JSONRPCMessage | "gone">();
  const giveUp = () => resolve("gone");
  transport.onmessage = (message) => {
    if (!("method" in message)) resolve(message);
  };
  transport.onclose = giveUp;
  const timer = clock.after(PROBE_MS, giveUp);
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    await transport.start();
    const _meta = {
      [sdk.PROTOCOL_VERSION_META_KEY]: MODERN,
      [sdk.CLIENT_INFO_META_KEY]: client,
      [sdk.CLIENT_CAPABILITIES_META_KEY]: capabilities,
    };
    const question = {
      jsonrpc: "2.0",
      id: "server-discover-probe",
      method: "server/discover",
      params: { _meta },
    } as const;
    await transport.send(question).catch(giveUp);
    const answer = await promise;
    if (signal.aborted) throw cancelError(signal);
    return answer === "gone" ? "gone" : verdictOf(answer);
  } finally {
    timer.clear();
    signal.removeEventListener("abort", giveUp);
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

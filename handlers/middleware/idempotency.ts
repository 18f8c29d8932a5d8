import { createHash } from "node:crypto";
import type { Services } from "../../lib/gateway.ts";
import type { GatewayRequestContext } from "../request_context.ts";
import type { Route } from "../route.ts";
import { httpError } from "../wire/error_codes.ts";
import { errorReply } from "../wire/reply.ts";
import { recordReply, recordText, type ReplyRecording } from "./reply_recording.ts";
import { createReplyStore } from "./reply_store.ts";

export interface Idempotency {
  /** Calls the route's handler, or answers from an earlier call with the same key. @throws {HttpError} 400 invalid_request, 409 idempotency_conflict */
  run(request: Request, context: GatewayRequestContext, route: Route): Response | Promise<Response>;
}

/** A request at work under its key. */
interface Flight {
  readonly fingerprint: string;
  readonly context: GatewayRequestContext;
  readonly recording: Promise<ReplyRecording>;
}

/** What names a request, and what tells whether a repeat is the same. */
interface Claim {
  readonly scope: string;
  readonly fingerprint: string;
}

const KEY = /^[\x21-\x7e]{1,255}$/;

/**
 * `Idempotency-Key` (DESIGN.md section 2): scoped to token, method and path, kept for 24 hours.
 *
 * A repeat during the first attaches to it: JSON waits, an event stream replays from its start. A later repeat gets the stored reply.
 * Stored are replies of executed handlers that succeeded, or failed after an effect: any other failure may be tried again.
 * A reply over 4 MiB is not kept; a repeat of it is told so and never runs twice.
 */
export function createIdempotency(services: Services): Idempotency {
  const flights = new Map<string, Flight>();
  const store = createReplyStore(services);

  async function runOnce(
    request: Request,
    context: GatewayRequestContext,
    route: Route,
    key: string,
  ): Promise<Response> {
    const scope = digest([context.identity?.tokenId ?? "", request.method, context.path, key]);
    // The one header that changes what a request does
    const tools = request.headers.get("x-postern-tools") ?? "";
    const fingerprint = digest([context.target.search, tools, await context.body()]);
    const flight = flights.get(scope);
    if (flight !== undefined) {
      checkSame(flight.fingerprint, fingerprint);
      return join(request, context, flight);
    }
    const recording = start(request, context, route, { scope, fingerprint });
    flights.set(scope, { fingerprint, context, recording });
    recording.catch(() => flights.delete(scope));
    return (await recording).reply(context);
  }

  async function start(
    request: Request,
    context: GatewayRequestContext,
    route: Route,
    claim: Claim,
  ): Promise<ReplyRecording> {
    const { scope, fingerprint } = claim;
    const stored = await store.find(scope);
    if (stored !== undefined) {
      flights.delete(scope);
      checkSame(stored.fingerprint, fingerprint);
      const recording = recordText(stored);
      return { ...recording, reply: recording.replay };
    }
    const reply = await callHandler(request, context, route);
    const kept = reply.ok || reply.headers.get("x-should-retry") === "false";
    const recording = await recordReply(reply);
    recording.ended
      // A stream that every reader left has no whole to keep
      .then((whole) => (kept ? store.keep(scope, { ...whole, fingerprint }) : undefined), () => {})
      .catch((error) => services.log.warn("Reply is not kept for repeats", { request_id: context.requestId, error }))
      .finally(() => flights.delete(scope));
    return recording;
  }

  return {
    run(request, context, route) {
      const key = request.headers.get("idempotency-key");
      if (key === null || route.method !== "POST") return route.handler(request, context);
      if (route.idempotency !== "honoured") throw invalidKey("this route's replies hold a secret and are never kept");
      if (!KEY.test(key)) throw invalidKey("it must have 1-255 visible ASCII characters");
      return runOnce(request, context, route, key);
    },
  };
}

function invalidKey(reason: string) {
  return httpError("invalid_request", `Cannot honour this Idempotency-Key: ${reason}`, { param: "Idempotency-Key" });
}

/** A thrown error is a reply here: whoever waits under the same key is told the same. */
async function callHandler(request: Request, context: GatewayRequestContext, route: Route): Promise<Response> {
  try {
    return await route.handler(request, context);
  } catch (error) {
    return errorReply(context, error);
  }
}

/** While someone waits, the first client's leaving does not stop the work. */
async function join(
  request: Request,
  context: GatewayRequestContext,
  { context: first, recording }: Flight,
): Promise<Response> {
  let following = true;
  const unfollow = () => {
    if (following) first.unfollow();
    following = false;
  };
  first.followers++;
  request.signal.addEventListener("abort", unfollow, { once: true });
  try {
    return (await recording).replay(context);
  } finally {
    request.signal.removeEventListener("abort", unfollow);
    unfollow();
  }
}

function checkSame(first: string, now: string): void {
  if (first === now) return;
  throw httpError("idempotency_conflict", "Cannot repeat this request: its Idempotency-Key was used with another body");
}

function digest(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part).update("\n");
  return hash.digest("hex");
}

import { createHash } from "node:crypto";
import { isEnded, type Run } from "../../lib/base/records/run.ts";
import { refuse } from "../../lib/base/errors.ts";
import { FORMAT_HEADERS } from "../../lib/providers/provider.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { Services } from "../../lib/services.ts";
import type { GatewayRequestContext } from "../request_context.ts";
import type { Handler, Route, RunClaim } from "../route.ts";
import { errorReply } from "../wire/reply.ts";
import { LateOutcomes } from "./late_outcomes.ts";
import {
  createReplyStore,
  type RecordedReply,
  recordReply,
  recordText,
  type ReplyRecording,
  type ReplyStore,
  type StoredClaim,
} from "./reply_store.ts";

/** A request under an idempotency key whose reply is not stored yet. */
interface Flight {
  readonly fingerprint: string;
  readonly context: GatewayRequestContext;
  readonly recording: Promise<ReplyRecording>;
  /** Present when the reply has failed and may be tried again: resolves when the claim is gone, or waits for the database */
  over?: Promise<void>;
  /** True: the request is over, and its claim waits for the database */
  isLate?: boolean;
}

/** Digests that name a request and tell whether a repeat is the same request. */
interface Claim {
  readonly scope: string;
  readonly fingerprint: string;
}

/** Pause between two looks at a request that another gateway handles. Milliseconds */
const LOOK_MS = 500;
const KEY = /^[\x21-\x7e]{1,255}$/;

/**
 * Answers a repeated request under the same `Idempotency-Key` (docs/design/http.md "Idempotency"). The key counts for one token,
 * method and path, for 24 hours.
 *
 * A repeat that comes during the first request attaches to it: JSON waits, an event stream replays from its start. A later repeat gets
 * the stored reply. A reply is stored when the handler succeeded, or failed after an effect. After any other failure the request may be
 * tried again. A reply over 4 MiB is not stored: a repeat reads it from its run, or gets 409 without a run. The handler never runs twice.
 *
 * A claim is on disk before the effect, in the transaction that accepts a run where the route starts one. So a repeat after a crash
 * is answered by that run, by what the route's `repeat` finds of the first one, or by 409 `conflict`: its outcome is unknown.
 */
export class Idempotency {
  readonly #services: Services;
  readonly #store: ReplyStore;
  /** Requests whose reply is not stored yet, by scope */
  readonly #flights = new Map<string, Flight>();
  readonly #late: LateOutcomes;

  constructor(services: Services) {
    this.#services = services;
    this.#late = new LateOutcomes(services);
    const { cluster } = services;
    this.#store = createReplyStore({
      ...services,
      member: cluster.id === undefined ? undefined : { id: cluster.id, own: () => cluster.lease.own() },
    });
  }

  /**
   * Calls the route's handler for the first request with a key, and answers the others from that call.
   * @throws {HttpError} 400 invalid_request, 409 idempotency_conflict
   */
  run(
    request: Request,
    context: GatewayRequestContext,
    { route, key }: { readonly route: Route; readonly key: string },
  ): Promise<Response> {
    if (route.idempotency === undefined || route.idempotency === "refused") {
      throw invalidKey("this route's replies hold a secret and are never kept");
    }
    if (!KEY.test(key)) throw invalidKey("it must have 1-255 visible ASCII characters");
    return this.#runOnce(request, context, { route, key });
  }

  async #runOnce(
    request: Request,
    context: GatewayRequestContext,
    { route, key }: { readonly route: Route; readonly key: string },
  ): Promise<Response> {
    const scope = digest([context.identity?.tokenId ?? "", request.method, context.path, key]);
    const tools = request.headers.get("x-postern-tools") ?? "";
    const pieces = await piecesOf(await context.body(), request.headers.get("content-type") ?? "");
    const fingerprint = digest([context.target.search, tools, ...formatHeaders(request), ...pieces]);
    let flight = this.#flights.get(scope);
    while (flight?.over !== undefined) {
      await flight.over;
      if (flight.isLate) throw notRecordedYet();
      flight = this.#flights.get(scope);
    }
    if (flight !== undefined) {
      checkSame(flight.fingerprint, fingerprint);
      return join(request, context, flight);
    }
    const recording = this.#start(request, context, { route, claim: { scope, fingerprint } });
    this.#flights.set(scope, { fingerprint, context, recording });
    recording.catch(() => this.#flights.delete(scope));
    return (await recording).reply(context);
  }

  async #start(
    request: Request,
    context: GatewayRequestContext,
    { route, claim }: { readonly route: Route; readonly claim: Claim },
  ): Promise<ReplyRecording> {
    const { scope, fingerprint } = claim;
    for (;;) {
      const stored = await this.#find(claim, context);
      if (stored !== undefined) checkSame(stored.fingerprint, fingerprint);
      if (stored?.kind === "reply") {
        this.#flights.delete(scope);
        return replayed(recordText(stored));
      }
      const hold = createHold(this.#store, claim, stored);
      context.hold(hold.claim);
      const handler = stored === undefined ? await this.#firstHandler(route, claim) : repeatHandler(route, stored);
      if (handler === undefined) continue;
      const reply = await callHandler(request, context, handler);
      if (stored === undefined && await this.#isTakenElsewhere(reply, claim, hold)) continue;
      const recording = await recordReply(reply);
      this.#settleAtEnd(recording, { claim, hold, requestId: context.requestId });
      return stored === undefined ? recording : replayed(recording);
    }
  }

  /**
   * Reads what is stored for a request. While another gateway of the cluster handles a request without a run, waits for what becomes of it:
   * there is nothing to follow.
   * @throws {CancelError} when the client of the repeat leaves
   */
  async #find({ scope }: Claim, context: GatewayRequestContext): ReturnType<ReplyStore["find"]> {
    const { cluster, clock } = this.#services;
    for (;;) {
      const stored = await this.#store.find(scope);
      const by = stored?.kind === "claim" && stored.runId === null ? stored.gateway : undefined;
      if (by === undefined || by.id === cluster.id) return stored;
      if (await cluster.links.find(by) === undefined) return await this.#store.find(scope);
      await clock.sleep(LOOK_MS, context.signal);
    }
  }

  /** Tells whether another gateway has begun a run for the same request at the same moment. */
  async #isTakenElsewhere(reply: Response, { scope }: Claim, hold: Hold): Promise<boolean> {
    // The signature of a message may be used up by the same request too, which is 401
    if (![401, 409].includes(reply.status)) return false;
    const stored = await this.#store.find(scope);
    if (stored === undefined || (stored.kind === "claim" && stored.runId === (hold.runId() ?? null))) return false;
    await reply.body?.cancel();
    return true;
  }

  /**
   * Stores the reply when it has ended. A request that may be tried again waits until its claim is gone. While the database is down, repeats at
   * this gateway get the reply all the same, or are refused.
   */
  #settleAtEnd(
    { ended }: ReplyRecording,
    { claim, hold, requestId }: { readonly claim: Claim; readonly hold: Hold; readonly requestId: string },
  ): void {
    const { scope } = claim;
    const tried = Promise.withResolvers<void>();
    const flight = () => this.#flights.get(scope);
    const onLate = () => {
      const late = flight();
      if (late !== undefined) late.isLate = true;
      tried.resolve();
    };
    const settle = (whole?: RecordedReply) =>
      this.#late.write({
        write: () => whole === undefined ? this.#giveUp(claim, hold.runId()) : this.#settle(claim, hold, whole),
        bytes: whole?.body?.length ?? 0,
        requestId,
        onLate,
      });
    ended.then(settle, () => settle()).finally(() => {
      this.#flights.delete(scope);
      tried.resolve();
    });
    ended.then((whole) => isKept(whole, hold), () => false).then((isFinal) => {
      const over = flight();
      if (over !== undefined && !isFinal) over.over = tried.promise;
    });
  }

  /** Returns the handler of a first request. Makes the claim first where the handler itself makes none. Undefined: another gateway has it. */
  async #firstHandler(route: Route, { scope, fingerprint }: Claim): Promise<Handler | undefined> {
    if (route.idempotency !== "honoured") return route.handler;
    try {
      if (await this.#store.claim(scope, fingerprint)) return route.handler;
    } catch (error) {
      // The claim may be there although the answer of the database was lost: the end of this request forgets it
      return () => {
        throw error;
      };
    }
    return undefined;
  }

  /**
   * Stores a reply that is final, and forgets the claim of a request that may be tried again. Until then the claim leads a repeat to the run, and
   * so it does where the reply shows another end than the run's: the database may have been away from it, or another gateway has ended it.
   */
  async #settle({ scope, fingerprint }: Claim, hold: Hold, whole: RecordedReply): Promise<void> {
    const runId = hold.runId();
    const run = runId === undefined || whole.status === ACCEPTED ? undefined : await this.#runs.get(runId);
    if (run !== undefined && !hold.shows(run)) return;
    // A reply that was too long to keep is read from the run again
    if (whole.body === null && runId !== undefined) return;
    if (isKept(whole, hold)) return await this.#store.keep(scope, { ...whole, fingerprint }, runId);
    // A repeat that fails by itself says nothing about the first request
    if (hold.isFirst || run !== undefined) await this.#store.forget(scope, runId);
  }

  /**
   * Handles a stream that every reader left, so that no whole reply exists. The claim of a run stays; without a run the request may be
   * made again.
   */
  async #giveUp({ scope }: Claim, runId: string | undefined): Promise<void> {
    if (runId === undefined) await this.#store.forget(scope, undefined);
  }

  /** The runs, also where there is no agent. */
  get #runs(): Pick<StoredRuns, "get"> {
    return this.#services.agent?.runs ?? this.#services.storedRuns;
  }
}

function createHold(store: ReplyStore, { scope, fingerprint }: Claim, stored: StoredClaim | undefined): Hold {
  let runId = stored?.runId ?? undefined;
  const toldBefore = new Set(stored?.told);
  const told = new Set(toldBefore);
  let isOpen = false;
  let shown: { readonly errorCode: string | undefined } | undefined;
  return {
    runId: () => runId,
    isOpen: () => isOpen,
    isFirst: stored === undefined,
    shows: ({ status, error }) =>
      isEnded(status) && shown !== undefined && (status === "completed") === (shown.errorCode === undefined) &&
      error?.code === shown.errorCode,
    claim: {
      shows: (errorCode) => void (shown = { errorCode }),
      reopen: () => void (isOpen = true),
      write(id) {
        runId = id;
        return store.claimWrite(scope, { fingerprint, runId: id, told: [] });
      },
      wasTold: (turn) => toldBefore.has(turn),
      async tell(turn) {
        if (told.has(turn) || runId === undefined) return;
        told.add(turn);
        await store.reclaim(scope, { fingerprint, runId, told: [...told] });
      },
    },
  };
}

function invalidKey(reason: string) {
  return refuse("invalid_request", `Cannot honour this Idempotency-Key: ${reason}`, { param: "Idempotency-Key" });
}

/** Tells whether a reply is stored. A failure without an effect is not: the request may be tried again. */
function isKept({ status, headers }: RecordedReply, hold: Hold): boolean {
  return status < 400 || (headers["x-should-retry"] === "false" && !hold.isOpen());
}

/** Status of a reply that only says that a run was accepted. Such a reply is final, however the run ends. */
const ACCEPTED = 202;

/** The claim of the request at work, and the facts that decide what a repeat gets. */
interface Hold {
  readonly claim: RunClaim;
  /** The run that the claim is for; undefined as long as there is none */
  runId(): string | undefined;
  /** Tells whether a repeat runs again, although the reply tells the client not to retry by itself */
  isOpen(): boolean;
  /** False: the request is a repeat, whose claim was there before */
  readonly isFirst: boolean;
  /** Tells whether the reply shows the end that a run has come to */
  shows(run: Run): boolean;
}

function replayed(recording: ReplyRecording): ReplyRecording {
  return { ...recording, reply: recording.replay };
}

function repeatHandler({ repeat }: Route, { runId }: StoredClaim): Handler {
  if (repeat === undefined) throw outcomeUnknown();
  return (request, context) => repeat(request, context, runId);
}

function outcomeUnknown() {
  return refuse(
    "conflict",
    "Cannot repeat this request: the end of the first one was not recorded, and whether it took effect is unknown; " +
      "look before you send it again under another Idempotency-Key",
  );
}

function notRecordedYet() {
  return refuse(
    "storage_unavailable",
    "Cannot repeat this request: it failed without an effect, and the database does not answer to record that; try again",
  );
}

/** Calls the handler and turns a thrown error into a reply, so that every client that waits under the same key gets the same reply. */
async function callHandler(request: Request, context: GatewayRequestContext, handler: Handler): Promise<Response> {
  try {
    return await handler(request, context);
  } catch (error) {
    return errorReply(context, error);
  }
}

/** Waits for the reply of the first request. While a client waits here, the work goes on even when the first client leaves. */
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
  first.follow();
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
  throw refuse("idempotency_conflict", "Cannot repeat this request: its Idempotency-Key was used with another body");
}

/** Returns the headers beside `x-postern-tools` that change what a request does: those that go on to a provider of its format. */
function formatHeaders({ headers }: Request): string[] {
  return FORMAT_HEADERS.flatMap((name) => headers.has(name) ? [`${name}: ${headers.get(name)}`] : []);
}

/** Returns a body in pieces that a repeat has too. Loads the reader of forms with the first of them. */
async function piecesOf(body: Uint8Array, contentType: string): Promise<readonly Uint8Array[]> {
  if (!/^multipart\//i.test(contentType)) return [body];
  return (await import("../wire/read_form.ts")).piecesOfForm(body, contentType);
}

function digest(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part).update("\n");
  return hash.digest("hex");
}

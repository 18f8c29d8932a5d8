import { Buffer } from "node:buffer";
import { createHash, timingSafeEqual } from "node:crypto";
import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import { type AgentEvent, agentEventSchema } from "../base/records/agent_event.ts";
import { parseLinkAddress } from "../config/schema/gateway.ts";
import type { Store } from "../storage/store.ts";
import { EventStreamDecoder } from "../system/net/event_stream_decoder.ts";
import { GATEWAY_FENCES, GATEWAY_LEASES, RUN_CLAIMS } from "./cluster_records.ts";
import type { JoinedGateway } from "./leases.ts";

/** Sends a request to another gateway. Follows no redirect, and rejects when nobody answers. */
export type LinkFetch = (request: Request) => Promise<Response>;

/** Settings of the links of this gateway. */
export interface GatewayLinkSettings {
  /** Token of the cluster. Undefined: this gateway calls no other, and none may call it */
  readonly token: string | undefined;
  /** `[cluster] insecure`: the token may go to another machine over http. */
  readonly insecure: boolean;
  readonly fetch: LinkFetch;
}

/** Options of `GatewayLinks`. */
export interface GatewayLinksOptions extends GatewayLinkSettings {
  readonly store: Pick<Store, "get" | "unreadable">;
  readonly clock: Clock;
  /** Id of this gateway. */
  readonly id: string;
}

/** Another gateway, with its address, or with the reason why it cannot be reached and the key that changes it. */
export interface LinkedGateway {
  readonly id: string;
  readonly address: string | undefined;
  readonly problem: string | undefined;
}

/** Gateway that works on a run. `nobody`: the run waits for a gateway, or has ended. */
export type RunOwner =
  | { readonly kind: "nobody" | "here" }
  | { readonly kind: "elsewhere"; readonly gateway: LinkedGateway };

/** A link that failed. The message goes on after "the link to gateway X ". */
export class GatewayLinkError extends Error {
  override readonly name = "GatewayLinkError";
  /** True: the other gateway has refused the request, and done nothing. */
  readonly isRefused: boolean;
  /** Status of the answer. Undefined: there was none, or it was not refused */
  readonly status: number | undefined;

  constructor(
    message: string,
    { isRefused = false, status, ...options }: ErrorOptions & {
      readonly isRefused?: boolean;
      readonly status?: number;
    } = {},
  ) {
    super(message, options);
    this.isRefused = isRefused;
    this.status = status;
  }
}

/** Milliseconds until the head of an answer. */
const HEAD_MS = 5_000;
/** Milliseconds between two signs of life on a link: an event or a comment. */
const LINK_BEAT_MS = 2_000;
/** Silence after which a link counts as broken. Milliseconds */
const MUTE_MS = 3 * LINK_BEAT_MS;
/** Longest event that is read from a link, in bytes. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/** Longest body of an error that is read, in bytes. */
const MAX_ERROR_BYTES = 16 * 1024;
const GATEWAY_ID = /^gw_[0-9a-z]{1,64}$/;
const MIN_TOKEN = 32;
const TOKEN = /^[\x21-\x7e]{1,512}$/;

/** Checks the token of the cluster. @param name of its environment variable, for the error. @throws {ConfigError} `config_environment` */
export function checkClusterToken(token: string | undefined, name: string): string {
  const problem = token === undefined
    ? "is not set"
    : token === ""
    ? "is empty"
    : token.length < MIN_TOKEN
    ? `has less than ${MIN_TOKEN} characters`
    : !TOKEN.test(token)
    ? "must have 512 visible ASCII characters at most"
    : undefined;
  if (problem === undefined && token !== undefined) return token;
  throw new ConfigError(
    "config_environment",
    `Cannot use cluster.token_env: the environment variable "${name}" ${problem}`,
    { key: "cluster.token_env" },
  );
}

/**
 * The direct way from this gateway to the others of its cluster.
 *
 * The token goes to addresses in the leases of joined gateways alone, which pass the same check as the own one. Answers are read as those
 * of a stranger: bounded, parsed, and given up after a silence.
 */
export class GatewayLinks {
  /** Milliseconds between two signs of life that another gateway expects on a link. */
  readonly beatMs = LINK_BEAT_MS;
  readonly #options: GatewayLinksOptions;
  readonly #digest: Uint8Array | undefined;

  constructor(options: GatewayLinksOptions) {
    this.#options = options;
    this.#digest = options.token === undefined ? undefined : digest(options.token);
  }

  /** Tells whether a token is that of the cluster, in a time that says nothing about it. */
  accepts(token: string): boolean {
    return this.#digest !== undefined && timingSafeEqual(this.#digest, digest(token));
  }

  /** Finds the gateway that works on a run. @throws when the database cannot be read */
  async ownerOf(runId: string): Promise<RunOwner> {
    const { store, id } = this.#options;
    const claim = (await RUN_CLAIMS.read(store, runId))?.value;
    if (claim === undefined || claim.gateway === null) return { kind: "nobody" };
    if (claim.gateway === id) return { kind: "here" };
    const gateway = await this.find({ id: claim.gateway, fence: claim.fence });
    return gateway === undefined ? { kind: "nobody" } : { kind: "elsewhere", gateway };
  }

  /** Finds a gateway that is joined under this fence. Undefined: it has left, or others have fenced it off. */
  async find({ id, fence }: JoinedGateway): Promise<LinkedGateway | undefined> {
    const { store, token, insecure } = this.#options;
    const [stored, lease] = await Promise.all([
      store.get(GATEWAY_FENCES.name, id),
      GATEWAY_LEASES.read(store, id),
    ]);
    if (stored?.version !== fence || lease === undefined || lease.value.fence !== fence) return undefined;
    const given = lease.value.about.advertise_url;
    const refused = (problem: string) => ({ id, address: undefined, problem });
    if (given === undefined) return refused(`gateway ${id} has no [cluster] advertise_url`);
    if (token === undefined) return refused("this gateway has no [cluster] token_env");
    const parsed = parseLinkAddress(given, { insecure });
    if ("problem" in parsed) {
      return refused(`[cluster] advertise_url of gateway ${id} cannot be used: ${parsed.problem}`);
    }
    return { id, address: parsed.url, problem: undefined };
  }

  /**
   * Reads the events of a run at its owner as they come, up to the end of the stream there. An empty array is a sign of life.
   * @throws {GatewayLinkError} refused, broken off, mute, or no events; the signal's reason when it aborts
   */
  async *events(
    to: LinkedGateway,
    { runId, after, signal }: { readonly runId: string; readonly after: number; readonly signal: AbortSignal },
  ): AsyncGenerator<readonly AgentEvent[], void, undefined> {
    const path = `/v1/cluster/runs/${runId}/events?after=${after}`;
    for await (const texts of this.#stream(to, { path, signal, maxBytes: MAX_EVENT_BYTES })) {
      yield texts.map(toEvent);
    }
  }

  /** Asks which gateway answers at the address of another one. @returns its id. @throws {GatewayLinkError} as `events` */
  async whoAnswers(to: LinkedGateway, signal: AbortSignal): Promise<string> {
    const answer = await this.ask(to, { path: "/v1/cluster/link", body: undefined, signal, maxBytes: MAX_ERROR_BYTES });
    const parsed = v.safeParse(v.object({ gateway: v.pipe(v.string(), v.regex(GATEWAY_ID)) }), answer);
    if (!parsed.success) throw new GatewayLinkError("gave something that is no answer of a gateway");
    return parsed.output.gateway;
  }

  /**
   * Asks another gateway for something that may take long: signs of life come until the answer.
   * @param body JSON to post. Undefined: the request is a GET
   * @returns the answer as JSON, which its reader parses
   * @throws {GatewayLinkError} as `events`. Unless it says `isRefused`, nobody knows what the other gateway has done
   */
  async ask(
    to: LinkedGateway,
    { path, body, signal, maxBytes }: {
      readonly path: string;
      readonly body: unknown;
      readonly signal: AbortSignal;
      readonly maxBytes: number;
    },
  ): Promise<unknown> {
    const posted = body === undefined ? undefined : JSON.stringify(body);
    for await (const [text] of this.#stream(to, { path, signal, maxBytes, body: posted })) {
      if (text !== undefined) return parseJson(text);
    }
    throw new GatewayLinkError("ended without an answer");
  }

  /** Sends a request, and reads the data of the events of its answer. An empty array is a sign of life. */
  async *#stream(to: LinkedGateway, request: LinkRequest): AsyncGenerator<readonly string[], void, undefined> {
    const patience = new Patience(this.#options.clock, request.signal);
    try {
      const reply = await patience.wait(this.#send(to, { ...request, signal: patience.signal }), HEAD_MS);
      const type = reply.headers.get("content-type") ?? "";
      if (reply.status !== 200 || !type.startsWith("text/event-stream") || reply.body === null) {
        const isRefused = await isRefusal(reply, (work) => patience.wait(work, HEAD_MS));
        throw new GatewayLinkError(refusalOf(reply.status), { isRefused, status: reply.status });
      }
      const decoder = new EventStreamDecoder({ maxBytes: request.maxBytes });
      const reader = reply.body.getReader();
      try {
        for (;;) {
          const { done, value } = await patience.wait(reader.read(), MUTE_MS);
          if (done) return;
          yield decode(decoder, value);
        }
      } finally {
        void reader.cancel().catch(() => {});
      }
    } finally {
      patience.end();
    }
  }

  async #send(to: LinkedGateway, { path, body, signal }: LinkRequest): Promise<Response> {
    const { token = "" } = this.#options;
    if (to.address === undefined) throw new GatewayLinkError(to.problem ?? "has no address");
    const headers = {
      ...{ authorization: `Bearer ${token}`, accept: "text/event-stream", "accept-encoding": "identity" },
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    };
    const method = body === undefined ? "GET" : "POST";
    try {
      return await this.#options.fetch(
        new Request(`${to.address}${path}`, { method, headers, body: body ?? null, redirect: "manual", signal }),
      );
    } catch (cause) {
      if (signal.aborted) throw signal.reason;
      throw new GatewayLinkError("cannot be made", { cause });
    }
  }
}

/** Request to another gateway. */
interface LinkRequest {
  readonly path: string;
  readonly signal: AbortSignal;
  /** Longest event of the answer. */
  readonly maxBytes: number;
  /** JSON to post. Default: the request is a GET */
  readonly body?: string | undefined;
}

/** Bounds each wait of one exchange, and ends it with the caller's signal. */
class Patience {
  readonly #clock: Clock;
  readonly #outer: AbortSignal;
  readonly #own = new AbortController();
  readonly #onAbort = () => this.#own.abort(this.#outer.reason);

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#outer = signal;
    if (signal.aborted) this.#onAbort();
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#own.signal;
  }

  async wait<T>(work: Promise<T>, ms: number): Promise<T> {
    const { signal } = this;
    const ended = Promise.withResolvers<never>();
    const onAbort = () => ended.reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const timer = this.#clock.after(ms, () => this.#own.abort(new GatewayLinkError(`was silent for ${ms / 1_000} s`)));
    work.catch(() => {});
    try {
      return await Promise.race([work, ended.promise]);
    } catch (cause) {
      if (signal.aborted) throw signal.reason;
      throw cause instanceof GatewayLinkError ? cause : new GatewayLinkError("broke off", { cause });
    } finally {
      timer.clear();
      signal.removeEventListener("abort", onAbort);
    }
  }

  end(): void {
    this.#outer.removeEventListener("abort", this.#onAbort);
    // Ends a request that was given up, and does nothing after the end of the answer
    this.#own.abort(new GatewayLinkError("is not needed any more"));
  }
}

function decode(decoder: EventStreamDecoder, bytes: Uint8Array): readonly string[] {
  try {
    return decoder.push(bytes);
  } catch (cause) {
    throw new GatewayLinkError("gave more than an answer may have", { cause });
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new GatewayLinkError("gave something that is no JSON", { cause });
  }
}

function toEvent(text: string): AgentEvent {
  try {
    return v.parse(agentEventSchema, JSON.parse(text));
  } catch (cause) {
    throw new GatewayLinkError("gave something that is no event of a run", { cause });
  }
}

/** Body of a 503 by which a gateway says that it has not begun. A proxy before it may answer 503 for a call that it has passed on. */
const notBegunSchema = v.object({
  error: v.object({ code: v.picklist(["shutting_down", "storage_unavailable", "overloaded"]) }),
});

/** Tells whether an answer says that nothing was done. Lets go of its body. */
async function isRefusal({ status, body }: Response, wait: <T>(work: Promise<T>) => Promise<T>): Promise<boolean> {
  const reader = body?.getReader();
  try {
    if (status !== 503) return status >= 400 && status < 500;
    const chunks: Uint8Array[] = [];
    for (let bytes = 0; reader !== undefined && bytes <= MAX_ERROR_BYTES;) {
      const { done, value } = await wait(reader.read());
      if (done) return v.is(notBegunSchema, parseJson(Buffer.concat(chunks).toString()));
      chunks.push(value);
      bytes += value.byteLength;
    }
    return false;
  } catch (error) {
    // Broken off, or no JSON: nothing is known. Whoever gave up is told that
    if (error instanceof GatewayLinkError) return false;
    throw error;
  } finally {
    void reader?.cancel().catch(() => {});
  }
}

function refusalOf(status: number): string {
  if (status === 401 || status === 403) {
    return `was refused with ${status}: [cluster] token_env must name the same token at all gateways`;
  }
  if (status === 409) return "was refused: the gateway does not have it now";
  return `was refused with ${status}`;
}

function digest(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}

import { Backoff, withTimeout } from "../../base/clock.ts";
import type { Kit } from "../../base/kit.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import { LinkError, type LinkHandlers, type LinkSocket } from "../../system/net/link_socket.ts";
import { NodeEnd, type NodeWork } from "./node_end.ts";
import { CLOSE } from "./protocol.ts";

/** Gateway, work and clock of a node that stays connected. */
export interface RunNodeOptions {
  readonly id: string;
  /** Address of the gateway, for log and audit */
  readonly url: string;
  /** Makes one attempt to connect. @throws {LinkError} refused or not reached; {CancelError} on abort */
  readonly open: (handlers: LinkHandlers, signal: AbortSignal) => Promise<LinkSocket>;
  readonly work: NodeWork;
  readonly version: string;
  readonly platform: string;
  readonly kit: Pick<Kit, "clock" | "random" | "log">;
  readonly audit: AuditAppend;
  /** Runs at each welcome */
  readonly onConnected: () => void;
  /** Ends the node: no call is taken any more, those at work have `graceMs`, and then it returns */
  readonly signal: AbortSignal;
  readonly graceMs: number;
}

const DELAYS = { firstMs: 1_000, mostMs: 60_000 } as const;
/** A link that held this long was a good one: the next wait is short again */
const GOOD_LINK_MS = 30_000;
const NORMAL = 1000;
/** Asking again would get the same answer, until someone changes something */
const FINAL_STATUS: ReadonlySet<number> = new Set([400, 401, 403, 404, 426]);
const FINAL_CODES: ReadonlyMap<number, string> = new Map([
  [CLOSE.replaced, "another process has connected with this id; give each machine its own"],
  [CLOSE.version, "it speaks another version of the protocol; use the same version of Postern on both sides"],
]);

/**
 * Keeps the link to one gateway until `signal` aborts: connects again by itself, after 1 s, then twice as long each time up to
 * 60 s, each shortened by up to a half at random so that many nodes do not come at once. A call is never made twice: what was at
 * work when a link broke is stopped and its result dropped.
 * @throws {LinkError} the gateway refuses it for good: at the first attempt, or since another node has its id or the versions differ
 */
export async function runNode(options: RunNodeOptions): Promise<void> {
  const { kit: { clock, random, log }, signal, url } = options;
  const backoff = new Backoff(DELAYS, random);
  let everConnected = false;
  while (!signal.aborted) {
    try {
      const link = await holdLink(options);
      everConnected ||= link.welcomed;
      const why = FINAL_CODES.get(link.code);
      if (why !== undefined) throw new LinkError(`Cannot stay connected to ${url}: ${why}`, { status: link.code });
      if (signal.aborted) return;
      if (link.welcomed && link.heldMs >= GOOD_LINK_MS) backoff.reset();
      log.warn("The link to the gateway has ended", { gateway: url, code: link.code, reason: link.reason });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof LinkError)) throw error;
      const { status } = error;
      if (status !== undefined && (FINAL_CODES.has(status) || (!everConnected && FINAL_STATUS.has(status)))) {
        throw error;
      }
      log.warn(error.message, { gateway: url });
    }
    const delayMs = backoff.next();
    log.info("Connecting again", { gateway: url, in_ms: delayMs });
    await clock.sleep(delayMs, signal).catch(() => {});
  }
}

interface EndedLink {
  readonly code: number;
  readonly reason: string;
  readonly welcomed: boolean;
  readonly heldMs: number;
}

/** Holds a connection from its opening to its end. */
async function holdLink(options: RunNodeOptions): Promise<EndedLink> {
  const { kit: { clock, log }, signal, id, url } = options;
  const ended = Promise.withResolvers<{ readonly code: number; readonly reason: string }>();
  const record = (action: "connected" | "disconnected", reason: string | null) =>
    options.audit({ type: "node", action, node_id: id, address: url, reason })
      .catch((error) => log.error("Cannot write the audit", { error }));
  let end: NodeEnd | undefined = undefined;
  let welcomed = false;
  let gone = false;
  const socket = await options.open({
    // A gateway that speaks before the hello is not listened to
    text: (text) => end?.text(text),
    binary: () => end?.binary(),
    closed(code, reason) {
      gone = true;
      end?.closed();
      ended.resolve({ code, reason });
    },
  }, signal);
  const since = clock.monotonic();
  end = new NodeEnd({
    socket: {
      send: (text) => socket.send(text),
      unsent: () => socket.unsent(),
      close(code, reason) {
        socket.close(code, reason);
        ended.resolve({ code, reason });
      },
    },
    work: options.work,
    version: options.version,
    platform: options.platform,
    clock,
    log,
    onWelcome() {
      welcomed = true;
      log.info("Connected to the gateway", { gateway: url, node: id });
      void record("connected", null);
      options.onConnected();
    },
  });
  if (gone) end.closed();
  const stop = () => void leave(end as NodeEnd, options); // it was just made
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  const { code, reason } = await ended.promise;
  signal.removeEventListener("abort", stop);
  if (welcomed) await record("disconnected", `${code}${reason === "" ? "" : ` ${reason}`}`);
  return { code, reason, welcomed, heldMs: clock.monotonic() - since };
}

/** Lets the calls at work end, up to the grace, and says goodbye. */
async function leave(end: NodeEnd, { kit: { clock }, graceMs }: RunNodeOptions): Promise<void> {
  await withTimeout(end.finish(), { ms: graceMs, clock });
  end.close(NORMAL, "The node is stopping");
}

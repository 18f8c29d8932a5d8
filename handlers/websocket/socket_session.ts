import { type Caller, hasScope } from "../../lib/base/records/caller.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { CancelError, type CancelReason } from "../../lib/base/cancel.ts";
import { isLonger } from "../../lib/base/is_longer.ts";
import type { Services } from "../../lib/gateway.ts";
import { checkScope } from "../door.ts";
import { followRun } from "../wire/follow_run.ts";
import { requireAgent } from "../wire/require_agent.ts";
import { endedInSilence } from "../wire/run_failure.ts";
import { toChatRequest } from "../wire/to_chat_request.ts";
import { toHttpError } from "../wire/http_errors.ts";
import {
  type AnswerFrame,
  encodeEvent,
  encodePlain,
  errorFrame,
  type Frame,
  type FrameEncoder,
  FRAMES,
  type MessageFrame,
  parseFrame,
  PONG_FRAME,
  type ResumeFrame,
} from "./frames.ts";
import { createOutbox, type OutboxPeer } from "./outbox.ts";
import { GOING_AWAY, type OpenSocket, POLICY_VIOLATION, REVOKED, socketsOf, watchPeer } from "./sockets.ts";

/** What a session needs of a crossws peer. */
export interface ChatPeer extends OutboxPeer {
  close(code: number, reason: string): void;
  /** Ends the connection without a handshake: for a peer that does not answer */
  terminate(): void;
  ping(): void;
}

export interface SocketSessionOptions {
  readonly services: Services;
  readonly caller: Caller;
  readonly requestId: string;
  /** Whether the runtime can send pings */
  readonly canPing: boolean;
}

/** One connection of `/ws/chat`. None of its methods throws. */
export interface SocketSession {
  text(text: string): void;
  /** @param bytes length of the frame */
  binary(bytes: number): void;
  pong(): void;
  /** The other side pings; the runtime has answered */
  pinged(): void;
  drained(): void;
  /** The connection is gone */
  closed(): void;
}

/** A run whose events go to this connection. */
interface Reading {
  readonly runId: string;
  readonly events: AsyncIterable<readonly AgentEvent[]>;
  cancel(reason: CancelReason): void;
}

/** Messages that wait behind the one at work. */
const MAX_QUEUED = 8;
const NORMAL = 1000;
const TOO_BIG = 1009;
const TRY_AGAIN_LATER = 1013;
const TOO_SLOW = "Reader too slow";

/** docs/design/websocket.md "Limits": a connection is one conversation, answers one message at a time and queues eight more. */
export function createSocketSession(peer: ChatPeer, options: SocketSessionOptions): SocketSession {
  const { services, caller } = options;
  const { websocket: limits } = services.config().gateway;
  const sockets = socketsOf(services);
  const idleTimeoutMs = limits.idle_timeout_secs * 1000;
  const outbox = createOutbox({ peer, clock: services.clock, patienceMs: idleTimeoutMs });
  const queue: (MessageFrame | ResumeFrame)[] = [];
  let encode: FrameEncoder = encodePlain;
  let answers = true;
  let conversationId = "new";
  let working = false;
  let running: Reading | undefined;
  let stopBeforeStart: CancelReason | undefined;
  let open = true;

  const socket: OpenSocket = { tokenId: caller.tokenId, busy: () => working, close };
  const watch = watchPeer({
    clock: services.clock,
    heartbeatMs: limits.heartbeat_secs * 1000,
    pongTimeoutMs: limits.pong_timeout_secs * 1000,
    idleTimeoutMs,
    ping: options.canPing ? () => peer.ping() : undefined,
    busy: () => working,
    onDead() {
      end();
      peer.terminate();
    },
    onIdle: () => close(NORMAL, `Nothing was said for ${limits.idle_timeout_secs} s`),
  });
  sockets.add(socket);
  isWelcome();

  /** Looked at again with every frame, which is a use of the token: a token also ends by its time. */
  function isWelcome(): boolean {
    if (!services.tokens.use(caller.tokenId)) close(POLICY_VIOLATION, REVOKED);
    return open;
  }

  function reply(frame: string): void {
    if (!outbox.send(frame) && open) close(TRY_AGAIN_LATER, TOO_SLOW);
  }

  function fail(code: string, message: string): void {
    reply(errorFrame(code, message));
  }

  function close(code: number, reason: string): void {
    if (!open) return;
    end();
    try {
      peer.close(code, reason);
    } catch {
      // It was closed by the other side at this moment
    }
  }

  /** Nothing is sent or started any more; the run at work is cancelled, since nobody reads it. A resumed one goes on. */
  function end(): void {
    open = false;
    watch.stop();
    outbox.close();
    sockets.remove(socket);
    queue.length = 0;
    stop("client_gone");
  }

  function stop(reason: CancelReason): void {
    if (running !== undefined) running.cancel(reason);
    else if (working) stopBeforeStart = reason;
  }

  function take(frame: Frame): void {
    try {
      checkScope(FRAMES[frame.type], caller, `take the frame "${frame.type}"`);
    } catch (error) {
      return report(error);
    }
    switch (frame.type) {
      case "message":
      case "resume":
        return enqueue(frame);
      case "cancel":
        return stop("cancelled");
      case "approve":
      case "deny":
        return void answerQuestion(frame);
      case "hello":
        encode = frame.events ? encodeEvent : encodePlain;
        answers = frame.approvals ?? true;
        return;
      case "ping":
        return reply(PONG_FRAME);
    }
  }

  /** The answer shows as `approval_answered` of the run that asked. */
  async function answerQuestion({ type: decision, approval_id, remember, match }: AnswerFrame): Promise<void> {
    try {
      await services.approvals.answer(approval_id, {
        decision,
        remember: remember ?? undefined,
        match: match ?? undefined,
        by: caller,
      });
    } catch (error) {
      report(error);
    }
  }

  function report(error: unknown): void {
    const { code, message } = toHttpError(error, { log: services.log, requestId: options.requestId });
    fail(code, message);
  }

  /** Whether who reads here sees questions, and may answer them */
  function mayApprove(): boolean {
    return encode === encodeEvent && answers && hasScope(caller.scopes, "approve");
  }

  function enqueue(frame: MessageFrame | ResumeFrame): void {
    if (queue.length >= MAX_QUEUED) {
      return fail(
        "overloaded",
        `Cannot take the ${frame.type}: one is being answered and ${MAX_QUEUED} wait; send it again after the next answer`,
      );
    }
    queue.push(frame);
    if (!working) void work();
  }

  async function work(): Promise<void> {
    working = true;
    for (let frame = queue.shift(); frame !== undefined; frame = queue.shift()) {
      try {
        const ended = await show(frame.type === "message" ? await start(frame) : await resume(frame));
        if (!ended && frame.type === "message") throw endedInSilence();
      } catch (error) {
        report(error);
      }
      running = undefined;
      stopBeforeStart = undefined;
    }
    working = false;
    watch.active();
    if (open && sockets.draining()) close(GOING_AWAY, "The gateway is shutting down");
  }

  async function start(frame: MessageFrame): Promise<Reading> {
    const handle = await requireAgent(services).runs.start(toChatRequest(
      { message: frame.text, conversationId: frame.conversation_id ?? conversationId, model: frame.model ?? undefined },
      { kind: "chat", caller, durable: false, requestId: options.requestId, canApprove: mayApprove() },
    ));
    if (frame.conversation_id === undefined || frame.conversation_id === null) {
      conversationId = handle.conversationId ?? conversationId;
    }
    return { runId: handle.id, events: handle.events(), cancel: (reason) => handle.cancel(reason) };
  }

  /**
   * Reads a run that this connection did not start, if its caller may (see followRun). `cancel` then stops the run itself; anything
   * else ends the reading alone.
   */
  async function resume({ run_id: runId, after }: ResumeFrame): Promise<Reading> {
    const { runs } = requireAgent(services);
    const reading = new AbortController();
    const options = { after: { name: "after", seq: after }, signal: reading.signal, caller };
    return {
      runId,
      events: (await followRun(runs, runId, options)).events,
      cancel(reason) {
        if (reason === "cancelled") void runs.cancel(runId, reason).catch(report);
        else reading.abort(new CancelError(reason));
      },
    };
  }

  /** @returns true when the run's end was shown; a shutdown stops a resumed run before its end */
  async function show(reading: Reading): Promise<boolean> {
    running = reading;
    if (stopBeforeStart !== undefined) reading.cancel(stopBeforeStart);
    let ended = false;
    for await (const events of reading.events) {
      ended = deliver(events, reading.runId) || ended;
      // Not reading on is what pauses the run
      if (!await outbox.ready() && open) giveUp(reading.runId, events.at(-1)?.seq ?? 0);
    }
    return ended;
  }

  /** @returns whether the run has ended with these events */
  function deliver(events: readonly AgentEvent[], runId: string): boolean {
    for (const event of events) {
      const frame = encode(event, runId);
      if (frame !== undefined && !outbox.send(frame) && open) giveUp(runId, event.seq);
      if (isTerminal(event)) return true;
    }
    return false;
  }

  function giveUp(runId: string, seq: number): void {
    close(TRY_AGAIN_LATER, `${TOO_SLOW}; resume run_id=${runId} after=${seq}`);
  }

  return {
    text(text) {
      if (!open || !isWelcome()) return;
      watch.active();
      if (isLonger(text, limits.max_message_bytes)) {
        return close(TOO_BIG, `Frame over ${limits.max_message_bytes} bytes`);
      }
      const parsed = parseFrame(text);
      if (parsed.ok) take(parsed.frame);
      else fail("invalid_request", parsed.reason);
    },
    binary(bytes) {
      if (!open || !isWelcome()) return;
      watch.active();
      if (bytes > limits.max_message_bytes) return close(TOO_BIG, `Frame over ${limits.max_message_bytes} bytes`);
      fail("invalid_request", "Cannot read a binary frame: send text");
    },
    pong: () => watch.alive(),
    pinged() {
      if (open && outbox.isOverfull()) close(TRY_AGAIN_LATER, TOO_SLOW);
    },
    drained: () => outbox.drained(),
    closed() {
      if (open) end();
    },
  };
}

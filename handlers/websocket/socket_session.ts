import { type Caller, hasScope } from "../../lib/base/records/caller.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import type { RunPace } from "../../lib/runs/run_request.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { isLonger } from "../../lib/base/text.ts";
import type { Config } from "../../lib/config/config.ts";
import { checkScope, type Door } from "../door.ts";
import type { RouteParts } from "../route.ts";
import { openRunEvents, requireAgent, toChatRequest } from "../wire/agent_runs.ts";
import { endedInSilence, toHttpError } from "../wire/http_errors.ts";
import { readSentFiles } from "../wire/sent_files.ts";
import {
  acceptedFrame,
  type AnswerFrame,
  encodeEvent,
  encodePlain,
  errorFrame,
  type Frame,
  type FrameEncoder,
  FRAMES,
  type MessageFrame,
  notLive,
  parseFrame,
  PONG_FRAME,
  type ResumeFrame,
} from "./frames.ts";
import { Outbox, type OutboxPeer } from "./outbox.ts";
import { GOING_AWAY, type OpenSocket, POLICY_VIOLATION, REVOKED, type Watch, watchPeer } from "./sockets.ts";

/** The part of a crossws peer that a session uses. */
export interface ChatPeer extends OutboxPeer {
  close(code: number, reason: string): void;
  /** Ends the connection without a handshake: for a peer that does not answer */
  terminate(): void;
  ping(): void;
}

/** Options of `SocketSession`. */
export interface SocketSessionOptions {
  /** The open sockets of the gateway, which the session joins until it is closed, are among them */
  readonly parts: Pick<RouteParts, "agent" | "approvals" | "kit" | "sockets">;
  readonly caller: Caller;
  readonly requestId: string;
  /** true: the runtime can send pings */
  readonly canPing: boolean;
}

/** A run whose events go to this connection. */
interface Reading {
  readonly runId: string;
  readonly events: AsyncIterable<readonly AgentEvent[]>;
  /** False: another gateway works on the run, and each turn comes when it is complete. */
  isLive(): boolean;
  /** Conversation of the run. Undefined: this connection did not begin the run */
  readonly conversationId?: string | undefined;
  /** True for a message that was sent to another run: its end there is no end of a reply */
  readonly steers?: boolean;
  /** Stops the run. */
  cancel(): void;
  /** Ends the reading, and the run where it is attached. */
  leave(): void;
}

/** A message with a mode: its run is at work, or waits behind another one. */
interface Steered {
  readonly type: "steered";
  readonly reading: Promise<Reading>;
}

/** A frame that came, with the door of its type. A frame that cannot be read has none. */
interface ArrivedFrame {
  readonly door?: Door;
  readonly take: () => void;
}

/** Messages that wait behind the one at work. */
const MAX_QUEUED = 8;
/** Frames that wait until it is certain which tokens count. */
const MAX_ARRIVED = 16;
const NORMAL = 1000;
const TOO_BIG = 1009;
const TRY_AGAIN_LATER = 1013;
const TOO_SLOW = "Reader too slow";

/**
 * A connection of `/ws/chat`: one conversation, which answers one message at a time and queues eight more. No method throws.
 * Source: docs/design/websocket.md "Limits"
 */
export class SocketSession {
  readonly #peer: ChatPeer;
  readonly #options: SocketSessionOptions;
  readonly #limits: Config["gateway"]["websocket"];
  readonly #outbox: Outbox;
  readonly #socket: OpenSocket;
  readonly #watch: Watch;
  readonly #queue: (MessageFrame | ResumeFrame | Steered)[] = [];
  #encode: FrameEncoder = encodePlain;
  /** false: nobody at the client answers approvals */
  #answersApprovals = true;
  /** Conversation of messages that name none; "new" until the first run has made one */
  #conversationId = "new";
  /** A frame of the queue is being answered */
  #isWorking = false;
  /** The run that is being read; undefined before its start */
  #reading: Reading | undefined = undefined;
  /** Present when the run is to be cancelled, or left, before it has started */
  #stopBeforeStart: "cancel" | "leave" | undefined = undefined;
  /** Ends the reading of files of messages whose runs are still to start. Not when the socket closes: what was said goes on */
  #reads = new AbortController();
  #isOpen = true;
  /** Frames that wait until it is certain which tokens count. */
  readonly #arrived: ArrivedFrame[] = [];

  constructor(peer: ChatPeer, options: SocketSessionOptions) {
    const { parts: { kit: { clock }, sockets }, caller } = options;
    this.#peer = peer;
    this.#options = options;
    this.#limits = sockets.limits();
    this.#outbox = new Outbox(peer, { clock, patienceMs: this.#limits.idle_timeout_secs * 1000 });
    this.#socket = {
      tokenId: caller.tokenId,
      busy: () => this.#isWorking,
      close: (code, reason) => this.#close(code, reason),
    };
    this.#watch = this.#startWatch();
    sockets.add(this.#socket);
    this.#isWelcome();
  }

  /** Takes a text frame. */
  text(text: string): void {
    if (isLonger(text, this.#limits.max_message_bytes)) return this.#refuseLong();
    const parsed = parseFrame(text);
    this.#receive(
      parsed.ok
        ? { door: FRAMES[parsed.frame.type], take: () => this.#take(parsed.frame) }
        : { take: () => this.#fail("invalid_request", parsed.reason) },
    );
  }

  /** Refuses a binary frame. @param bytes length of the frame */
  binary(bytes: number): void {
    if (bytes > this.#limits.max_message_bytes) return this.#refuseLong();
    this.#receive({ take: () => this.#fail("invalid_request", "Cannot read a binary frame: send text") });
  }

  /** Call it when a pong came. */
  pong(): void {
    this.#watch.alive();
  }

  /** Call it when the other side has sent a ping, which the runtime has answered. */
  pinged(): void {
    if (this.#isOpen && this.#outbox.isOverfull()) this.#close(TRY_AGAIN_LATER, TOO_SLOW);
  }

  /** Call it when the runtime has sent bytes. */
  drained(): void {
    this.#outbox.drained();
  }

  /** Call it when the connection is gone. */
  closed(): void {
    if (this.#isOpen) this.#end();
  }

  #startWatch(): Watch {
    const { parts: { kit: { clock } }, canPing } = this.#options;
    const { heartbeat_secs, pong_timeout_secs, idle_timeout_secs } = this.#limits;
    return watchPeer({
      clock,
      heartbeatMs: heartbeat_secs * 1000,
      pongTimeoutMs: pong_timeout_secs * 1000,
      idleTimeoutMs: idle_timeout_secs * 1000,
      ping: canPing ? () => this.#peer.ping() : undefined,
      busy: () => this.#isWorking,
      onDead: () => {
        this.#end();
        this.#peer.terminate();
      },
      onIdle: () => this.#close(NORMAL, `Nothing was said for ${idle_timeout_secs} s`),
    });
  }

  /** Takes a frame, once it is certain which tokens count. Frames that come until then wait behind it. */
  #receive(frame: ArrivedFrame): void {
    if (!this.#isOpen) return;
    if (this.#arrived.length >= MAX_ARRIVED) {
      return this.#fail(
        "overloaded",
        `Cannot take the frame: ${MAX_ARRIVED} wait for the database; send it again later`,
      );
    }
    if (this.#arrived.length > 0) return void this.#arrived.push(frame);
    const certain = this.#confirm(frame);
    if (certain === undefined) return this.#takeWelcome(frame);
    this.#arrived.push(frame);
    void this.#takeArrived(certain);
  }

  /** Takes the frames that wait, in their order. Each waits as long as its door says. */
  async #takeArrived(certain: Promise<void> | undefined): Promise<void> {
    for (let frame = this.#arrived[0]; frame !== undefined; frame = this.#arrived[0]) {
      await (certain ?? this.#confirm(frame));
      certain = undefined;
      this.#arrived.shift();
      this.#takeWelcome(frame);
    }
  }

  #confirm({ door = {} }: { readonly door?: Pick<Door, "steady"> }): Promise<void> | undefined {
    const { parts: { sockets }, caller } = this.#options;
    return sockets.confirm(door, caller);
  }

  #takeWelcome({ take }: ArrivedFrame): void {
    if (!this.#isOpen || !this.#isWelcome()) return;
    this.#watch.active();
    take();
  }

  #refuseLong(): void {
    if (this.#isOpen && this.#isWelcome()) this.#close(TOO_BIG, `Frame over ${this.#limits.max_message_bytes} bytes`);
  }

  /** Checks the token with every frame, which is a use of the token: a token also ends by its time. */
  #isWelcome(): boolean {
    const { parts: { sockets }, caller } = this.#options;
    if (!sockets.useToken(caller)) this.#close(POLICY_VIOLATION, REVOKED);
    return this.#isOpen;
  }

  #reply(frame: string): void {
    if (!this.#outbox.send(frame) && this.#isOpen) this.#close(TRY_AGAIN_LATER, TOO_SLOW);
  }

  #fail(code: string, message: string): void {
    this.#reply(errorFrame(code, message));
  }

  #report(error: unknown): void {
    const { parts: { kit: { log } }, requestId } = this.#options;
    const { code, message } = toHttpError(error, { log, requestId });
    this.#fail(code, message);
  }

  #close(code: number, reason: string): void {
    if (!this.#isOpen) return;
    this.#end();
    try {
      this.#peer.close(code, reason);
    } catch {
      // The other side has closed the connection at this moment
    }
  }

  /** Ends the session: it leaves the run at work. */
  #end(): void {
    this.#isOpen = false;
    this.#watch.stop();
    this.#outbox.close();
    this.#options.parts.sockets.remove(this.#socket);
    for (const frame of this.#queue) {
      if (frame.type === "steered") void frame.reading.then((reading) => reading.leave(), () => {});
    }
    this.#queue.length = 0;
    this.#arrived.length = 0;
    this.#stop("leave");
  }

  #stop(way: "cancel" | "leave"): void {
    if (this.#reading !== undefined) this.#reading[way]();
    else if (this.#isWorking) this.#stopBeforeStart = way;
    if (this.#reading === undefined && way === "cancel") this.#reads.abort(new CancelError("cancelled"));
  }

  #take(frame: Frame): void {
    const { parts: { sockets }, caller } = this.#options;
    try {
      checkScope(FRAMES[frame.type], caller, `take the frame "${frame.type}"`);
      sockets.checkCertainty(FRAMES[frame.type], caller);
    } catch (error) {
      return this.#report(error);
    }
    switch (frame.type) {
      case "message":
        return this.#enqueue(this.#isSteering(frame) ? { type: "steered", reading: this.#start(frame) } : frame);
      case "resume":
        return this.#enqueue(frame);
      case "cancel":
        return this.#stop("cancel");
      case "approve":
      case "deny":
        return void this.#answerApproval(frame);
      case "hello":
        this.#encode = frame.events ? encodeEvent : encodePlain;
        this.#answersApprovals = frame.approvals ?? true;
        return;
      case "ping":
        return this.#reply(PONG_FRAME);
    }
  }

  /** Answers an approval. The run that waits for it shows the answer as `approval_answered`. */
  async #answerApproval(frame: AnswerFrame): Promise<void> {
    const { parts, caller } = this.#options;
    const { type: decision, approval_id, remember, match } = frame;
    const content = frame.type === "approve" ? frame.content ?? undefined : undefined;
    try {
      await parts.approvals.answer(approval_id, {
        decision,
        remember: remember ?? undefined,
        match: match ?? undefined,
        content,
        by: caller,
      });
    } catch (error) {
      this.#report(error);
    }
  }

  /** Tells whether the reader of this connection sees approvals and may answer them. */
  #mayApprove(): boolean {
    return this.#encode === encodeEvent && this.#answersApprovals && hasScope(this.#options.caller.scopes, "approve");
  }

  /** Tells whether a message goes to its conversation at once. Before the first run has made the conversation, it waits for its turn. */
  #isSteering(frame: MessageFrame): boolean {
    const { mode = "queue" } = frame;
    return mode !== null && mode !== "queue" && this.#placeOf(frame) !== "new" && this.#queue.length < MAX_QUEUED;
  }

  /** Returns the conversation of a message. One with a mode that names none is for the reply at work. */
  #placeOf({ conversation_id, mode }: MessageFrame): string {
    return conversation_id ?? (mode == null ? undefined : this.#reading?.conversationId) ?? this.#conversationId;
  }

  #enqueue(frame: MessageFrame | ResumeFrame | Steered): void {
    if (frame.type === "steered") {
      frame.reading.catch((error) => {
        const at = this.#queue.indexOf(frame);
        // The work on it tells of the failure itself
        if (at < 0) return;
        this.#queue.splice(at, 1);
        this.#report(error);
      });
      // Before the messages that wait for their turn here: it has its place in the conversation already
      const behind = this.#queue.findIndex(({ type }) => type !== "steered");
      this.#queue.splice(behind < 0 ? this.#queue.length : behind, 0, frame);
      if (!this.#isWorking) void this.#work();
      return;
    }
    if (this.#queue.length >= MAX_QUEUED) {
      return this.#fail(
        "overloaded",
        `Cannot take the ${frame.type}: one is being answered and ${MAX_QUEUED} wait; send it again after the next answer`,
      );
    }
    this.#queue.push(frame);
    if (!this.#isWorking) void this.#work();
  }

  async #work(): Promise<void> {
    this.#isWorking = true;
    for (let frame = this.#queue.shift(); frame !== undefined; frame = this.#queue.shift()) {
      try {
        const ended = await this.#show(await this.#open(frame));
        if (!ended && frame.type !== "resume") throw endedInSilence();
      } catch (error) {
        this.#report(error);
      }
      this.#reading = undefined;
      this.#stopBeforeStart = undefined;
    }
    this.#isWorking = false;
    this.#watch.active();
    if (this.#isOpen && this.#options.parts.sockets.draining()) this.#close(GOING_AWAY, "The gateway is shutting down");
  }

  #open(frame: MessageFrame | ResumeFrame | Steered): Promise<Reading> {
    if (frame.type === "steered") return frame.reading;
    return frame.type === "message" ? this.#start(frame) : this.#resume(frame);
  }

  async #start(frame: MessageFrame): Promise<Reading> {
    const { text: message, conversation_id, model, mode, files: ids } = frame;
    const { parts, caller, requestId } = this.#options;
    const { runs, files: sent } = requireAgent(parts);
    if (this.#reads.signal.aborted) this.#reads = new AbortController();
    const asking = { caller, signal: this.#reads.signal };
    const files = ids?.length ? await readSentFiles(ids, { files: sent, log: parts.kit.log, asking }) : undefined;
    const steers = mode == null ? undefined : { mode };
    const handle = await runs.start(toChatRequest(
      { message, conversationId: this.#placeOf(frame), model: model ?? undefined, files },
      { kind: "chat", by: { caller, requestId, steers }, durable: false, reader: { canApprove: this.#mayApprove() } },
    ));
    if (mode != null) this.#reply(acceptedFrame(handle.id, handle.steers));
    if (conversation_id === undefined || conversation_id === null) {
      this.#conversationId = handle.conversationId ?? this.#conversationId;
    }
    let isLive = true;
    return {
      runId: handle.id,
      events: handle.events(({ live }) => void (isLive = live)),
      isLive: () => isLive,
      steers: handle.steers !== undefined,
      conversationId: handle.conversationId ?? undefined,
      cancel: () => handle.cancel("cancelled"),
      leave: () => handle.leave("client_gone"),
    };
  }

  /** Reads a run that this connection did not start, if its caller may (see openRunEvents). */
  async #resume({ run_id: runId, after }: ResumeFrame): Promise<Reading> {
    const { parts, caller } = this.#options;
    const { runs } = requireAgent(parts);
    const reading = new AbortController();
    let isLive = true;
    const options = {
      ...{ after: { name: "after", seq: after }, signal: reading.signal, caller },
      onPace: ({ live }: RunPace) => void (isLive = live),
    };
    return {
      runId,
      isLive: () => isLive,
      events: (await openRunEvents(runs, runId, options)).events,
      cancel: () => void runs.cancel(runId, "cancelled").catch((error) => this.#report(error)),
      leave: () => reading.abort(new CancelError("client_gone")),
    };
  }

  /** Sends the events of a run. @returns true when the end of the run was sent; a shutdown stops a resumed run before its end */
  async #show(reading: Reading): Promise<boolean> {
    this.#reading = reading;
    if (this.#stopBeforeStart !== undefined) reading[this.#stopBeforeStart]();
    let ended = false;
    for await (const events of reading.events) {
      ended = this.#deliver(events, reading) || ended;
      // The run pauses because nobody reads on until the outbox is ready
      if (!await this.#outbox.ready() && this.#isOpen) this.#giveUp(reading.runId, events.at(-1)?.seq ?? 0);
    }
    return ended;
  }

  /** @returns true when the run has ended with these events */
  #deliver(events: readonly AgentEvent[], { runId, isLive, steers }: Reading): boolean {
    for (const event of events) {
      // The run that took the message in has shown it
      if (steers && event.type === "error" && event.code === "taken_in") return true;
      const encoded = this.#encode(event, runId);
      const frame = encoded === undefined || isLive() ? encoded : notLive(encoded);
      if (frame !== undefined && !this.#outbox.send(frame) && this.#isOpen) this.#giveUp(runId, event.seq);
      if (isTerminal(event)) return true;
    }
    return false;
  }

  #giveUp(runId: string, seq: number): void {
    this.#close(TRY_AGAIN_LATER, `${TOO_SLOW}; resume run_id=${runId} after=${seq}`);
  }
}

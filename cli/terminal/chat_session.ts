import { toChatRequest } from "../../handlers/wire/agent_runs.ts";
import { readSentFiles } from "../../handlers/wire/sent_files.ts";
import { CancelError, type CancelReason } from "../../lib/base/cancel.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import type { MessageMode } from "../../lib/base/records/run.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import { CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";

/** Event of a reply. An error from outside a run has only a code and a message. */
export type ChatEvent =
  | AgentEvent
  | { readonly type: "error"; readonly code: string; readonly message: string }
  | AcceptedMessage;

/** A message to a reply at work is on disk. */
export interface AcceptedMessage {
  readonly type: "accepted";
  readonly run_id: string;
  /** `queue` for one that is the next turn in any case */
  readonly mode: MessageMode;
}

/** Model and conversation of the next message. Both may change between two messages. */
export interface ChatTopic {
  /** Model, as provider/model. Undefined: the configured model */
  model: string | undefined;
  /** Conversation to go on with. Undefined: a new one. Set by each reply */
  conversationId: string | undefined;
}

/** Options of `openChatSession`. */
export interface ChatOptions {
  readonly topic: ChatTopic;
  /** True while somebody can answer approvals. Otherwise a call that needs one is denied at once as `nobody_could_answer` */
  readonly canApprove: boolean;
}

/** Conversation at the terminal, one message at a time. */
export interface ChatSession {
  /** Sends a message. @param files ids of files that go with it. @returns the events of the reply, up to `done` or `error` */
  send(text: string, files: readonly string[]): AsyncIterable<ChatEvent>;
  /** Joins a reply that is at work. @returns its events from the first on, as `send` */
  join(runId: string): AsyncIterable<ChatEvent>;
  /**
   * Says something to the reply under way. What it does not take in is the next turn, whose events follow those of the reply. An `accepted`
   * event says which it is.
   */
  steer(text: string, mode: "steer" | "interrupt"): void;
  /** Stops the reply under way. Its events then end with an error */
  cancel(): void;
  close(): void;
}

/** Opens a session with the running gateway over its WebSocket, else with the services in this process. @throws {CommandError} */
export async function openChatSession(gateway: ReachedGateway, options: ChatOptions): Promise<ChatSession> {
  if (gateway.running === undefined) return localSession(gateway, options);
  const { ticket } = await gateway.call("POST /v1/ws-ticket");
  const socket = await gateway.running.client.openSocket(`/ws/chat?ticket=${encodeURIComponent(ticket)}`);
  socket.send(JSON.stringify({ type: "hello", events: true, approvals: options.canApprove }));
  const frames = socket.frames()[Symbol.asyncIterator]();
  const { topic } = options;
  let work = new OpenWork();
  async function* reply(command: Readonly<Record<string, unknown>>): AsyncGenerator<ChatEvent> {
    work = new OpenWork();
    socket.send(JSON.stringify(command));
    for (;;) {
      const frame = await frames.next();
      if (frame.done === true) {
        throw new CommandError(
          "The gateway closed the connection; postern chat --continue shows what became of the reply",
        );
      }
      // The gateway sends its own events and nothing else
      const event = JSON.parse(frame.value) as ChatEvent;
      if (event.type === "run_start") topic.conversationId = event.conversation_id ?? topic.conversationId;
      yield event;
      work.take(event);
      if (work.isOver()) return;
    }
  }
  return {
    send: (text, files) =>
      reply({
        ...{ type: "message", text, model: topic.model, conversation_id: topic.conversationId ?? "new" },
        ...(files.length === 0 ? {} : { files }),
      }),
    join: (runId) => reply({ type: "resume", run_id: runId, after: 0 }),
    steer(text, mode) {
      work.send();
      socket.send(JSON.stringify({ type: "message", text, mode, conversation_id: topic.conversationId }));
    },
    cancel: () => socket.send(JSON.stringify({ type: "cancel" })),
    close: () => socket.close(),
  };
}

/** A reply at work, and the messages to it whose own end is still to come. */
class OpenWork {
  #hasBegun = false;
  #hasEnded = false;
  /** Number of messages that were not accepted yet */
  #sent = 0;
  readonly #accepted = new Set<string>();
  /** Messages that were taken in before this side knew that they were accepted */
  readonly #taken = new Set<string>();

  send(): void {
    this.#sent++;
  }

  take(event: ChatEvent & { readonly run_id?: string }): void {
    const runId = event.run_id ?? "";
    if (event.type === "run_start") {
      this.#hasBegun = true;
      if (!this.#hasEnded || this.#accepted.has(runId)) return;
      // The refusal before it was not that of the reply
      this.#hasEnded = false;
      this.#settleOne();
    } else if (event.type === "accepted") {
      this.#settleOne();
      if (!this.#taken.delete(runId)) this.#accepted.add(runId);
    } else if (event.type === "message_taken") {
      if (!this.#accepted.delete(event.message_id)) this.#taken.add(event.message_id);
    } else if (isTerminal(event)) {
      // A refusal names no run: it is that of a message once the reply has begun, or was refused itself
      if (runId === "" && this.#sent > 0 && (this.#hasBegun || this.#hasEnded)) this.#settleOne();
      else this.#hasEnded = true;
      this.#accepted.delete(runId);
    }
  }

  #settleOne(): void {
    this.#sent = Math.max(0, this.#sent - 1);
  }

  /** Tells whether the reply has ended, and no reply to a message follows. */
  isOver(): boolean {
    return this.#hasEnded && this.#sent === 0 && this.#accepted.size === 0;
  }
}

function localSession({ services }: ReachedGateway, options: ChatOptions): ChatSession {
  const agent = services?.agent;
  if (services === undefined || agent === undefined) {
    throw new CommandError('Cannot chat: there is no agent, since provider.kind is "none"');
  }
  const { runs, files: sent } = agent;
  const { topic } = options;
  const caller = { via: "cli", tokenId: null, scopes: SCOPES } as const;
  let running: Pick<RunHandle, "cancel" | "leave"> | undefined;
  /** Messages to the reply at work */
  const more: Promise<RunHandle>[] = [];
  const start = async (text: string, mode: MessageMode, ids: readonly string[]) => {
    let files;
    if (ids.length > 0) {
      const reads = new AbortController();
      const stop = (reason: CancelReason) => reads.abort(new CancelError(reason));
      running = { cancel: stop, leave: stop };
      const asking = { caller, signal: reads.signal };
      files = await readSentFiles(ids, { files: sent, log: services.log, asking });
    }
    const by = { caller, steers: mode === "queue" ? undefined : { mode } };
    return await runs.start(toChatRequest(
      { message: text, model: topic.model, conversationId: topic.conversationId ?? "new", files },
      { kind: "chat", by, durable: false, reader: { canApprove: options.canApprove } },
    ));
  };
  return {
    async *send(text, ids) {
      let next: Promise<RunHandle> | undefined = start(text, "queue", ids);
      for (; next !== undefined; next = more.shift()) {
        let started: RunHandle;
        try {
          started = await next;
        } catch (error) {
          if (!(error instanceof CancelError)) throw error;
          // Stopped while the files were read: the chat goes on
          yield { type: "error", code: error.reason, message: error.message };
          continue;
        }
        running = started;
        topic.conversationId = started.conversationId ?? topic.conversationId;
        for await (const events of started.events()) {
          for (const event of events) if (event.type !== "error" || event.code !== "taken_in") yield event;
        }
      }
    },
    steer(text, mode) {
      const started = start(text, mode, []);
      started.catch(() => {}); // Told when its turn comes
      more.push(started);
    },
    async *join(runId) {
      const reading = new AbortController();
      const cancel = () => void runs.cancel(runId, "cancelled").catch(() => {});
      running = { cancel, leave: () => reading.abort() };
      for await (const events of await runs.follow(runId, { afterSeq: 0, signal: reading.signal }) ?? []) yield* events;
    },
    cancel: () => running?.cancel("cancelled"),
    close: () => running?.leave("client_gone"),
  };
}

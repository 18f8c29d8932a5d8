import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { askPerson } from "../terminal/ask_person.ts";
import { namesPasted, sendNamedFiles, type Typed } from "../terminal/send_named_files.ts";
import { ChatCommands, findConversation } from "../terminal/chat_commands.ts";
import { type ChatHistory, openChatHistory } from "../terminal/chat_history.ts";
import { type ChatEvent, type ChatSession, type ChatTopic, openChatSession } from "../terminal/chat_session.ts";
import type { LineReader } from "../terminal/line_reader.ts";
import { offerTool, type OffTool } from "../terminal/offer_tool.ts";
import { createReplyView } from "../terminal/reply_view.ts";
import { messageColumns, printableLine, wrapText } from "../terminal/terminal_text.ts";

/**
 * Command `postern chat`: a conversation at the terminal until Ctrl-D, or a single reply to a message that is an argument or is
 * piped in. The answer goes to stdout as it comes, tool use and notices to stderr. Ctrl-C cancels the reply, a second Ctrl-C ends
 * the chat. A reply goes on when the terminal is closed: the next chat of its conversation shows it. With --json each event is a line of stdout.
 */
export const chatCommand = defineCliCommand({
  args: {
    "...message": {
      type: "positional",
      required: false,
      description: "One message; without it standard input or the terminal is read, where /help lists commands",
    },
    model: { type: "string", valueHint: "name", description: "Model, as provider/model (default: the configured one)" },
    conversation: { type: "string", valueHint: "id", description: "Go on with this conversation" },
    continue: { type: "boolean", default: false, description: "Go on with the conversation of the last chat" },
  },
  example: 'postern chat "What is in this folder?"',
  async run(context, args) {
    if (args.continue && args.conversation !== undefined) {
      throw new UsageError("Cannot use --continue with --conversation: give one of them");
    }
    const message = args._.length > 0 ? args._.join(" ") : await context.io.readStdin();
    if (message?.trim() === "") throw new CommandError("Cannot chat: the message is empty");
    const { dataDir } = await context.loadConfig();
    const gateway = await reachGateway(context, { agent: true });
    try {
      const history = await openChatHistory(dataDir, context.say);
      const last = args.continue ? await lastConversation(gateway, history) : undefined;
      const topic: ChatTopic = { model: args.model, conversationId: last?.id ?? args.conversation };
      // With --json the program that reads the events answers approvals over the API, which needs a running gateway
      const canApprove = context.flags.json ? gateway.running !== undefined : context.io.canAsk;
      const session = await openChatSession(gateway, { topic, canApprove });
      try {
        const talk: Talk = { context, session, gateway, topic, history, offered: new Set() };
        if (typeof last?.run_id === "string") await showUnended(talk, last.run_id);
        const code = message === undefined ? await converse(talk) : await sayMessage(talk, message, { words: args._ });
        if (topic.conversationId !== undefined) await history.setConversation(topic.conversationId);
        if (message === undefined || context.io.isTerminal.stderr) sayConversation(talk);
        return code;
      } finally {
        session.close();
      }
    } finally {
      await gateway.close();
    }
  },
});

/** Chat under way, with all that its steps need. */
interface Talk {
  readonly context: CommandContext;
  readonly session: ChatSession;
  readonly gateway: ReachedGateway;
  readonly topic: ChatTopic;
  readonly history: ChatHistory;
  /** Terminal, where lines are read from one */
  readonly reader?: LineReader;
  /** Tools that were offered to be turned on: no one twice */
  readonly offered: Set<string>;
}

/** Returns the last chat's conversation. @throws {CommandError} there was no chat, or its conversation was deleted */
async function lastConversation(gateway: ReachedGateway, { lastConversation: id }: ChatHistory) {
  if (id === undefined) throw new CommandError("Cannot go on: no chat was held with this data directory yet");
  return await findConversation(gateway, id);
}

/** Shows the reply that is at work in the conversation, from its beginning. */
async function showUnended(talk: Talk, runId: string): Promise<void> {
  const { context: { say }, gateway, session } = talk;
  const { message } = await gateway.call("GET /v1/runs/:id", { params: { id: runId } });
  say(`This reply is at work since you left. You asked: ${printableLine(message ?? "")}`);
  await showReply(talk, session.join(runId));
}

function sayConversation({ context: { say, flags }, topic: { conversationId } }: Talk): void {
  if (conversationId === undefined || flags.json) return;
  say(
    `Conversation ${conversationId}: postern chat --continue goes on with it, later --conversation ${conversationId}`,
  );
}

const GREETING = "Ctrl-C stops a reply, Ctrl-D ends the chat, /help lists commands.";

async function converse(talk: Talk): Promise<number> {
  const { context, gateway, topic, history } = talk;
  const reader = await context.io.openReader(history.lines);
  if (reader === undefined) return EXIT.ok;
  try {
    const withReader = { ...talk, reader, context: readingContext(context, reader) };
    const commands = new ChatCommands({ context, gateway, topic });
    context.say(wrapText(GREETING, messageColumns(context.io)).join("\n"));
    for (;;) {
      const line = await reader.read("> ");
      if (line === undefined) return EXIT.ok;
      if (line.trim() === "") continue;
      // A paste of several lines is not kept in the history, and no line whose files another chat would take for typed
      // deno-lint-ignore no-control-regex
      if (!/[\x00-\x1f]/.test(line) && !namesPasted(line, reader.pastes())) await history.add(line);
      const result = await commands.run(line);
      if (result === "exit") return EXIT.ok;
      if (result === "message") await sayLine(withReader, line.trim(), { pastes: reader.pastes() });
    }
  } finally {
    reader.close();
  }
}

/** Sends a message with the files that it names, and shows the reply. @throws {CommandError} for a file that cannot be sent */
async function sayMessage(talk: Talk, text: string, typed: Typed): Promise<number> {
  const files = await sendNamedFiles(text, { ...talk, typed });
  return await showReply(talk, talk.session.send(text, files));
}

/** Says a line of a chat, which goes on where a file cannot be sent. */
async function sayLine(talk: Talk, text: string, typed: Typed): Promise<void> {
  let files: readonly string[];
  try {
    files = await sendNamedFiles(text, { ...talk, typed });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return talk.context.say(error.message);
  }
  await showReply(talk, talk.session.send(text, files));
}

/** Returns the context with questions and interrupts that come from the chat's line reader. */
function readingContext(context: CommandContext, reader: LineReader): CommandContext {
  const { io } = context;
  return {
    ...context,
    io: {
      ...io,
      ask: (question) => reader.ask(question),
      onInterrupt(listener) {
        const stops = [io.onInterrupt(listener), reader.onInterrupt(listener)];
        return () => stops.forEach((stop) => stop());
      },
    },
  };
}

async function showReply(talk: Talk, events: AsyncIterable<ChatEvent>): Promise<number> {
  const { context, session, gateway, topic, history, offered } = talk;
  let interrupts = 0;
  const ignore = context.io.onInterrupt(() => {
    // The second Ctrl-C closes the session, in case the gateway did not react to the first
    if (interrupts++ > 0) return session.close();
    context.say("Stopping the reply, for good; Ctrl-C once more ends the chat");
    session.cancel();
  });
  const stopOffers = talk.reader?.onLine((line) => {
    const [, mode, text = ""] = /^\/(steer|interrupt)\s+(\S[^]*)$/.exec(line) ?? [];
    if (mode === "steer" || mode === "interrupt") session.steer(text, mode);
    return mode !== undefined;
  });
  const reply = createReplyView(context);
  const off: OffTool[] = [];
  try {
    let failed = false;
    for await (const event of events) {
      reply.show(event);
      // Whoever closes the terminal now finds the conversation again
      if (event.type === "run_start" && topic.conversationId !== undefined) {
        await history.setConversation(topic.conversationId);
      }
      if (event.type === "approval_needed" && await askAbout(event.approval_id, talk) === "deny") {
        reply.denied(event.call_id);
      }
      if (event.type === "tool_end" && event.turn_on !== undefined && !offered.has(event.tool)) {
        offered.add(event.tool);
        off.push({ tool: event.tool, ...event.turn_on });
      }
      failed ||= event.type === "error";
    }
    reply.end();
    for (const missed of off) {
      if (await offerTool(context, gateway, missed)) context.say(`${missed.tool} is on from your next message`);
    }
    return failed ? EXIT.failed : EXIT.ok;
  } finally {
    reply.end();
    ignore();
    stopOffers?.();
    // Kept after each reply, so that --continue finds the conversation however the chat ends
    if (topic.conversationId !== undefined) await history.setConversation(topic.conversationId);
  }
}

/** Asks the person about a call of the reply, and returns what was answered. With --json a program answers over the API. */
async function askAbout(id: string, { context, session, gateway }: Talk): Promise<"approve" | "deny" | undefined> {
  if (context.flags.json) return undefined;
  const answer = await askPerson(context, gateway, { id, inRun: true });
  // No answer is not a denial: the reply stops, and the approval is withdrawn
  if (answer === undefined) session.cancel();
  return answer;
}

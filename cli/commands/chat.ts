import { type ChatSession, openChatSession } from "../chat_session.ts";
import { askPerson } from "../ask_person.ts";
import { CommandError } from "../cli_error.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { createReplyView } from "../reply_view.ts";

/**
 * `postern chat`: at a terminal a conversation until Ctrl-D; with a message, or one piped in, a single reply. The answer goes to
 * stdout as it comes, tool use and notices to stderr. Ctrl-C cancels the reply, a second one ends the chat. With --json one event a line.
 */
export const chatCommand = defineCliCommand({
  args: {
    "...message": {
      type: "positional",
      required: false,
      description: "One message; without it standard input or the terminal is read",
    },
    model: { type: "string", valueHint: "name", description: "Model, as provider/model (default: the configured one)" },
    conversation: { type: "string", valueHint: "id", description: "Go on with this conversation" },
  },
  example: 'postern chat "What is in this folder?"',
  async run(context, args) {
    const message = args._.length > 0 ? args._.join(" ") : await context.io.readStdin();
    if (message?.trim() === "") throw new CommandError("Cannot chat: the message is empty");
    const gateway = await reachGateway(context, { agent: true });
    try {
      const session = await openChatSession(gateway, {
        model: args.model,
        conversationId: args.conversation,
        // With --json the reader of the events answers, by whatever way, which takes a gateway that runs
        canApprove: context.flags.json ? gateway.running !== undefined : context.io.canAsk,
      });
      try {
        const talk: Talk = { context, session, gateway };
        return message === undefined ? await converse(talk) : await showReply(talk, message);
      } finally {
        session.close();
      }
    } finally {
      await gateway.close();
    }
  },
});

interface Talk {
  readonly context: CommandContext;
  readonly session: ChatSession;
  readonly gateway: ReachedGateway;
}

async function converse(talk: Talk): Promise<number> {
  const { context } = talk;
  context.say("Ctrl-C stops a reply, Ctrl-D ends the chat.");
  for (;;) {
    const line = await context.io.ask("> ");
    if (line === undefined) return EXIT.ok;
    if (line.trim() !== "") await showReply(talk, line);
  }
}

async function showReply({ context, session, gateway }: Talk, message: string): Promise<number> {
  let interrupts = 0;
  // Should the gateway not react to the first one, the second leaves it
  const ignore = context.io.onInterrupt(() => (interrupts++ === 0 ? session.cancel() : session.close()));
  const reply = createReplyView(context);
  try {
    let failed = false;
    for await (const event of session.send(message)) {
      reply.show(event);
      if (event.type === "approval_needed" && !context.flags.json) {
        const answer = await askPerson(context, gateway, { id: event.approval_id, inRun: true });
        // No answer is nobody's no: the reply stops, and its question is withdrawn
        if (answer === undefined) session.cancel();
      }
      failed ||= event.type === "error";
    }
    return failed ? EXIT.failed : EXIT.ok;
  } finally {
    reply.end();
    ignore();
  }
}

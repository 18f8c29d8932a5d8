import { CommandError } from "../cli_error.ts";
import type { CommandContext } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import type { ChatTopic } from "./chat_session.ts";
import { harmless, toTable } from "./terminal_text.ts";

/** Result of a chat line that begins with a slash: the command is done, the chat ends, or the line is a message to send. */
export type ChatCommandResult = "done" | "exit" | "message";

export interface ChatCommands {
  /** Runs a command. @returns `message` for a line that is none, as a call of the offline assistant */
  run(line: string): Promise<ChatCommandResult>;
}

interface Conversation {
  readonly id: string;
  readonly title?: string | null;
  readonly updated_at: string;
  readonly message_count: number;
}

interface ToolLine {
  readonly name: string;
  readonly enabled: boolean;
  readonly description: string;
}

const MAX_LISTED = 10;
const MAX_TITLE = 50;
const DEFAULT_COLUMNS = 80;

const HELP = [
  ["/help", "this list"],
  ["/new", "begin a new conversation"],
  ["/resume", `list the last ${MAX_LISTED} conversations`],
  ["/resume <number or id>", "go on with one"],
  ["/model", "list the models"],
  ["/model <name>", "use one from the next message on; /model default goes back"],
  ["/tools", "list the agent's tools"],
  ["/exit", "end the chat, as Ctrl-D does"],
] as const;

const NOTES =
  "With the offline assistant /<tool> {...} calls a tool. A line that begins with a space is sent as it is.\n" +
  "Ctrl-C stops a reply, or empties the line. Up and down give earlier messages; a paste is one piece.\n" +
  "To connect a model: postern init asks which, or put a key into the environment, as OPENAI_API_KEY.";

/** The commands of a chat, which change what the next message is about. */
export function createChatCommands(
  { context, gateway, topic }: {
    readonly context: CommandContext;
    readonly gateway: ReachedGateway;
    readonly topic: ChatTopic;
  },
): ChatCommands {
  const { say } = context;
  let listed: readonly Conversation[] = [];
  let tools: readonly ToolLine[] | undefined;
  const get = (path: string) => gateway.request({ method: "GET", path });
  const knownTools = async () => tools ??= ((await get("/v1/tools")) as { data: readonly ToolLine[] }).data;

  const resume = async (which: string): Promise<void> => {
    if (which === "") {
      listed = ((await get(`/v1/conversations?limit=${MAX_LISTED}`)) as { data: readonly Conversation[] }).data;
      const rows = listed.map(({ id, title, updated_at, message_count }, index) => [
        String(index + 1),
        id,
        updated_at,
        String(message_count),
        shorten(title ?? "", MAX_TITLE),
      ]);
      return say(
        rows.length === 0
          ? "There is no conversation yet"
          : `${toTable(["", "ID", "LAST", "MESSAGES", "ABOUT"], rows)}\n/resume <number> goes on with one`,
      );
    }
    const id = /^\d{1,3}$/.test(which) ? listed[Number(which) - 1]?.id : which;
    if (id === undefined) return say(`There is no conversation number ${which}: /resume lists them`);
    const { message_count: count } = await findConversation(gateway, id);
    topic.conversationId = id;
    say(`Goes on with ${id}, of ${count} messages`);
  };

  const model = async (name: string): Promise<void> => {
    if (name === "default") {
      topic.model = undefined;
      return say("The configured model answers from now on");
    }
    const { data } = await get("/v1/models") as { data: readonly { readonly id: string }[] };
    const ids = data.map(({ id }) => id);
    if (name === "") {
      const now = topic.model ?? "default";
      return say(
        [...ids, `In use: ${now}. /model <name> changes it, /model default goes back`].map(harmless).join("\n"),
      );
    }
    topic.model = name;
    say(
      ids.includes(name)
        ? `${name} answers from now on`
        : `"${harmless(name)}" is not among the models that are listed; the next message tries it`,
    );
  };

  const listTools = async (): Promise<void> => {
    const all = await knownTools();
    const on = all.filter(({ enabled }) => enabled);
    const off = all.length - on.length;
    const nameWidth = Math.max(0, ...on.map(({ name }) => name.length));
    // Two blanks between the columns, three dots at the end
    const width = Math.max(20, (context.io.columns ?? DEFAULT_COLUMNS) - nameWidth - 5);
    say(toTable(["TOOL", "WHAT"], on.map(({ name, description }) => [name, shorten(description, width)])));
    if (off > 0) say(`${off} more are off: postern tools list says why`);
  };

  const runKnown = async (command: string, rest: string): Promise<ChatCommandResult | undefined> => {
    switch (command) {
      case "/help":
        say(`${HELP.map(([name, what]) => `  ${name.padEnd(24)}${what}`).join("\n")}\n${NOTES}`);
        return "done";
      case "/new":
        topic.conversationId = undefined;
        say("A new conversation begins with the next message");
        return "done";
      case "/resume":
        await resume(rest);
        return "done";
      case "/model":
        await model(rest);
        return "done";
      case "/tools":
        await listTools();
        return "done";
      case "/exit":
      case "/quit":
        return "exit";
      default:
        return undefined;
    }
  };

  return {
    async run(line) {
      const [, command = "", rest = ""] = /^(\/\S*)\s*(.*)$/s.exec(line.trimEnd()) ?? [];
      if (command === "") return "message";
      try {
        const known = await runKnown(command, rest.trim());
        if (known !== undefined) return known;
        // The offline assistant calls a tool by its name; any other such word is a slip
        if ((await knownTools()).some(({ name }) => command === `/${name}`) || !/^\/[a-z_]+$/.test(command)) {
          return "message";
        }
        say(`There is no command ${command}: /help lists them. A line that begins with a space is sent as it is`);
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        say(error.message);
      }
      return "done";
    },
  };
}

/** Finds a conversation that is kept, so that no new one begins under a mistyped id. @throws {CommandError} there is none */
export async function findConversation(gateway: ReachedGateway, id: string): Promise<Conversation> {
  const path = `/v1/conversations/${encodeURIComponent(id)}?limit=1`;
  return await gateway.request({ method: "GET", path }) as Conversation;
}

function shorten(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit)}...` : text;
}

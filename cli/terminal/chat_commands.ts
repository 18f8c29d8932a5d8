import type { Conversation, OpenedConversation } from "../../lib/base/records/conversation.ts";
import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import type { ChatTopic } from "./chat_session.ts";
import { messageColumns, printableLine, toDefinitions, toTable, wrapText } from "./terminal_text.ts";

/** Result of a chat line that begins with a slash: the command is done, the chat ends, or the line is a message to send. */
export type ChatCommandResult = "done" | "exit" | "message";

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
  ["/steer <message>", "while a reply is at work: it takes the message in after the tool call at work"],
  ["/interrupt <message>", "while a reply is at work: stop it, and answer this instead"],
  ["/exit", "end the chat, as Ctrl-D does"],
] as const;

const NOTES =
  "With the offline assistant /<tool> {...} calls a tool. A line that begins with a space is sent as it is.\n" +
  "A line that is typed while a reply is at work waits for its turn.\n" +
  "Ctrl-C stops a reply, or empties the line. Up and down give earlier messages; a paste is one piece.\n" +
  "To connect a model: postern init asks which, or put a key into the environment, such as OPENAI_API_KEY.";

interface ChatCommandsOptions {
  readonly context: CommandContext;
  readonly gateway: ReachedGateway;
  readonly topic: ChatTopic;
}

/** Commands of a chat. */
export class ChatCommands {
  readonly #context: CommandContext;
  readonly #gateway: ReachedGateway;
  readonly #topic: ChatTopic;
  /** Conversations as /resume listed them last */
  #listed: readonly Conversation[] = [];
  #tools: readonly Pick<ToolInfo, "name" | "enabled" | "description">[] | undefined;

  constructor({ context, gateway, topic }: ChatCommandsOptions) {
    this.#context = context;
    this.#gateway = gateway;
    this.#topic = topic;
  }

  /** Runs a command. @returns `message` for a line that is no command, such as a tool call for the offline assistant */
  async run(line: string): Promise<ChatCommandResult> {
    const [, command = "", rest = ""] = /^(\/\S*)\s*(.*)$/s.exec(line.trimEnd()) ?? [];
    if (command === "") return "message";
    try {
      const known = await this.#runKnown(command, rest.trim());
      if (known !== undefined) return known;
      // The offline assistant calls a tool by its name; any other such word is a typing error
      const isTool = (await this.#knownTools()).some(({ name }) => command === `/${name}`);
      if (isTool || !/^\/[a-z_]+$/.test(command)) return "message";
      this.#say(`There is no command ${command}: /help lists them. A line that begins with a space is sent as it is`);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      this.#say(error.message);
    }
    return "done";
  }

  /** Runs a command of the list. Undefined for any other word. */
  async #runKnown(command: string, rest: string): Promise<ChatCommandResult | undefined> {
    switch (command) {
      case "/help":
        this.#say([toDefinitions(HELP, this.#columns), ...wrapText(NOTES, this.#columns)].join("\n"));
        return "done";
      case "/new":
        this.#topic.conversationId = undefined;
        this.#say("A new conversation begins with the next message");
        return "done";
      case "/resume":
        await (rest === "" ? this.#listConversations() : this.#resume(rest));
        return "done";
      case "/model":
        await this.#model(rest);
        return "done";
      case "/tools":
        await this.#listTools();
        return "done";
      case "/steer":
      case "/interrupt":
        this.#say("No reply is at work: send the message without the command");
        return "done";
      case "/exit":
      case "/quit":
        return "exit";
      default:
        return undefined;
    }
  }

  async #listConversations(): Promise<void> {
    const reply = await this.#gateway.call("GET /v1/conversations", { query: { limit: MAX_LISTED } });
    this.#listed = reply.data;
    if (this.#listed.length === 0) return this.#say("There is no conversation yet");
    const rows = this.#listed.map(({ id, title, updated_at, message_count }, index) => [
      String(index + 1),
      id,
      updated_at,
      String(message_count),
      shorten(title ?? "", MAX_TITLE),
    ]);
    this.#say(
      `${toTable(["", "ID", "LAST", "MESSAGES", "ABOUT"], rows, this.#columns)}\n/resume <number> goes on with one`,
    );
  }

  /** Goes on with a conversation. @param which number in the list, or id */
  async #resume(which: string): Promise<void> {
    const id = /^\d{1,3}$/.test(which) ? this.#listed[Number(which) - 1]?.id : which;
    if (id === undefined) return this.#say(`There is no conversation number ${which}: /resume lists them`);
    const { message_count: count } = await findConversation(this.#gateway, id);
    this.#topic.conversationId = id;
    this.#say(`Goes on with ${id}, of ${count} messages`);
  }

  /** Chooses the model of the next message. @param name empty: lists the models */
  async #model(name: string): Promise<void> {
    if (name === "default") {
      this.#topic.model = undefined;
      return this.#say("The configured model answers from now on");
    }
    const { data } = await this.#gateway.call("GET /v1/models");
    const ids = data.map(({ id }) => id);
    if (name === "") {
      const now = this.#topic.model ?? "default";
      const all = [...ids, `In use: ${now}. /model <name> changes it, /model default goes back`];
      return this.#say(all.map(printableLine).join("\n"));
    }
    this.#topic.model = name;
    this.#say(
      ids.includes(name)
        ? `${name} answers from now on`
        : `"${printableLine(name)}" is not among the models that are listed; the next message tries it`,
    );
  }

  async #listTools(): Promise<void> {
    const all = await this.#knownTools();
    const on = all.filter(({ enabled }) => enabled);
    const off = all.length - on.length;
    const nameWidth = Math.max(0, ...on.map(({ name }) => name.length));
    // Two blanks between the columns, three dots at the end
    const width = Math.max(20, (this.#columns ?? DEFAULT_COLUMNS) - nameWidth - 5);
    this.#say(toTable(["TOOL", "WHAT"], on.map(({ name, description }) => [name, shorten(description, width)])));
    if (off > 0) this.#say(`${off} more are off: postern tool list says how to turn each on`);
  }

  async #knownTools(): Promise<readonly Pick<ToolInfo, "name" | "enabled" | "description">[]> {
    return this.#tools ??= (await this.#gateway.call("GET /v1/tools")).data;
  }

  get #columns(): number | undefined {
    return messageColumns(this.#context.io);
  }

  #say(message: string): void {
    this.#context.say(message);
  }
}

/** Finds a stored conversation, so that no new one begins under a mistyped id. @throws {CommandError} there is no such conversation */
export async function findConversation(gateway: ReachedGateway, id: string): Promise<OpenedConversation> {
  return await gateway.call("GET /v1/conversations/:id", { params: { id }, query: { limit: 1 } });
}

function shorten(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit)}...` : text;
}

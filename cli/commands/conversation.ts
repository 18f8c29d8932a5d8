import type { ReplyOf } from "../../handlers/routes.ts";
import { defineCliCommand } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { MAX_PRINTED, printPage } from "../terminal/print_page.ts";
import { printable } from "../terminal/terminal_text.ts";

const ID = {
  type: "positional",
  required: true,
  description: "Id of the conversation, from postern conversation list",
} as const;
const MAX_SHOWN = 100;
const PAGE = 1000;

type Message = ReplyOf<"GET /v1/conversations/:id">["messages"]["data"][number];

/** Command `postern conversation list`: the newest conversations. */
export const conversationListCommand = defineCliCommand({
  args: {},
  example: "postern conversation list",
  run: (context) =>
    withGateway(
      context,
      (gateway) =>
        printPage(context, gateway.call("GET /v1/conversations", { query: { limit: MAX_PRINTED } }), {
          heads: ["ID", "CHANGED", "MESSAGES", "TITLE"],
          toRow: (
            { id, updated_at: changed, message_count: count, title },
          ) => [id, changed, String(count), title ?? ""],
          none: "There is no conversation yet",
        }),
    ),
});

/** Command `postern conversation show <id>`: the last messages of a conversation. */
export const conversationShowCommand = defineCliCommand({
  args: { id: ID },
  example: "postern conversation show my-notes",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const { message_count: count } = await page(gateway, id, 0, 1);
      const after = Math.max(0, count - MAX_SHOWN);
      const { messages: { data }, ...conversation } = await page(gateway, id, after, MAX_SHOWN);
      const head = `${conversation.title ?? id}: ${count} messages, the last at ${conversation.updated_at}`;
      context.print({ ...conversation, messages: data }, printable([head, ...data.map(toMarkdown)].join("\n\n")));
      if (after > 0) context.say(`These are the last ${MAX_SHOWN}; postern conversation export ${id} prints all.`);
    }),
});

/** Command `postern conversation export <id>`: all messages, as Markdown or with --json as JSON. */
export const conversationExportCommand = defineCliCommand({
  args: { id: ID },
  example: "postern conversation export my-notes > my-notes.md",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const all: Message[] = [];
      for (;;) {
        const { messages: { data, has_more: hasMore }, ...conversation } = await page(
          gateway,
          id,
          all.at(-1)?.seq ?? 0,
          PAGE,
        );
        all.push(...data);
        if (hasMore && data.length > 0) continue;
        const text = [`# ${conversation.title ?? id}`, ...all.map(toMarkdown)].join("\n\n");
        return context.print({ ...conversation, messages: all }, context.io.isTerminal.stdout ? printable(text) : text);
      }
    }),
});

/** Command `postern conversation remove <id>`: deletes a conversation. Records of its runs stay. */
export const conversationRemoveCommand = defineCliCommand({
  args: { id: ID },
  example: "postern conversation remove my-notes",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      context.print(await gateway.call("DELETE /v1/conversations/:id", { params: { id } }), `Deleted ${id}`);
    }),
});

async function page(gateway: ReachedGateway, id: string, after: number, limit: number) {
  return await gateway.call("GET /v1/conversations/:id", { params: { id }, query: { after, limit } });
}

function toMarkdown({ role, content, tool_calls: calls = [], cut }: Message): string {
  const text = typeof content === "string"
    ? content
    : (content ?? []).map((part) => part.text ?? `(${part.type})`).join("\n");
  const lines = calls.map(({ function: { name, arguments: input } }) => `\`${name} ${input}\``);
  const end = cut === undefined ? [] : [`_Not said to its end: ${cut}_`];
  return [`**${role}**`, ...(text === "" ? [] : [text]), ...lines, ...end].join("\n\n");
}

import type {
  ListResourcesResult,
  ListResourceTemplatesResult,
  ReadResourceResult,
  Resource,
} from "@modelcontextprotocol/server";
import type { Conversation, OpenedConversation } from "../../lib/base/records/conversation.ts";
import type { Services } from "../../lib/services.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { CONVERSATION_PREFIX } from "./mcp_methods.ts";

const MEDIA_TYPE = "application/json";
const PAGE = 100;
/** Messages of a conversation that are read at once: the newest. */
const MAX_MESSAGES = 1_000;

/** Conversations as resources, for clients whose token has the scope `runs`. */
export class ConversationResources {
  readonly #sdk: McpSdk;
  readonly #conversations: Services["conversations"];

  constructor({ sdk, services }: { readonly sdk: McpSdk; readonly services: Pick<Services, "conversations"> }) {
    this.#sdk = sdk;
    this.#conversations = services.conversations;
  }

  /** Lists a page of conversations, the newest first. @param cursor id of the last one that was seen */
  async list(cursor: string | undefined): Promise<ListResourcesResult> {
    const { conversations, hasMore } = await this.#conversations.list({ after: cursor, limit: PAGE });
    const last = conversations.at(-1);
    return {
      resources: conversations.map(toResource),
      ...(hasMore && last !== undefined ? { nextCursor: last.id } : {}),
    };
  }

  templates(): ListResourceTemplatesResult {
    return {
      resourceTemplates: [{
        name: "conversation",
        title: "A conversation with the agent of this gateway",
        uriTemplate: `${CONVERSATION_PREFIX}{id}`,
        mimeType: MEDIA_TYPE,
      }],
    };
  }

  /** Reads one conversation with its newest messages. @throws {ProtocolError} -32602 for an address without one */
  async read(uri: string): Promise<ReadResourceResult> {
    const conversation = await this.find(uri);
    const { message_count: count, id } = conversation;
    const messages = await this.#conversations.messages(id, {
      afterSeq: Math.max(0, count - MAX_MESSAGES),
      limit: MAX_MESSAGES,
    });
    const said = messages.map(({ seq, runId, message, cut }) => ({ seq, run_id: runId, ...message, cut }));
    return {
      contents: [{ uri, mimeType: MEDIA_TYPE, text: JSON.stringify({ ...conversation, messages: said }) }],
    };
  }

  /** Returns the conversation at an address. @throws {ProtocolError} -32602 */
  async find(uri: string): Promise<OpenedConversation> {
    const id = uri.startsWith(CONVERSATION_PREFIX) ? decode(uri.slice(CONVERSATION_PREFIX.length)) : undefined;
    const found = id === undefined ? undefined : await this.#conversations.open(id);
    if (found !== undefined) return found;
    throw invalidParams(this.#sdk, "Cannot find this resource: resources/list shows those that exist", { uri });
  }
}

function toResource({ id, title, updated_at }: Conversation): Resource {
  return {
    uri: CONVERSATION_PREFIX + encodeURIComponent(id),
    name: id,
    title: title ?? id,
    description: `Conversation with the agent, last changed at ${updated_at}`,
    mimeType: MEDIA_TYPE,
    annotations: { lastModified: updated_at },
  };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

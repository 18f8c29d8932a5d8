import type { Server, ServerContext } from "@modelcontextprotocol/server";
import { hasScope } from "../../lib/base/records/caller.ts";
import type { Services } from "../../lib/services.ts";
import { checkScope } from "../door.ts";
import { ConversationResources } from "./conversation_resources.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { doorOfResource, isConversation, RESOURCE_DOORS } from "./mcp_methods.ts";
import { type McpGuard, type McpRequest, requestOf } from "./mcp_request.ts";
import type { ProgramServer } from "./program_server.ts";
import type { ResourceWatch } from "./resource_watch.ts";

/** Subscriptions of one session, and resources that a stream of notifications may name at once. */
export const MAX_SUBSCRIBED = 100;

/** Parts of the gateway that resources need. */
export interface ResourceParts {
  readonly sdk: McpSdk;
  readonly services: Services;
  readonly watch: ResourceWatch;
  readonly program: ProgramServer;
  readonly guarded: McpGuard;
}

/** Serves the resources of the program, which stand on the first page, and conversations. Each address is checked by the door of its kind. */
export function offerResources(server: Server, { sdk, services, watch, program, guarded }: ResourceParts): void {
  const conversations = new ConversationResources({ sdk, services });
  const mayReadConversations = (context: ServerContext) =>
    hasScope(requestOf(context).identity.scopes, RESOURCE_DOORS.conversation.access);
  server.setRequestHandler(
    "resources/list",
    ({ params }, context) =>
      guarded(context, async () => {
        const page = mayReadConversations(context) ? await conversations.list(params?.cursor) : { resources: [] };
        const own = params?.cursor === undefined ? program.resources() : [];
        return { ...page, resources: [...own, ...page.resources] };
      }),
  );
  server.setRequestHandler(
    "resources/templates/list",
    (_request, context) =>
      guarded(context, () => {
        const { resourceTemplates } = mayReadConversations(context)
          ? conversations.templates()
          : { resourceTemplates: [] };
        return { resourceTemplates: [...resourceTemplates, ...program.templates()] };
      }),
  );
  server.setRequestHandler("resources/read", ({ params: { uri } }, context) =>
    guarded(context, async () => {
      checkResource(uri, requestOf(context), "read");
      if (isConversation(uri)) return await conversations.read(uri);
      const found = await program.read(uri, context);
      if (found === undefined) throw notFound(sdk, uri);
      return found;
    }));
  const subscriptions = new Map<string, () => void>();
  const tell = (uri: string) => void server.sendResourceUpdated({ uri }).catch(() => {});
  server.setRequestHandler("resources/subscribe", ({ params: { uri } }, context) =>
    guarded(context, () => {
      checkResource(uri, requestOf(context), "subscribe to");
      if (!isConversation(uri) && !program.has(uri)) throw notFound(sdk, uri);
      if (subscriptions.has(uri)) return {};
      if (subscriptions.size >= MAX_SUBSCRIBED) {
        throw invalidParams(sdk, `Cannot subscribe: this session has ${MAX_SUBSCRIBED} subscriptions already`, { uri });
      }
      subscriptions.set(uri, watch.add(uri, tell, requestOf(context).identity.tokenId));
      return {};
    }));
  server.setRequestHandler("resources/unsubscribe", ({ params: { uri } }, context) =>
    guarded(context, () => {
      subscriptions.get(uri)?.();
      subscriptions.delete(uri);
      return {};
    }));
  server.onclose = () => {
    for (const remove of subscriptions.values()) remove();
    subscriptions.clear();
  };
}

/** Checks that the sender of a request may use the resource at an address. @throws {HttpError} 403 insufficient_scope */
function checkResource(uri: string, { identity }: McpRequest, verb: string): void {
  checkScope(doorOfResource(uri), identity, `${verb} this resource`);
}

function notFound(sdk: McpSdk, uri: string): Error {
  return invalidParams(sdk, "Cannot find this resource: resources/list shows those that exist", { uri });
}

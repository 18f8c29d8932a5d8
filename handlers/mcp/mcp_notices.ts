import type { ServerNotifier } from "@modelcontextprotocol/server";
import * as v from "valibot";
import type { Identity } from "../../lib/access/identity.ts";
import { hasScope } from "../../lib/base/records/caller.ts";
import type { Services } from "../../lib/services.ts";
import { isPermitted } from "../door.ts";
import { ConversationResources } from "./conversation_resources.ts";
import { ListWatch } from "./list_watch.ts";
import type { McpSdk } from "./mcp_errors.ts";
import { doorOfResource, isConversation, RESOURCE_DOORS } from "./mcp_methods.ts";
import type { McpSessions } from "./mcp_sessions.ts";
import { MAX_SUBSCRIBED } from "./offer_resources.ts";
import type { FoundTools } from "./offered_tools.ts";
import { ResourceWatch } from "./resource_watch.ts";

/** Parts of the endpoint that notices need. */
export interface McpNoticesParts {
  readonly sdk: McpSdk;
  readonly services: Services;
  readonly sessions: McpSessions;
  /** Tells the streams of clients without a session */
  readonly notify: ServerNotifier;
  readonly found: Pick<FoundTools, "changes">;
}

/** How often the tools and the newest conversations are compared while a client wants to know of changes, in milliseconds. */
const LOOK_AT_TOOLS_MS = 1_000;
const LOOK_AT_RESOURCES_MS = 2_000;

/** Notices to the clients that listen: other tools, other resources, a resource that has changed. */
export class McpNotices {
  /** Resources that clients subscribed to */
  readonly resources: ResourceWatch;
  readonly #parts: McpNoticesParts;
  readonly #toolList: ListWatch;
  readonly #resourceList: ListWatch;

  constructor(parts: McpNoticesParts) {
    const { sdk, services, found } = parts;
    const { clock } = services;
    const conversations = new ConversationResources({ sdk, services });
    this.#parts = parts;
    this.resources = new ResourceWatch({ conversations, clock });
    this.#toolList = new ListWatch({
      ...{ clock, everyMs: LOOK_AT_TOOLS_MS },
      // The list of each client follows from the enabled tools, the patterns and the tools that were found
      read: () => [
        services.tools.list().filter(({ enabled }) => enabled),
        services.config().mcp.server.tools,
        found.changes,
      ],
      onChange: () => this.#tellTools(),
    });
    this.#resourceList = new ListWatch({
      ...{ clock, everyMs: LOOK_AT_RESOURCES_MS },
      read: async () =>
        (await conversations.list(undefined)).resources.map(({ uri, title = "" }) => [uri, title]).sort(),
      onChange: () => this.#tellResources(),
    });
  }

  /** Watches the lists for a client that listens. @returns a function that ends this */
  listen({ scopes }: Pick<Identity, "scopes">): () => void {
    const ends = [this.#toolList.listen()];
    if (hasScope(scopes, RESOURCE_DOORS.conversation.access)) ends.push(this.#resourceList.listen());
    return () => {
      for (const end of ends) end();
    };
  }

  /**
   * Watches the lists and the named resources for a stream of a client without a session.
   * @param body of the request, as `permitted` returns it
   * @throws {HttpError} 503 overloaded
   */
  listenTo(body: unknown, identity: Pick<Identity, "scopes" | "tokenId">): () => void {
    const ends = [this.listen(identity)];
    const end = () => {
      for (const one of ends) one();
    };
    try {
      for (const uri of namedResources(body)) ends.push(this.resources.add(uri, this.#tellUpdated, identity.tokenId));
    } catch (error) {
      end();
      throw error;
    }
    return end;
  }

  /** Returns the body of a request for notices without the resources that its sender may not read, and those that do not exist. */
  permitted(body: unknown, identity: Pick<Identity, "scopes">): unknown {
    const asked = v.safeParse(LISTEN, body);
    if (!asked.success || asked.output.params.notifications.resourceSubscriptions.length === 0) return body;
    const { params } = asked.output;
    const resourceSubscriptions = namedResources(body).filter((uri) =>
      isPermitted(doorOfResource(uri), identity) && (isConversation(uri) || this.#isOfProgram(uri))
    );
    return {
      ...asked.output,
      params: { ...params, notifications: { ...params.notifications, resourceSubscriptions } },
    };
  }

  stop(): void {
    this.#toolList.stop();
    this.#resourceList.stop();
    this.resources.stop();
  }

  #isOfProgram(uri: string): boolean {
    return this.#parts.services.offers.resources.some(({ match }) => match(uri) !== undefined);
  }

  /** Tells all streams. They share this function, so that a resource that several of them name is told of once. */
  readonly #tellUpdated = (uri: string): void => this.#parts.notify.resourceUpdated(uri);

  #tellTools(): void {
    this.#parts.notify.toolsChanged();
    for (const { server } of this.#parts.sessions.list()) server.sendToolListChanged().catch(() => {});
  }

  /** Tells of other conversations. A session that may not read them has no such notices in its capabilities. */
  #tellResources(): void {
    this.#parts.notify.resourcesChanged();
    for (const { server } of this.#parts.sessions.list()) {
      if (server.getCapabilities().resources?.listChanged === true) server.sendResourceListChanged().catch(() => {});
    }
  }
}

/** The part of `subscriptions/listen` that names resources. */
const LISTEN = v.looseObject({
  params: v.looseObject({
    notifications: v.looseObject({ resourceSubscriptions: v.optional(v.array(v.string()), []) }),
  }),
});

/** Returns the addresses that a request for notices names, each once. */
function namedResources(body: unknown): readonly string[] {
  const asked = v.safeParse(LISTEN, body);
  const uris = asked.success ? asked.output.params.notifications.resourceSubscriptions : [];
  return [...new Set(uris)].slice(0, MAX_SUBSCRIBED);
}

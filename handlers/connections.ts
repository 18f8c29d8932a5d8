import { CONTROL } from "../lib/access/identity.ts";
import { refuse } from "../lib/base/errors.ts";
import { hasRoom } from "../lib/base/fair_share.ts";
import { lazily, type Lazy } from "../lib/base/lazily.ts";
import type { Services } from "../lib/services.ts";
import { refuseWhileDraining } from "./door.ts";
import type { McpDoor } from "./mcp/mcp_request.ts";
import { createSockets, type Sockets } from "./websocket/sockets.ts";

/** The connections of one gateway that outlive their request: WebSockets, event streams of runs, and sessions of MCP. */
export interface Connections {
  readonly sockets: Sockets;
  readonly followers: EventFollowers;
  /**
   * The server of MCP, which is loaded with the first request to it.
   * @throws {HttpError} 501 not_implemented without its package, 503 shutting_down
   */
  readonly mcp: Lazy<Promise<McpDoor>>;
  /** Closes sockets without a run, the others after theirs, and ends the event streams. For the start of a shutdown */
  closeIdle(): void;
  /** Closes all sockets, then the sessions of MCP, whose calls that have just ended are answered first. For the end of the grace period */
  closeAll(): Promise<void>;
}

/** Creates the lists of a gateway's connections. The end of a token ends its connections. */
export function createConnections(
  services: Services,
  loadMcp: () => Promise<{ readonly McpEndpoint: { open(services: Services): Promise<McpDoor> } }>,
): Connections {
  const sockets = createSockets(services);
  const followers = createEventFollowers(services);
  const mcp = lazily(async () => {
    refuseWhileDraining(services, "serve MCP");
    return await (await loadMcp()).McpEndpoint.open(services);
  });
  const closeIdle = () => {
    sockets.closeIdle();
    followers.closeAll();
    void mcp.made()?.then((endpoint) => endpoint.closeIdle(), () => {});
  };
  const closeAll = async () => {
    sockets.closeAll();
    await mcp.made()?.then((endpoint) => endpoint.closeAll(), () => {});
  };
  services.onDrain(closeIdle);
  return { sockets, followers, mcp, closeIdle, closeAll };
}

/** A client that reads the events of a run over HTTP. */
export interface EventFollower {
  /** Id of the client's token; null while pairing is off */
  readonly tokenId: string | null;
  /** Ends the client's stream; the run goes on */
  close(): void;
}

/** The open event streams of one gateway. */
export interface EventFollowers {
  /** Adds a follower. @returns function that removes it. @throws {HttpError} 503 `overloaded` above 4,096, but for the command line */
  add(follower: EventFollower): () => void;
  count(): number;
  all(): readonly EventFollower[];
  /** Ends all streams, for the start of a shutdown. The clients come back with their position */
  closeAll(): void;
}

const MAX_FOLLOWERS = 4096;

/** Creates the list of a gateway's open event streams. A revoked token ends its streams. */
export function createEventFollowers({ tokens }: Pick<Services, "tokens">): EventFollowers {
  const open = new Set<EventFollower>();
  tokens.onRevoke((tokenId) => {
    for (const follower of [...open]) if (follower.tokenId === tokenId) follower.close();
  });
  return {
    add(follower) {
      const own = [...open].filter(({ tokenId }) => tokenId === follower.tokenId).length;
      if (!hasRoom({ all: open.size, own }, MAX_FOLLOWERS) && follower.tokenId !== CONTROL) {
        const reason = `${open.size} streams of events are open already, ${own} of this token; close one`;
        throw refuse("overloaded", `Cannot follow the run: ${reason}`);
      }
      open.add(follower);
      return () => void open.delete(follower);
    },
    count: () => open.size,
    all: () => [...open],
    closeAll() {
      for (const follower of [...open]) follower.close();
    },
  };
}

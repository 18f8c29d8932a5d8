import type { Hooks, Peer } from "crossws";
import type { NodeAdapter } from "crossws/adapters/node";
import type { ServerRequest } from "srvx";
import { lazily } from "../../lib/base/lazily.ts";

/** Options of `createNodeSockets`. */
export interface NodeSocketsOptions {
  /** Takes a handshake through the checks of the router. `remoteAddress` is the address of the connection's other end */
  readonly resolve: (request: Request, connection: { readonly remoteAddress?: string | undefined }) => Partial<Hooks>;
  /** Longest frame, in bytes */
  readonly maxMessageBytes: number;
  /** Runs when the WebSocket adapter cannot be loaded: the client cannot be told why its handshake failed. Default: nothing */
  readonly onLoadError?: (error: unknown) => void;
}

/** WebSockets of a server of `node:http`. */
export interface NodeSockets {
  /** Takes over the connection of a handshake. Its arguments are those of the server's `upgrade` event */
  upgrade(request: unknown, socket: unknown, head: unknown): void;
  /** Ends the connections that did not close by themselves */
  terminate(): void;
}

type UpgradeEvent = Parameters<NodeAdapter["handleUpgrade"]>;

/** Creates the WebSocket half of a server of `node:http`, with `resolve` as the only way to an upgrade. Its adapter is loaded at the first handshake. */
export function createNodeSockets({ resolve, maxMessageBytes, onLoadError }: NodeSocketsOptions): NodeSockets {
  let peers: NodeAdapter["peers"] = new Map();
  const load = lazily(async () => {
    const [{ default: nodeAdapter, _nodeAdapter }, { NodeRequest }] = await Promise.all([
      import("crossws/adapters/node"),
      import("srvx/node"),
    ]);
    // The adapter refuses Deno and Bun, although it works with their node:http: its internal export does not (docs/design/dependencies.md "Packages in use")
    const createAdapter = "Deno" in globalThis || "Bun" in globalThis ? _nodeAdapter : nodeAdapter;
    const adapter = createAdapter({
      // A request of srvx knows its address
      resolve: (request: Request) => resolve(request, { remoteAddress: (request as ServerRequest).ip }),
      idleTimeout: 0,
      getNamespace: () => "gateway",
      serverOptions: { maxPayload: maxMessageBytes },
    });
    peers = adapter.peers;
    return { adapter, NodeRequest };
  });
  const upgrade = async (req: UpgradeEvent[0], socket: UpgradeEvent[1], head: UpgradeEvent[2]) => {
    const { adapter, NodeRequest } = await load().catch((error) => {
      onLoadError?.(error);
      throw error;
    });
    // The parameters are Node's own objects, by the types of the members that are used here
    const webRequest = new NodeRequest(
      { req, upgrade: { socket, head } } as unknown as ConstructorParameters<typeof NodeRequest>[0],
    );
    await adapter.handleUpgrade(req, socket, head, webRequest as UpgradeEvent[3]); // a web request, as it wants
  };
  return {
    upgrade(request, socket, head) {
      // The three are the arguments of Node's upgrade event
      const [req, connection, bytes] = [request, socket, head] as unknown as UpgradeEvent;
      upgrade(req, connection, bytes).catch(() => connection.destroy());
    },
    terminate: () => terminateAll(peers),
  };
}

function terminateAll(peers: ReadonlyMap<string, ReadonlySet<Peer>>): void {
  for (const some of peers.values()) for (const peer of [...some]) peer.terminate();
}

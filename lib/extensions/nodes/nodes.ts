import type { ObjectJsonSchema } from "../../base/records/json_schema.ts";
import type { Access, Tool } from "../../tools/runtime/tool.ts";

/** One allowed node, as `/v1/nodes` shows it. Times in ISO 8601. */
export interface NodeInfo {
  readonly id: string;
  readonly object: "node";
  readonly connected: boolean;
  /** Since when it is connected, or was the last time; null: it never was since the gateway started */
  readonly connected_at: string | null;
  readonly disconnected_at: string | null;
  /** Peer address of its newest connection; null: none, or the server does not say */
  readonly address: string | null;
  /** Of Postern on the node */
  readonly version: string | null;
  readonly platform: string | null;
  readonly calls_in_flight: number;
  readonly tool_count: number;
}

/** A tool of a node. */
export interface NodeToolInfo {
  /** On the node */
  readonly name: string;
  /** In the gateway's registry: `node__<id>__<name>` */
  readonly registered_as: string;
  readonly description: string;
  /** What the node takes it for; nothing is decided by it */
  readonly node_access: Access;
  readonly input_schema: ObjectJsonSchema | undefined;
}

/** The socket beneath a link. */
export interface LinkPeer {
  /** @returns false when the other side is too slow, or gone */
  send(text: string): boolean;
  close(code: number, reason: string): void;
  /** Ends the connection without a handshake */
  terminate(): void;
}

/** The gateway's end of one connection. None of its methods throws. */
export interface NodeLink {
  text(text: string): void;
  /** A frame that no side of this protocol sends */
  binary(): void;
  /** The connection is gone */
  closed(): void;
  close(code: number, reason: string): void;
}

/** What a handshake brings along. */
export interface NodeHandshake {
  /** Of `Authorization: Bearer`; undefined without one */
  readonly token: string | undefined;
  readonly id: string | undefined;
  /** Peer address; undefined when the server does not say */
  readonly address: string | undefined;
}

/** Whether a handshake may become a link. `code` and `message` are for the client. */
export type NodeAdmission = { readonly ok: true; readonly id: string } | {
  readonly ok: false;
  readonly code: "auth_required" | "auth_invalid" | "insufficient_scope" | "invalid_request" | "rate_limited";
  readonly message: string;
  /** With `rate_limited` */
  readonly retryAfterSeconds?: number;
};

/** The nodes of one gateway (docs/design/plugins.md "Nodes"): those of `allowed_node_ids`, connected or not. */
export interface Nodes {
  /** Checks token, id and rate; has no other effect. The token is compared in constant time, and before the id */
  admit(handshake: NodeHandshake): NodeAdmission;
  /** Takes an admitted connection over. A second one of an id replaces the first as soon as it has said hello */
  open(id: string, peer: LinkPeer, address: string | undefined): NodeLink;
  /** By id */
  list(): readonly NodeInfo[];
  /** undefined: `allowed_node_ids` does not name it */
  get(id: string): NodeInfo | undefined;
  /** The tools it told last, also while it is away */
  toolsOf(id: string): readonly NodeToolInfo[];
  /**
   * Asks a node for its tools anew.
   * @throws {ToolError} `node_lost`, `node_overloaded`, `node_timeout`; {CancelError} when the signal aborts
   */
  describe(id: string, signal: AbortSignal): Promise<readonly NodeToolInfo[]>;
  /** All tools that a node has told, for the registry: the same array until something changes */
  tools(): readonly Tool[];
  /** Ends every link; calls at work end with an unknown outcome */
  close(): void;
}

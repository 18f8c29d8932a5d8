import WebSocket, { type ClientOptions } from "ws";

/** A frame that was received. */
export interface ReceivedFrame {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** How a socket ended. */
export interface SocketClose {
  readonly code: number;
  readonly reason: string;
}

/** A client of `/ws/chat` over a real socket. */
export interface ChatClient {
  readonly socket: WebSocket;
  /** All frames so far */
  readonly frames: readonly ReceivedFrame[];
  send(frame: string | Uint8Array | Readonly<Record<string, unknown>>): void;
  /** The frames after those given before, up to the first for which `isLast` holds. @throws {Error} when the socket closes first */
  readUntil(isLast: (frame: ReceivedFrame) => boolean): Promise<readonly ReceivedFrame[]>;
  /** readUntil the end of a reply: `done` or `error` */
  readReply(): Promise<readonly ReceivedFrame[]>;
  readonly closed: Promise<SocketClose>;
  /** Closes the socket, and resolves when it is closed */
  leave(): Promise<SocketClose>;
}

/** The handshake was answered by an ordinary reply. */
export class HandshakeRefused extends Error {
  override readonly name = "HandshakeRefused";
  readonly status: number;
  constructor(status: number) {
    super(`The handshake was refused with ${status}`);
    this.status = status;
  }
}

/** Opens the chat of a gateway with its token, or with another of it. @throws {HandshakeRefused} for a refusal */
export function openGatewayChat({ url, token }: { readonly url: string; readonly token: string }): Promise<ChatClient> {
  return openChat(`${url.replace("http", "ws")}/ws/chat`, { headers: { authorization: `Bearer ${token}` } });
}

/**
 * Opens a socket.
 * @param url with `ws:`
 * @throws {HandshakeRefused} for a refusal
 */
export async function openChat(url: string, options: ClientOptions = {}): Promise<ChatClient> {
  const socket = new WebSocket(url, options);
  const frames: ReceivedFrame[] = [];
  let given = 0;
  let wake = () => {};
  let over = false;
  socket.on("message", (data) => {
    frames.push(JSON.parse(String(data)));
    wake();
  });
  const closed = new Promise<SocketClose>((resolve) => {
    socket.on("close", (code, reason) => {
      over = true;
      wake();
      resolve({ code, reason: reason.toString() });
    });
  });
  await new Promise<void>((resolve, reject) => {
    socket.on("unexpected-response", (request, response) => {
      request.destroy();
      reject(new HandshakeRefused(response.statusCode ?? 0));
    });
    socket.on("error", reject);
    socket.on("open", resolve);
  });
  const readUntil = async (isLast: (frame: ReceivedFrame) => boolean) => {
    for (;;) {
      const end = frames.findIndex((frame, index) => index >= given && isLast(frame));
      if (end >= 0) return frames.slice(given, given = end + 1);
      if (over) throw new Error(`The socket closed after ${JSON.stringify(frames.slice(given))}`);
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  return {
    socket,
    frames,
    closed,
    readUntil,
    leave() {
      socket.close();
      return closed;
    },
    readReply: () => readUntil(({ type }) => type === "done" || type === "error"),
    send: (frame) =>
      socket.send(typeof frame === "string" || frame instanceof Uint8Array ? frame : JSON.stringify(frame)),
  };
}

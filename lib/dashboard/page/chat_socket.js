import { addressOf, ApiError } from "./session.js";

const REFUSED = "The gateway refused the connection: it has no agent, or it is shutting down";

/**
 * The chat's WebSocket, opened when something is to be sent and opened again after it was closed. Each opening takes a ticket,
 * since a browser cannot send a header with a handshake.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {(frame: any) => void} options.onFrame a parsed frame: an agent event, or one of the plain frames
 * @param {(event: CloseEvent) => void} options.onClosed
 */
export function createChatSocket({ session, onFrame, onClosed }) {
  /** @type {Promise<WebSocket> | undefined} */
  let opening;
  /** @type {WebSocket | undefined} */
  let current;

  const open = async () => {
    const { ticket } = await session.json("v1/ws-ticket", { method: "POST" });
    const address = addressOf(`ws/chat?ticket=${encodeURIComponent(ticket)}`);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onclose = () => reject(new ApiError(0, "refused", REFUSED, 0));
    });
    current = socket;
    socket.onmessage = ({ data }) => onFrame(JSON.parse(data));
    socket.onclose = (event) => {
      if (current !== socket) return;
      forget();
      onClosed(event);
    };
    socket.send(JSON.stringify({ type: "hello", events: true }));
    return socket;
  };

  const forget = () => {
    opening = undefined;
    current = undefined;
  };

  return {
    /**
     * @param {Record<string, unknown>} command
     * @throws {ApiError} when no connection can be made
     */
    async send(command) {
      // A socket that is closing takes frames and drops them
      if (current !== undefined && current.readyState !== WebSocket.OPEN) forget();
      opening ??= open().catch((error) => {
        forget();
        throw error;
      });
      (await opening).send(JSON.stringify(command));
    },
    close() {
      const socket = current;
      forget();
      socket?.close(1000);
    },
  };
}

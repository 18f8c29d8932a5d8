import { connect, type Socket } from "node:net";

/** A TCP connection that says exactly what it is told. */
export interface RawSocket {
  readonly socket: Socket;
  write(bytes: string | Uint8Array): void;
  /** All that came, as Latin-1, once it matches, or once the other side has closed */
  read(until?: RegExp): Promise<string>;
  /** Resolves when the other side has closed */
  closed(): Promise<string>;
  destroy(): void;
}

export interface RawSocketOptions {
  /** Stays open for writing once the other side has ended its half. Default false */
  readonly halfOpen?: boolean;
}

/** Opens a TCP connection to a port of 127.0.0.1. */
export async function openRawSocket(port: number, options: RawSocketOptions = {}): Promise<RawSocket> {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: options.halfOpen ?? false });
  let received = "";
  let ended = false;
  let wake = () => {};
  socket.on("data", (chunk) => {
    received += chunk.toString("latin1");
    wake();
  });
  const end = () => {
    ended = true;
    wake();
  };
  socket.on("end", end).on("close", end).on("error", end);
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", resolve).once("error", reject);
  });
  const read = async (until?: RegExp) => {
    while (!ended && !until?.test(received)) await new Promise<void>((resolve) => (wake = resolve));
    return received;
  };
  return {
    socket,
    write: (bytes) => void socket.write(bytes),
    read,
    closed: () => read(),
    destroy: () => void socket.destroy(),
  };
}

/** Sends bytes on a connection of their own and gives all that comes until the server closes. */
export async function exchange(port: number, bytes: string | Uint8Array): Promise<string> {
  const raw = await openRawSocket(port);
  raw.write(bytes);
  const answer = await raw.closed();
  raw.destroy();
  return answer;
}

/** Status and JSON body of the last answer in `text`. */
export function lastAnswer(
  text: string,
): { readonly status: number; readonly code: string | undefined; readonly headers: string } {
  const answer = text.slice(text.lastIndexOf("HTTP/1.1 "));
  const [headers = "", body = ""] = answer.split("\r\n\r\n", 2);
  let code: string | undefined;
  try {
    code =
      (JSON.parse(body.slice(body.indexOf("{"), body.lastIndexOf("}") + 1)) as { error: { code: string } }).error.code;
  } catch {
    code = undefined;
  }
  return { status: Number(headers.slice(9, 12)), code, headers: headers.toLowerCase() };
}

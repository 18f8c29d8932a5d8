import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

/** Answer of the relay's own. */
export interface Answer {
  readonly status: number;
  readonly text: string;
  /** True: asks for the password */
  readonly asksPassword?: boolean;
}

/** Bytes of a head that the relay reads. */
export const MAX_HEAD_BYTES = 16_384;

/** Answer to what is neither a tunnel nor a request in absolute form. */
export const NOT_TAKEN: Answer = {
  status: 400,
  text: "This is the relay of Postern: it takes CONNECT host:port, and requests for http:// addresses in absolute form",
};

/** Returns the answer to what the parser refused. */
export function unreadable(error: Error & { readonly code?: string }): Answer {
  return error.code === "HPE_HEADER_OVERFLOW"
    ? { status: 431, text: `The relay takes heads of at most ${MAX_HEAD_BYTES} bytes` }
    : { status: 400, text: "The relay cannot read the request as HTTP/1.1" };
}

/** Answer to a client that does not give the password. */
export const WRONG_PASSWORD: Answer = {
  status: 407,
  text: "This is the relay of Postern: it takes its own browser alone",
  asksPassword: true,
};
const CHALLENGE = 'Basic realm="postern"';

const PHRASES: Readonly<Record<number, string>> = {
  400: "Bad Request",
  403: "Forbidden",
  407: "Proxy Authentication Required",
  431: "Request Header Fields Too Large",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
};

/** Answers on a connection that no response belongs to, and ends it. */
export function answerRaw(client: Duplex, { status, text, asksPassword = false }: Answer): void {
  client.on("error", () => {});
  if (!client.writable) return void client.destroy();
  const body = `${text}\n`;
  const head = [
    `HTTP/1.1 ${status} ${PHRASES[status] ?? "Error"}`,
    "content-type: text/plain; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
    ...(asksPassword ? [`proxy-authenticate: ${CHALLENGE}`] : []),
  ].join("\r\n");
  client.end(`${head}\r\n\r\n${body}`, () => client.destroy());
}

/** Answers a request whose reply has not begun; ends the connection of one whose reply has. */
export function answerResponse(response: ServerResponse, { status, text, asksPassword = false }: Answer): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    connection: "close",
    ...(asksPassword ? { "proxy-authenticate": CHALLENGE } : {}),
  });
  response.end(`${text}\n`);
}

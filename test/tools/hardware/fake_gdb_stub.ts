import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { encodePacket } from "../../../lib/hardware/gdb_packet.ts";
import { until } from "../../support/until.ts";

/** Answer to one request: text becomes a packet, bytes are sent as they are, null is silence; undefined: as usual. */
export type StubAnswer = string | Uint8Array | null | undefined;

export interface FakeStubOptions {
  /** The answer to `qSupported`. Default: only a packet size */
  readonly features?: string;
  /** Texts by `<object>:<annex>`, such as `memory-map:` */
  readonly documents?: Readonly<Record<string, string>>;
  /** By first address. Default: none can be read */
  readonly memory?: ReadonlyMap<number, Uint8Array>;
  /** Default: none, as `g` that is not known */
  readonly registers?: string;
  /** Answers first */
  readonly answer?: (payload: string, socket: Socket) => StubAnswer;
  /** How a reply becomes bytes. Default: one packet without runs */
  readonly frame?: (payload: string) => Uint8Array;
  /** Packets are refused in place of being acknowledged. Default false */
  readonly refuses?: boolean;
}

/** A GDB stub on a port of this machine that says what it is told to. */
export interface FakeStub {
  readonly remote: string;
  /** Payloads of the packets that came, in order */
  readonly requests: readonly string[];
  /** `+` and `-` that came, in order */
  readonly marks: readonly string[];
  /** Connections that are open now */
  connections(): number;
  /** Resolves once a request that starts so has come */
  heard(start: string): Promise<void>;
  /** Resolves once every connection is closed */
  left(): Promise<void>;
}

export async function withFakeStub(options: FakeStubOptions, use: (stub: FakeStub) => Promise<void>): Promise<void> {
  const requests: string[] = [];
  const marks: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    // What the other side does to the connection is what the tests look at
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    serve(socket, options, {
      onRequest: (payload) => void requests.push(payload),
      onMark: (mark) => void marks.push(mark),
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await use({
      remote: `127.0.0.1:${(server.address() as AddressInfo).port}`,
      requests,
      marks,
      connections: () => sockets.size,
      heard: (start) => until(() => requests.some((request) => request.startsWith(start)), `"${start}" never came`),
      left: () => until(() => sockets.size === 0, "somebody stays connected"),
    });
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((closed) => server.close(closed));
  }
}

interface Heard {
  onRequest(payload: string): void;
  onMark(mark: string): void;
}

function serve(socket: Socket, options: FakeStubOptions, heard: Heard): void {
  const frame = options.frame ?? encodePacket;
  let text = "";
  let last: Uint8Array = new Uint8Array();
  let acknowledges = true;
  const send = (bytes: Uint8Array) => {
    last = bytes;
    socket.write(bytes);
  };
  const take = (payload: string) => {
    if (options.refuses) return void socket.write("-");
    if (acknowledges) socket.write("+");
    heard.onRequest(payload);
    const special = options.answer?.(payload, socket);
    if (special === null || socket.destroyed) return;
    if (special instanceof Uint8Array) return send(special);
    send(frame(special ?? usual(payload, options)));
    if (payload === "QStartNoAckMode") acknowledges = false;
  };
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    for (;;) {
      const [whole, mark, payload] = /^(?:([+-])|\$([^#]*)#[0-9a-f]{2})/.exec(text) ?? [];
      if (whole === undefined) return;
      text = text.slice(whole.length);
      if (payload !== undefined) take(payload);
      else if (mark !== undefined) {
        heard.onMark(mark);
        if (mark === "-") send(last);
      }
    }
  });
}

function usual(
  payload: string,
  { features, documents = {}, memory = new Map(), registers = "" }: FakeStubOptions,
): string {
  if (payload.startsWith("qSupported")) return features ?? "PacketSize=200";
  if (payload === "QStartNoAckMode" || payload === "D") return "OK";
  if (payload === "?") return "T05thread:01;";
  if (payload === "g") return registers;
  const [, object, offset = "", size = ""] = /^qXfer:([\w-]+:read:[^:]*):([0-9a-f]+),([0-9a-f]+)$/.exec(payload) ?? [];
  if (object !== undefined) {
    const document = documents[object.replace(":read", "")];
    if (document === undefined) return "E00";
    const [from, most] = [Number.parseInt(offset, 16), Number.parseInt(size, 16)];
    return `${from + most < document.length ? "m" : "l"}${document.slice(from, from + most)}`;
  }
  const [, place = "", length = ""] = /^m([0-9a-f]+),([0-9a-f]+)$/.exec(payload) ?? [];
  if (place === "") return "";
  const from = Number.parseInt(place, 16);
  for (const [start, bytes] of memory) {
    const part = bytes.subarray(from - start, from - start + Number.parseInt(length, 16));
    if (from >= start && part.length > 0) return Buffer.from(part).toString("hex");
  }
  return "E01";
}

/**
 * The other side of the measured gateways, in a process of its own so that its work is not counted: the model server that they ask, and
 * the clients that ask them. The parent sends a `Load` for each measurement and gets a `Loaded`.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { startOpenAiUpstream } from "../../../fixtures/upstream/openai_upstream.ts";

/** Requests that a gateway gets at the same time, each on a connection of its own. */
const CLIENTS = 32;

/** Requests for gateways in turn, until the number or the time is reached. */
export interface Load {
  readonly ports: readonly number[];
  /** The whole request, as it goes over the wire */
  readonly request: string;
  /** Text that each right answer has in it */
  readonly expects: string;
  /** Chunks of the model's reply, which come in one write */
  readonly chunks: number;
  readonly maxRequests: number;
  readonly maxMs: number;
}

/** The outcome of a load. */
export interface Loaded {
  /** Right answers of each gateway: all had the same number of requests */
  readonly answered: number;
  /** The first answer that was not right; it ended the load */
  readonly failure?: string;
}

const upstream = await startOpenAiUpstream();
/** By port. They stay open, so that no measurement pays for them */
const connections = new Map<number, Socket[]>();
process.on("message", async (load: Load) => process.send?.(await run(load)));
process.on("disconnect", () => process.exit());
process.send?.(upstream.baseUrl);

/**
 * Asks the gateways strictly in turn: 32 requests at once, and then the next gateway when the last of them is answered. Whatever slows the
 * machine for longer than some milliseconds slows all of them alike. In an order that changes from turn to turn the gateways would have
 * another rhythm, and the memory of the one that begins would be larger by a tenth.
 */
async function run({ ports, request, expects, chunks, maxRequests, maxMs }: Load): Promise<Loaded> {
  upstream.script({ kind: "text", chunks: Array.from({ length: chunks }, () => "token ") });
  let answered = 0;
  const begun = performance.now();
  try {
    while (answered < maxRequests && performance.now() - begun < maxMs) {
      for (const port of ports) {
        const answers = await Promise.all(Array.from({ length: CLIENTS }, (_, client) => ask(port, client, request)));
        const wrong = answers.find((answer) => !answer.startsWith("HTTP/1.1 200 ") || !answer.includes(expects));
        if (wrong !== undefined) return { answered, failure: wrong.slice(0, 500) };
      }
      upstream.forget();
      answered += CLIENTS;
    }
    return { answered };
  } catch (error) {
    return { answered, failure: String(error) };
  }
}

/** Sends a request on the connection of a client. @returns the whole answer, head and body. @throws {Error} the connection ends before */
async function ask(port: number, client: number, request: string): Promise<string> {
  const socket = await connectionOf(port, client);
  return await new Promise((resolve, reject) => {
    let answer = "";
    const onData = (part: Buffer) => {
      answer += part.toString("latin1");
      if (!isWhole(answer)) return;
      socket.off("data", onData).off("close", onClose);
      resolve(answer);
    };
    const onClose = () => reject(new Error(`The connection ended after "${answer.slice(0, 500)}"`));
    socket.on("data", onData).on("close", onClose).write(request);
  });
}

/** Returns the connection of a client, a new one where the gateway has closed it since it was idle. */
async function connectionOf(port: number, client: number): Promise<Socket> {
  const sockets = connections.get(port) ?? [];
  connections.set(port, sockets);
  const open = sockets[client];
  if (open?.readyState === "open") return open;
  const socket = connect(port, "127.0.0.1").setNoDelay();
  sockets[client] = socket;
  await once(socket, "connect");
  // "close" follows, which says it to whoever waits for an answer
  return socket.on("error", () => {});
}

function isWhole(answer: string): boolean {
  const headEnd = answer.indexOf("\r\n\r\n");
  if (headEnd === -1) return false;
  const length = /\r\ncontent-length: (\d+)/i.exec(answer.slice(0, headEnd))?.[1];
  return length === undefined ? answer.endsWith("\r\n0\r\n\r\n") : answer.length >= headEnd + 4 + Number(length);
}

import type { Load } from "./load.ts";

/** The token that the measured gateways take. */
export const TOKEN = "bench-token-of-the-environment-0123456789";

/** Requests that a figure is measured by. */
export interface Figure extends Pick<Load, "request" | "expects" | "chunks"> {
  readonly warmUpMs: number;
}

const MESSAGE = "Say something.";
const COMPLETION = { model: "bench-model", messages: [{ role: "user", content: MESSAGE }] };
const WITHOUT_TOOLS = "x-postern-tools: none\r\n";

/** A completion without tools, answered as JSON. */
export const PLAIN: Figure = {
  request: requestOf("/v1/chat/completions", COMPLETION, WITHOUT_TOOLS),
  expects: '"finish_reason":"stop"',
  chunks: 20,
  warmUpMs: 8000,
};

/** Figures of gateways under load, in microseconds of processor time a request. */
export const LOADED: Readonly<Record<string, Figure>> = {
  "plain completion, us CPU": PLAIN,
  "stream of 100 chunks, us CPU": {
    request: requestOf("/v1/chat/completions", { ...COMPLETION, stream: true }, WITHOUT_TOOLS),
    expects: "data: [DONE]",
    chunks: 100,
    warmUpMs: 4000,
  },
  "agent turn, us CPU": {
    request: requestOf("/api/chat", { message: MESSAGE }),
    expects: "token token",
    chunks: 20,
    warmUpMs: 8000,
  },
  "/health, us CPU": { request: requestOf("/health"), expects: '"status"', chunks: 0, warmUpMs: 2000 },
  "/metrics, us CPU": { request: requestOf("/metrics"), expects: "# TYPE ", chunks: 0, warmUpMs: 2000 },
};

/** A whole request: a POST where there is a body. @param headers lines, each with its line break */
function requestOf(path: string, body?: object, headers = ""): string {
  const head = `${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${TOKEN}\r\n${headers}`;
  if (body === undefined) return `GET ${head}\r\n`;
  const text = JSON.stringify(body);
  return `POST ${head}content-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}

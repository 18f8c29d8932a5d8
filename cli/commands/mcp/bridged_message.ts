import { Buffer } from "node:buffer";
import { isRecord } from "../../../lib/base/json.ts";

/** A message of JSON-RPC, as far as the bridge looks at it. */
export interface BridgedMessage {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: Readonly<Record<string, unknown>> | undefined;
}

/** Session of a client that speaks a revision with sessions. */
export interface BridgedSession {
  readonly id: string;
}

/** Errors of JSON-RPC. */
export const RPC_ERRORS = { parse: -32700, invalidRequest: -32600, invalidParams: -32602, internal: -32603 } as const;

const VERSION_KEY = "io.modelcontextprotocol/protocolVersion";

/** A refusal of the gateway, as the error of JSON-RPC that the client gets. */
export class GatewayRefusal extends Error {
  override readonly name = "GatewayRefusal";
  readonly rpcCode: number;
  readonly data: unknown;

  constructor(message: string, { rpcCode, data }: { readonly rpcCode: number; readonly data: unknown }) {
    super(message);
    this.rpcCode = rpcCode;
    this.data = data;
  }
}

/** Reads an error reply: one of JSON-RPC, or one of the gateway's own shape. */
export function toRefusal(text: string, status: number): GatewayRefusal {
  const rpcCode = status < 500 ? RPC_ERRORS.invalidParams : RPC_ERRORS.internal;
  try {
    const { error }: { error: { code: unknown; message: unknown; data?: unknown } } = JSON.parse(text);
    const { code, message, data } = error;
    return new GatewayRefusal(String(message), {
      ...(typeof code === "number" ? { rpcCode: code, data } : { rpcCode, data: { code } }),
    });
  } catch {
    return new GatewayRefusal(`The gateway answered with status ${status}`, { rpcCode, data: undefined });
  }
}

/** Tells whether a message wants an answer. */
export function isRequest({ id, method }: BridgedMessage): boolean {
  return typeof method === "string" && id !== undefined;
}

/** Tells whether a text is the answer to the request with this id. */
export function answers(data: string, id: unknown): boolean {
  try {
    const message: BridgedMessage = JSON.parse(data);
    return message.method === undefined && JSON.stringify(message.id) === JSON.stringify(id);
  } catch {
    return false;
  }
}

/** Returns the headers of a session. */
export function headersOf(session: BridgedSession | undefined): Record<string, string> {
  // Without a version, the one that "initialize" agreed on counts
  return session === undefined ? {} : { "mcp-session-id": session.id };
}

/** Returns the revision that a message without a session names. */
export function versionOf({ params }: BridgedMessage): string | undefined {
  const meta = params?.["_meta"];
  const version = isRecord(meta) ? meta[VERSION_KEY] : undefined;
  return typeof version === "string" ? version : undefined;
}

/** Fields that the header Mcp-Name repeats, by method. Source: MCP 2026-07-28 "Standard request headers" */
const NAMED_BY: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

/** Returns the headers that HTTP wants of a message: the session, or what a message without one repeats of its body. */
export function toHeaders(message: BridgedMessage, session: BridgedSession | undefined): Record<string, string> {
  const version = versionOf(message);
  const { method, params } = message;
  if (version === undefined || typeof method !== "string") return method === "initialize" ? {} : headersOf(session);
  const field = Object.hasOwn(NAMED_BY, method) ? NAMED_BY[method] ?? "" : "";
  const name = params?.[field];
  return {
    "mcp-protocol-version": version,
    "mcp-method": toHeader(method),
    ...(typeof name === "string" ? { "mcp-name": toHeader(name) } : {}),
  };
}

/** Writes a value as a header: text that a header cannot carry is in base64. */
function toHeader(value: string): string {
  const isPlain = /^[!-~](?:[ -~]*[!-~])?$/.test(value) && !value.startsWith("=?base64?");
  return isPlain ? value : `=?base64?${Buffer.from(value).toString("base64")}?=`;
}

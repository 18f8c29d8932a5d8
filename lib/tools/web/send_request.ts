import { ToolError } from "../../base/errors.ts";
import type { KnownSecrets } from "../../base/redact.ts";
import { firstBytes } from "../../base/text.ts";
import type { ContentSource } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { GuardedMethod, GuardedReply, GuardedRequest } from "../../system/net/guarded_fetch.ts";
import { withRetryAfter } from "../../system/net/retry_after.ts";
import { writeScope } from "../files/file_scope.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { type HttpCredential, readCredential } from "./http_credential.ts";
import { refuseSecrets } from "./refuse_secrets.ts";

/** Bytes beyond the limit that are read too: a secret across the cut is then masked as a whole. */
const SLACK_BYTES = 8192;
/** Headers of the model that go on with a redirect to another origin. All others may be credentials. */
const HARMLESS = new Set(["accept", "accept-language", "content-type", "user-agent"]);
const CONTENT_TYPES = {
  json: "application/json",
  text: "text/plain; charset=utf-8",
  form: "application/x-www-form-urlencoded",
};

/** A request as the tool was asked for it. */
export interface HttpRequestInput {
  readonly method: GuardedMethod;
  readonly url: string;
  /** Texts by name */
  readonly headers?: Readonly<Record<string, unknown>> | undefined;
  readonly body?: string | undefined;
  readonly body_type?: "json" | "text" | "form" | undefined;
  /** File of the allowed root that the body goes to, when the status is 2xx */
  readonly save_to?: string | undefined;
  readonly overwrite?: boolean | undefined;
}

type Context = ContextWith<"guardedFetch" | "environment" | "secrets" | "redactor" | "files">;
type Sink = GuardedRequest["sink"];
/** Sends the request; with a sink the body goes there. */
type Send = (bounds: { readonly maxBytes: number; readonly sink?: Sink }) => Promise<GuardedReply>;

/** Sends a request with the credential of its host. @throws {ToolError} what the policy, a secret or a guarded fetch refuses */
export async function sendRequest(input: HttpRequestInput, context: Context): Promise<ToolResult> {
  const { config: { http_request: settings }, services, signal } = context;
  refuseSecrets(partsOf(input), services.redactor);
  const url = URL.parse(input.url);
  const credential = url === null
    ? undefined
    : await readCredential(settings.credentials, { tool: "http_request", url, signal }, services);
  const given = headersOf(input, credential);
  const own = credential === undefined ? given : { ...given, [credential.header]: credential.value };
  const headers = (to: URL) => (to.origin === url?.origin ? own : harmless(given));
  const send: Send = async (bounds) => {
    const reply = await exchange(input, context, { ...bounds, headers });
    if (reply.status === 401) await credential?.refused();
    return reply;
  };
  if (input.save_to !== undefined) return await saveReply(input, input.save_to, { context, send });
  const maxBytes = settings.max_response_size;
  return toResult(input.method, await send({ maxBytes: maxBytes + SLACK_BYTES }), {
    maxBytes,
    redactor: services.redactor,
  });
}

async function exchange(
  { method, url, body, body_type: type = "json" }: HttpRequestInput,
  { config, services, signal, clock }: Context,
  options: Parameters<Send>[0] & { readonly headers: (url: URL) => Readonly<Record<string, string>> },
): Promise<GuardedReply> {
  const { allowed_domains: entries, timeout_secs: seconds } = config.http_request;
  const send = withRetryAfter(await services.guardedFetch(), { clock });
  return await send({
    ...options,
    method,
    url,
    body: body === undefined ? undefined : type === "form" ? formOf(body) : body,
    guard: { rules: config.url_access, allowed: { entries, key: "[http_request] allowed_domains" } },
    timeoutMs: seconds * 1000,
    signal,
  });
}

/**
 * Sends a request and writes the body to a file, which gets its name when the body is whole and on the disk. A reply of another status than
 * 2xx makes no file and is shown.
 */
async function saveReply(
  { method, overwrite = false }: HttpRequestInput,
  path: string,
  { context, send }: { readonly context: Context; readonly send: Send },
): Promise<ToolResult> {
  const { config, services, signal } = context;
  const { max_download_bytes: maxBytes, max_response_size: maxShown } = config.http_request;
  const scope = writeScope(context);
  const { file } = await services.files.inspect(path, scope, { maxBytes: undefined });
  if (file !== undefined && !overwrite) {
    throw new ToolError("file_exists", `Cannot save to ${shown(path)}: it exists; "overwrite": true replaces it`);
  }
  let reply: GuardedReply | undefined;
  const content: ContentSource = async (write) => {
    reply = await send({
      maxBytes,
      sink: async ({ status }) => (isGood(status) ? { write, close: () => {} } : undefined),
    });
    if (!isGood(reply.status)) {
      throw new ToolError("not_saved", `Cannot save to ${shown(path)}: status ${reply.status}`);
    }
    if (!reply.truncated) return;
    const limit = `[http_request] max_download_bytes allows ${maxBytes}`;
    throw new ToolError("download_too_large", `Cannot save to ${shown(path)}: the body is longer than ${limit}`);
  };
  try {
    await services.files.change([{ kind: "write", path, content, expected: file?.version }], scope, { signal });
  } catch (error) {
    if (reply === undefined || isGood(reply.status)) throw error;
    const result = toResult(method, reply, { maxBytes: maxShown, redactor: services.redactor });
    return { ...result, output: `${result.output}\n[Nothing was saved: only the body of a 2xx reply is]` };
  }
  // The source ran to its end
  const { status, url, headers, bytes } = reply as unknown as GuardedReply;
  const type = headers["content-type"] ?? "";
  return {
    output: `status=${status}\n[Saved ${bytes} bytes to ${shown(path)}]`,
    isError: false,
    data: { status, url, content_type: type, truncated: false, path, bytes, created: file === undefined },
  };
}

function isGood(status: number): boolean {
  return status >= 200 && status < 300;
}

function partsOf({ url, headers = {}, body = "" }: HttpRequestInput): Readonly<Record<string, string>> {
  return { URL: url, headers: JSON.stringify(headers), body };
}

/** Returns the headers of the model by their lower-case names. @throws {ToolError} for one that the credential fills */
function headersOf(
  { headers = {}, body, body_type: type = "json" }: HttpRequestInput,
  credential: HttpCredential | undefined,
): Readonly<Record<string, string>> {
  // The tool checked that all are texts
  const entries = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value as string]);
  const given: Record<string, string> = Object.fromEntries(entries);
  if (credential !== undefined && given[credential.header] !== undefined) {
    throw new ToolError(
      "invalid_input",
      `Cannot call "http_request": leave out the header "${credential.header}", [http_request.credentials] fills it for this host`,
    );
  }
  return body === undefined ? given : { "content-type": CONTENT_TYPES[type], ...given };
}

function harmless(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => HARMLESS.has(name)));
}

function formOf(body: string): string {
  // The tool checked that it is an object of plain values
  const fields = JSON.parse(body) as Readonly<Record<string, unknown>>;
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) form.append(name, String(value));
  return form.toString();
}

function toResult(
  method: GuardedMethod,
  reply: GuardedReply,
  { maxBytes, redactor }: { readonly maxBytes: number; readonly redactor: KnownSecrets },
): ToolResult {
  const type = reply.headers["content-type"] ?? "";
  const text = method === "HEAD" ? headLines(reply) : textOf(reply.body, type);
  const isCut = reply.truncated || reply.body.length > maxBytes;
  const data = { status: reply.status, url: reply.url, content_type: type, truncated: isCut };
  const head = `status=${reply.status}\n`;
  if (text === undefined) {
    const size = isCut ? `more than ${maxBytes}` : String(reply.body.length);
    const kind = type === "" ? "an unknown type" : `type ${JSON.stringify(redactor.redact(type).slice(0, 100))}`;
    return { output: `${head}[The body is no text: ${kind}, ${size} bytes]`, isError: false, data };
  }
  if (!isCut) return { output: head + text, isError: false, data };
  const notice = `[Cut at ${maxBytes} bytes: [http_request] max_response_size is the limit. Ask for less at a time]`;
  return { output: `${head}${beginning(text, maxBytes, redactor)}\n${notice}`, isError: false, data };
}

/** Returns the first bytes of a text. A secret that the cut goes through is masked, as the executor masks whole ones. */
function beginning(text: string, maxBytes: number, { part }: KnownSecrets): string {
  const to = Buffer.byteLength(firstBytes(text, maxBytes));
  return new TextDecoder().decode(part.redact(new TextEncoder().encode(text), { from: 0, to }));
}

function headLines({ headers }: GuardedReply): string {
  return Object.entries(headers).filter(([name]) => name !== "set-cookie").map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}

const TEXT_TYPE =
  /^(text\/|application\/([\w.+-]*\+)?(json|xml|x-www-form-urlencoded|javascript|ecmascript|x-ndjson|yaml|toml|graphql|sql)\b|image\/svg)/i;

/** Returns a body as text. undefined for one that is none: by its bytes, where the type does not say that it is a text. */
function textOf(body: Uint8Array, type: string): string | undefined {
  const charset = /;\s*charset="?([\w-]{1,40})/i.exec(type)?.[1] ?? "utf-8";
  const isText = TEXT_TYPE.test(type);
  if (!isText && body.includes(0)) return undefined;
  try {
    // A cut through the last character is no sign of bytes that are no text
    return new TextDecoder(charset, { fatal: !isText }).decode(body, { stream: true });
  } catch (error) {
    return error instanceof RangeError && isText ? new TextDecoder().decode(body) : undefined;
  }
}

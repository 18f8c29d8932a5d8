import { resolve } from "node:path";
import * as v from "valibot";
import { ToolError } from "../../../base/errors.ts";
import { redactJson, type RedactPart } from "../../../base/redact.ts";
import type { Config } from "../../../config/config.ts";
import type { TaintedFiles } from "../../../guard/tainted_files.ts";
import type { Files, FileScope, WalkedFile } from "../../../system/files/files.ts";
import { shown } from "../../../system/files/parse_path.ts";
import type { GuardedFetch, GuardedReply } from "../../../system/net/guarded_fetch.ts";
import { decodeText } from "../../../tools/files/read_text.ts";
import type { PluginCapabilities } from "../manifest.ts";
import type { PluginCall } from "../plugin_host.ts";
import { maskText } from "../plugin_settings.ts";
import type { HostReply, HostRequest } from "./kernel.ts";
import type { SecretHandles } from "./secret_handles.ts";
import type { HostAnswer } from "./wasm_messages.ts";

/** Services that functions of the host use. */
export interface GuestServices {
  readonly files: Files;
  /** Marks what a module writes as content from outside */
  readonly taintedFiles: Pick<TaintedFiles, "mark" | "written">;
  /** Returns the guarded fetch, which is loaded at the first call */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Masks secrets in replies to a module that has some, and in what errors quote. Default: nothing is masked */
  readonly redact?: RedactPart | undefined;
}

/** Module that makes requests, and the call that it makes them in. */
export interface Guest {
  readonly module: {
    /** Names it in errors, such as `plugin "weather"` */
    readonly title: string;
    /** Origin of what it writes, such as `plugin weather` */
    readonly origin: string;
    readonly capabilities: PluginCapabilities;
    readonly config: Config;
  };
  /** Secrets of the module. Default: it has none */
  readonly handles?: SecretHandles | undefined;
  /** undefined: the module is being initialised, and nobody has called it */
  readonly call: PluginCall | undefined;
}

/** Most bytes of a reply of the network, whatever memory the module has. */
const MAX_REPLY_BYTES = 8 * 1_048_576;
/** Files and folders that one listing looks at, and files that it has. */
const MAX_LOOKED_AT = 20_000;
const MAX_ENTRIES = 2_000;
const MAX_PATH = 4_096;
const MAX_HEADERS = 50;

const path = v.pipe(v.string(), v.nonEmpty(), v.maxLength(MAX_PATH));
const encoding = v.optional(v.picklist(["utf8", "base64"]), "utf8");
const readSchema = v.strictObject({ path, encoding });
const listSchema = v.strictObject({ path: v.optional(path, ".") });
const writeSchema = v.strictObject({ path, content: v.string(), encoding });
const headersSchema = v.pipe(
  v.record(v.string(), v.string()),
  v.check((headers) => Object.keys(headers).length <= MAX_HEADERS, `must have at most ${MAX_HEADERS} entries`),
);
/** As the PDKs of Extism write it: some say `header` */
const httpSchema = v.object({
  url: v.pipe(v.string(), v.maxLength(8192)),
  method: v.optional(v.nullable(v.pipe(v.string(), v.toUpperCase())), "GET"),
  headers: v.optional(v.nullable(headersSchema)),
  header: v.optional(v.nullable(headersSchema)),
});
const methodSchema = v.picklist(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]);

/**
 * Answers what a module asks of the gateway. Files are reached as the tools reach them, the network by the guarded fetch. A file that
 * cannot be read or written is an answer, `{"error": {"code", "message"}}`; a host that may not be reached ends the call.
 */
export function createGuestAnswers(
  guest: Guest,
  services: GuestServices,
): (request: HostRequest, signal: AbortSignal) => Promise<HostAnswer> {
  return async (request, signal) => {
    try {
      return { kind: "reply", reply: await replyTo(request, { guest, services, signal }) };
    } catch (error) {
      if (!(error instanceof ToolError)) {
        return { kind: "refusal", code: "failed", reason: "the gateway could not answer it" };
      }
      const { code, message } = error;
      if (request.kind === "http") return { kind: "refusal", code, reason: message };
      return { kind: "reply", reply: { head: { error: { code, message } } } };
    }
  };
}

interface Asked {
  readonly guest: Guest;
  readonly services: GuestServices;
  readonly signal: AbortSignal;
}

function replyTo(request: HostRequest, asked: Asked): Promise<HostReply> {
  switch (request.kind) {
    case "http":
      return fetchFor(request, asked);
    case "workspace_read":
      return readFor(parse(readSchema, request.input), asked);
    case "workspace_list":
      return listFor(parse(listSchema, request.input), asked);
    case "workspace_write":
      return writeFor(parse(writeSchema, request.input), asked);
  }
}

async function fetchFor(
  { request, body }: Extract<HostRequest, { kind: "http" }>,
  { guest: { module, handles, call }, services, signal }: Asked,
): Promise<HostReply> {
  if (call === undefined) throw notCalled("network", module.title);
  const { url, method, headers, header } = parse(httpSchema, request);
  const sent = { url, headers: headers ?? header ?? {}, body };
  const { runtime: { wasm }, url_access: rules } = module.config;
  const maxBytes = Math.min(MAX_REPLY_BYTES, wasm.memory_limit_mb * 1_048_576);
  const send = await services.guardedFetch();
  const reply = await send({
    url,
    method: parse(methodSchema, method ?? "GET"),
    headers: await handles?.headersFor(sent, signal) ?? (() => sent.headers),
    body: method === "GET" || method === "HEAD" ? undefined : body,
    guard: {
      rules,
      allowed: {
        entries: module.capabilities.hosts,
        key: `the capabilities of ${module.title}, which its manifest names,`,
      },
    },
    maxBytes,
    timeoutMs: wasm.timeout_secs * 1000,
    signal,
  });
  if (reply.truncated) {
    throw new ToolError("fetch_failed", `Cannot fetch for ${module.title}: the reply is larger than ${maxBytes} bytes`);
  }
  const { headers: told, body: content } = handles?.isUsed === true ? masked(reply, services.redact) : reply;
  return { head: { status: reply.status, headers: told }, body: toShared(content) };
}

/** Masks secrets in a reply: a server may send back what it got. */
function masked(
  { headers, body }: Pick<GuardedReply, "headers" | "body">,
  redact: RedactPart | undefined,
): { readonly headers: unknown; readonly body: Uint8Array } {
  if (redact === undefined) throw new TypeError("A module that has secrets needs a redactor");
  const told = redactJson(headers, (text) => maskText(text, redact));
  return { headers: told, body: redact.redact(body, { from: 0, to: body.length }) };
}

async function readFor(
  { path, encoding }: v.InferOutput<typeof readSchema>,
  { guest, services: { files } }: Asked,
): Promise<HostReply> {
  const { max_read_bytes: maxBytes } = guest.module.config.security.read_file;
  const file = await files.open(path, scopeOf(guest, "read"));
  try {
    if (file.size > maxBytes) {
      const why = `it has ${file.size} bytes; [security.read_file] max_read_bytes allows ${maxBytes}`;
      throw new ToolError("file_too_large", `Cannot read ${shown(path)}: ${why}`);
    }
    const buffer = new Uint8Array(file.size);
    const bytes = buffer.subarray(0, await file.read(buffer, 0));
    if (encoding === "base64") return { head: { content: Buffer.from(bytes).toString("base64") } };
    const content = decodeText(bytes);
    if (content !== undefined) return { head: { content } };
    throw new ToolError(
      "binary_file",
      `Cannot read ${shown(path)}: it is not UTF-8 text; "encoding": "base64" reads it`,
    );
  } finally {
    await file.close();
  }
}

async function listFor(
  { path }: v.InferOutput<typeof listSchema>,
  { guest, services: { files }, signal }: Asked,
): Promise<HostReply> {
  const walk = files.walk(path, scopeOf(guest, "read"), { respectGitignore: true, maxEntries: MAX_LOOKED_AT, signal });
  const entries: { readonly path: string; readonly size: number }[] = [];
  for (let step = await walk.next();; step = await walk.next()) {
    if (step.done === true) return { head: { entries, truncated: step.value.truncated } };
    for (const file of step.value) {
      if (entries.length >= MAX_ENTRIES) return { head: { entries, truncated: true } };
      const size = await sizeOf(file);
      if (size !== undefined) entries.push({ path: file.path, size });
    }
  }
}

/** Returns the size of a file; undefined for one that may not be read. */
async function sizeOf(file: WalkedFile): Promise<number | undefined> {
  const opened = await file.open().catch((error: unknown) => {
    if (error instanceof ToolError) return undefined;
    throw error;
  });
  await opened?.close();
  return opened?.size;
}

async function writeFor(
  { path, content, encoding }: v.InferOutput<typeof writeSchema>,
  { guest, services: { files, taintedFiles }, signal }: Asked,
): Promise<HostReply> {
  const { max_write_bytes: maxBytes } = guest.module.config.security.write_file;
  const bytes = encoding === "base64"
    ? new Uint8Array(Buffer.from(content, "base64"))
    : new TextEncoder().encode(content);
  if (bytes.length > maxBytes) {
    const why = `it would have ${bytes.length} bytes; [security.write_file] max_write_bytes allows ${maxBytes}`;
    throw new ToolError("file_too_large", `Cannot write ${shown(path)}: ${why}`);
  }
  const scope = scopeOf(guest, "write");
  const { file } = await files.inspect(path, scope, { maxBytes: undefined });
  const marked = [resolve(scope.workspaceRoot, path)];
  // A module is a program of others: what it writes counts as what it says
  await taintedFiles.mark(marked, { taint: [guest.module.origin], root: scope.workspaceRoot });
  await files.change([{ kind: "write", path, content: bytes, expected: file?.version }], scope, { signal });
  await taintedFiles.written(marked);
  return { head: { bytes: bytes.length } };
}

/** Returns the files that a module reaches: those of the workspace, whatever else the tools may read. */
function scopeOf({ module: { config, title }, call }: Guest, what: "read" | "write"): FileScope {
  if (call === undefined) throw notCalled("workspace", title);
  const { workspace_root: workspaceRoot, allow_sensitive_file_reads: reads, allow_sensitive_file_writes: writes } =
    call.context;
  return {
    workspaceRoot,
    allowedRoot: ".",
    forbiddenPaths: config.autonomy.forbidden_paths,
    allowSensitive: what === "read" ? reads : writes,
  };
}

/** Returns the refusal of a module that is initialised before its next call: no policy has decided about that. */
function notCalled(what: "network" | "workspace", title: string): ToolError {
  return new ToolError("plugin_failed", `Cannot reach the ${what} for ${title}: nobody has called it yet`);
}

function parse<const S extends v.GenericSchema>(schema: S, value: unknown): v.InferOutput<S> {
  const parsed = v.safeParse(schema, value, { abortEarly: true });
  if (parsed.success) return parsed.output;
  const [issue] = parsed.issues;
  const field = issue.path?.map(({ key }) => String(key)).join(".");
  const reason = field === undefined
    ? "it is no JSON object with the fields it needs"
    : `its "${field.slice(0, 100)}" is wrong`;
  throw new ToolError("invalid_input", `Cannot answer the request of the module: ${reason}`);
}

function toShared(bytes: Uint8Array): Uint8Array {
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  return shared;
}

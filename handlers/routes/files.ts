import { Buffer } from "node:buffer";
import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { KNOWN_TYPES, mediaTypeOf } from "../../lib/base/media_type.ts";
import { writtenFileSchema } from "../../lib/base/records/agent_event.ts";
import { RUN_ID_SCHEMA } from "../../lib/base/records/run.ts";
import { FILE_TYPES, type Upload } from "../../lib/memory/uploads.ts";
import {
  checkConversation,
  CONVERSATION_ID,
  CONVERSATIONS,
} from "../../lib/runs/conversations/conversation_records.ts";
import { RUN_INPUTS } from "../../lib/runs/journal/run_records.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { Route, RouteParts } from "../route.ts";
import { openRunEvents, runsToRead, upTo } from "../wire/agent_runs.ts";
import { LIMIT_QUERY, listReply, listSchema, textQuery } from "../wire/lists.ts";
import { readForm } from "../wire/read_form.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";

/** Bytes of a form beside those of its file */
const FORM_BYTES = 65_536;

/** Schema of a file. Source: the Files API of OpenAI */
const fileSchema = v.object({
  id: v.string(),
  object: v.literal("file"),
  bytes: v.number(),
  /** Seconds since the epoch */
  created_at: v.number(),
  filename: v.string(),
  purpose: v.string(),
  /** Media type by the first bytes */
  content_type: v.string(),
  /** SHA-256 of the bytes, hexadecimal */
  sha256: v.string(),
  /** Conversation that the file goes with; null: none */
  conversation_id: v.nullable(v.string()),
});

const FORM: NonNullable<Route["rawBody"]> = {
  type: "multipart/form-data",
  maxBytes: ({ max_file_bytes: maxBytes }) => maxBytes + FORM_BYTES,
  what: "file, in a form,",
};

/** POST /v1/files: keeps a picture or a document for messages that name it. */
export const sendFileRoute = defineRoute({
  method: "POST",
  path: "/v1/files",
  access: "chat",
  needs: ["uploads", "store"],
  summary:
    "Keep a picture or a document, which messages then name by its id; a form with file, purpose, conversation_id",
  rawBody: FORM,
  reply: { status: 200, type: "application/json", schema: fileSchema },
  errors: ["overloaded", "insufficient_scope"],
  idempotency: "honoured",
  handle: sendFile,
});

async function sendFile(
  { uploads, store }: Pick<RouteParts, "uploads" | "store">,
  { body, head, caller }: RouteInput<unknown, unknown, Uint8Array>,
): Promise<Reply> {
  // A body that was read has a buffer of its own
  const bytes = body as Uint8Array<ArrayBuffer>;
  const { texts, files } = await readForm(bytes, head.headers.get("content-type") ?? "");
  const file = files.get("file");
  if (file === undefined) throw refuse("invalid_request", 'Cannot keep a file: "file" is missing', { param: "file" });
  const purpose = texts.get("purpose") ?? "user_data";
  if (!/^[a-z_]{1,64}$/.test(purpose)) throw unfit("purpose");
  const conversationId = texts.get("conversation_id");
  if (conversationId !== undefined) {
    if (!CONVERSATION_ID.test(conversationId) || conversationId === "new") throw unfit("conversation_id");
    const known = await CONVERSATIONS.read(store, conversationId);
    if (known !== undefined) checkConversation(caller, { owner: known.value.owner, isChannel: false });
  }
  return jsonReply(
    200,
    toFile(await uploads.add({ filename: file.name, bytes: file.bytes, purpose, conversationId }, caller)),
  );
}

/** GET /v1/files: files that the caller sent, newest first. */
export const filesRoute = defineRoute({
  method: "GET",
  path: "/v1/files",
  access: "chat",
  needs: ["uploads"],
  summary: "Files that the caller sent, newest first",
  query: {
    limit: LIMIT_QUERY,
    after: textQuery("Only those sent before the one with this id"),
    purpose: textQuery("Only those with this purpose"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(fileSchema) },
  async handle({ uploads }, { query, caller }) {
    const { files, hasMore } = await uploads.list(query, caller);
    return listReply(files.map(toFile), hasMore);
  },
});

/** GET /v1/files/:id: one file, without its bytes. */
export const fileRoute = defineRoute({
  method: "GET",
  path: "/v1/files/:id",
  access: "chat",
  needs: ["uploads"],
  summary: "One file, without its bytes",
  reply: { status: 200, type: "application/json", schema: fileSchema },
  handle: async (parts, input) => jsonReply(200, toFile(await findFile(parts, input))),
});

/** GET /v1/files/:id/content: the bytes of a file, for saving and never for showing as a page. */
export const fileContentRoute = defineRoute({
  method: "GET",
  path: "/v1/files/:id/content",
  access: "chat",
  needs: ["uploads"],
  summary: "The bytes of a file, as an attachment with the media type that its first bytes say",
  reply: { status: 200, type: "application/octet-stream" },
  otherReplies: FILE_TYPES.map((type) => ({ status: 200, type })),
  async handle(parts, input) {
    const file = await findFile(parts, input);
    const body = await parts.uploads.content(file);
    if (body === undefined) throw unknownFile();
    return attachment(body, file.filename, file.media_type);
  },
});

/** DELETE /v1/files/:id: forgets a file. Messages that named it keep what they were given of it. */
export const deleteFileRoute = defineRoute({
  method: "DELETE",
  path: "/v1/files/:id",
  access: "chat",
  needs: ["uploads"],
  summary: "Forget a file; messages that named it keep what they were given of it",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ id: v.string(), object: v.literal("file"), deleted: v.literal(true) }),
  },
  async handle({ uploads }, { params: { id }, caller }) {
    if (!await uploads.remove(id, caller)) throw unknownFile();
    return jsonReply(200, { id, object: "file", deleted: true });
  },
});

const runFileSchema = v.object({
  /** Position of the event and place in it */
  id: v.string(),
  object: v.literal("run.file"),
  ...writtenFileSchema.entries,
  written_at: v.string(),
  call_id: v.string(),
  tool: v.string(),
  /** Files of the same call behind this one that the journal does not name. Absent: none */
  dropped: v.optional(v.number()),
});
const RUN_FILE_ID = /^(\d{1,15})-(\d{1,4})$/;

/** GET /v1/runs/:id/files: files that the tools of a run wrote or removed, in their order. */
export const runFilesRoute = defineRoute({
  method: "GET",
  path: "/v1/runs/:id/files",
  access: "runs",
  needs: ["agent", "storedRuns"],
  params: { id: RUN_ID_SCHEMA },
  summary:
    "Files that the tools of a run wrote or removed, as each call left them; not those of commands and other programs",
  query: { limit: LIMIT_QUERY, after: textQuery("Only those behind the one with this id") },
  reply: { status: 200, type: "application/json", schema: listSchema(runFileSchema) },
  async handle(parts, input) {
    const { limit, after } = input.query;
    const data: v.InferOutput<typeof runFileSchema>[] = [];
    for await (const file of runFiles(parts, input, after ?? "0-0")) {
      if (file.id !== after && data.push(file) > limit) break;
    }
    return listReply(data.slice(0, limit), data.length > limit);
  },
});

/** GET /v1/runs/:id/files/:file/content: the bytes that a call wrote, while the file still has them. */
export const runFileContentRoute = defineRoute({
  method: "GET",
  path: "/v1/runs/:id/files/:file/content",
  access: "runs",
  needs: ["agent", "storedRuns", "readWritten", "store"],
  params: { id: RUN_ID_SCHEMA, file: { type: "string", pattern: RUN_FILE_ID.source } },
  summary:
    "The bytes that a call of a run wrote, as an attachment; 409 where the file has others by now or may not be read",
  reply: { status: 200, type: "application/octet-stream" },
  otherReplies: KNOWN_TYPES.map((type) => ({ status: 200, type })),
  errors: ["conflict", "payload_too_large"],
  async handle(parts, input) {
    const { params: { id, file: fileId }, signal } = input;
    for await (const file of runFiles(parts, input, fileId)) {
      if (file.id !== fileId) break;
      const workspace = (await RUN_INPUTS.read(parts.store, id))?.value.workspace;
      const bytes = await parts.readWritten(file, { workspace, signal });
      return attachment(bytes, file.path, mediaTypeOf(Buffer.from(bytes.buffer)));
    }
    throw refuse("not_found", `Cannot find this file of the run: GET /v1/runs/${id}/files shows those that are known`);
  },
});

/** Yields the files of a run from one on, as far as the run has come. @throws {HttpError} as openRunEvents */
async function* runFiles(
  parts: Pick<RouteParts, "agent" | "storedRuns">,
  { params: { id }, caller, signal }: RouteInput<{ readonly id: string }>,
  from: string,
): AsyncGenerator<v.InferOutput<typeof runFileSchema>, undefined> {
  const [, seq = "", index = ""] = RUN_FILE_ID.exec(from) ?? [];
  if (seq === "") throw refuse("invalid_request", 'Cannot use this "after": it is no id of a file', { param: "after" });
  const after = Math.max(0, Number(seq) - 1);
  const place = { name: "after", seq: after };
  const { events, recorded } = await openRunEvents(runsToRead(parts), id, { after: place, signal, caller });
  for await (const batch of upTo(recorded, { after, events })) {
    for (const event of batch) {
      if (event.type !== "tool_end") continue;
      const { files = [], files_dropped: dropped, call_id, tool, time: written_at } = event;
      for (const [at, file] of files.entries()) {
        if (event.seq === Number(seq) && at < Number(index)) continue;
        const left = dropped !== undefined && at === files.length - 1 ? { dropped } : {};
        yield { id: `${event.seq}-${at}`, object: "run.file", ...file, written_at, call_id, tool, ...left };
      }
    }
  }
}

/** Returns bytes for saving, and never for showing as a page of the gateway. */
function attachment(body: Uint8Array<ArrayBuffer>, path: string, type = "application/octet-stream"): Reply {
  return {
    status: 200,
    body,
    type,
    headers: {
      "content-disposition": `attachment; filename*=UTF-8''${encodeName(path.slice(path.lastIndexOf("/") + 1))}`,
      "content-security-policy": "sandbox; default-src 'none'",
      "x-content-type-options": "nosniff",
    },
  };
}

async function findFile(
  { uploads }: Pick<RouteParts, "uploads">,
  { params: { id }, caller }: RouteInput<{ readonly id: string }>,
): Promise<Upload> {
  const found = await uploads.get(id, caller);
  if (found === undefined) throw unknownFile();
  return found;
}

function toFile({ id, bytes, created_at, filename, purpose, media_type, sha256, conversation_id }: Upload) {
  const object = "file" as const;
  return {
    id,
    object,
    bytes,
    created_at,
    filename,
    purpose,
    content_type: media_type,
    sha256,
    conversation_id: conversation_id ?? null,
  };
}

/** Encodes a name for a header. Source: RFC 8187 section 3.2 */
function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replace(/['()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}

function unfit(param: string) {
  return refuse("invalid_request", `Cannot keep a file: "${param}" does not fit`, { param });
}

function unknownFile() {
  return refuse("not_found", "Cannot find this file: GET /v1/files shows yours");
}

import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { FILE_TYPES, type Upload } from "../../lib/memory/uploads.ts";
import {
  checkConversation,
  CONVERSATION_ID,
  CONVERSATIONS,
} from "../../lib/runs/conversations/conversation_records.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { Route, RouteParts } from "../route.ts";
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
    return {
      status: 200,
      body,
      type: file.media_type,
      headers: {
        "content-disposition": `attachment; filename*=UTF-8''${encodeName(file.filename)}`,
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
      },
    };
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

import * as v from "valibot";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { REMEMBER, RULE_MATCHES } from "../../lib/base/records/approval.ts";
import { MESSAGE_MODES, type Run } from "../../lib/base/records/run.ts";
import type { Door } from "../door.ts";
import { MAX_SENT_FILES } from "../wire/sent_files.ts";

const id = v.pipe(v.string(), v.minLength(1), v.maxLength(128));
const answerFields = {
  approval_id: id,
  remember: v.nullish(v.picklist(REMEMBER)),
  match: v.nullish(v.picklist(RULE_MATCHES)),
} as const;

/**
 * The frames that a client of `/ws/chat` may send, each with the scope it needs and its fields. `null` equals
 * absent.
 *
 * A JSON object with a known `type` is a command; one without a `type` but with a string `message`, `content` or `text` is a
 * message of that string; any other text is the message, word for word. An answer to an approval refuses fields it does not know,
 * as the routes of approvals do.
 * Source: docs/design/websocket.md "Frames in"
 */
export const FRAMES = {
  message: {
    access: "chat",
    continues: "conversation",
    fields: v.object({
      type: v.literal("message"),
      text: v.pipe(v.string(), v.regex(/\S/)),
      conversation_id: v.nullish(id),
      model: v.nullish(v.string()),
      /** Default `queue`, without an `accepted` frame */
      mode: v.nullish(v.picklist(MESSAGE_MODES)),
      /** Ids of files that were sent to `/v1/files`, which go behind the text */
      files: v.nullish(v.pipe(v.array(id), v.maxLength(MAX_SENT_FILES))),
    }),
  },
  resume: {
    access: "chat",
    continues: "run",
    fields: v.object({ type: v.literal("resume"), run_id: id, after: v.pipe(v.number(), v.integer(), v.minValue(0)) }),
  },
  cancel: { access: "chat", continues: "run", steady: "connection", fields: v.object({ type: v.literal("cancel") }) },
  approve: {
    access: "approve",
    fields: v.strictObject({
      type: v.literal("approve"),
      ...answerFields,
      /** Fields of the form of an approval of kind `elicitation` */
      content: v.nullish(v.record(v.string(), v.unknown())),
    }),
  },
  deny: { access: "approve", fields: v.strictObject({ type: v.literal("deny"), ...answerFields }) },
  hello: {
    access: "chat",
    steady: "connection",
    fields: v.object({
      type: v.literal("hello"),
      events: v.nullish(v.boolean()),
      /** false: nobody at the client answers approvals. Default true, for a token with the scope `approve` */
      approvals: v.nullish(v.boolean()),
    }),
  },
  ping: { access: "chat", steady: "connection", fields: v.object({ type: v.literal("ping") }) },
} as const satisfies Readonly<Record<string, Door & { readonly fields: v.GenericSchema }>>;

type Frames = typeof FRAMES;
/** A frame that a client may send. */
export type Frame = { [Type in keyof Frames]: v.InferOutput<Frames[Type]["fields"]> }[keyof Frames];
/** A frame that starts a run with a message. */
export type MessageFrame = Extract<Frame, { type: "message" }>;
/** A frame that reads a run from a position on. */
export type ResumeFrame = Extract<Frame, { type: "resume" }>;
/** A frame that answers an approval. */
export type AnswerFrame = Extract<Frame, { type: "approve" | "deny" }>;

/** A frame, or the reason why a text is no frame. */
export type ParsedFrame = { readonly ok: true; readonly frame: Frame } | {
  readonly ok: false;
  readonly reason: string;
};

/** Parses one text frame. Never throws; a reason never repeats the frame's values. */
export function parseFrame(text: string): ParsedFrame {
  const value = text.trimStart().startsWith("{") ? parseObject(text) : undefined;
  if (value === undefined) return message(text);
  const { type } = value;
  if (type === undefined || type === null) return message(plainText(value) ?? text);
  if (typeof type !== "string" || !Object.hasOwn(FRAMES, type)) return message(text);
  // The key was just found in the table
  const result = v.safeParse(FRAMES[type as keyof Frames].fields, value, { abortEarly: true });
  if (result.success) return { ok: true, frame: result.output };
  const [issue] = result.issues;
  const field = (v.getDotPath(issue) ?? "type").slice(0, MAX_FIELD_LENGTH);
  const reason = issue.expected === "never"
    ? `it has no field "${field}"`
    : `its field "${field}" is missing or not valid`;
  return { ok: false, reason: `Cannot read the "${type}" frame: ${reason}` };
}

const MAX_FIELD_LENGTH = 64;

function message(text: string): ParsedFrame {
  if (text.trim() === "") return { ok: false, reason: "Cannot answer a message of blanks alone" };
  return { ok: true, frame: { type: "message", text } };
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text); // it starts with a brace, so it is an object
  } catch {
    return undefined;
  }
}

function plainText(value: Record<string, unknown>): string | undefined {
  return [value.message, value.content, value.text].filter((field) => typeof field === "string")
    .find((field) => field !== "");
}

/** Writes an event as a frame. Returns undefined for an event that the mode leaves out. */
export type FrameEncoder = (event: AgentEvent, runId: string) => string | undefined;

/**
 * Writes events in the plain mode: `delta`, `done` and `error` with exactly the documented fields. A refusal is sent as text.
 * Source: docs/design/websocket.md "Frames out"
 */
export const encodePlain: FrameEncoder = (event) => {
  switch (event.type) {
    case "text_delta":
    case "refusal_delta":
      return `{"type":"delta","delta":${JSON.stringify(event.delta)}}`;
    case "done":
      return `{"type":"done"}`;
    case "error":
      return errorFrame(event.code, event.message);
    default:
      return undefined;
  }
};

/** Writes every event unchanged, with the id of its run. The mode after `hello {events: true}`. */
export const encodeEvent: FrameEncoder = (event, runId) => JSON.stringify({ ...event, run_id: runId });

/** Adds to a frame that its event did not come as it happened. */
export function notLive(frame: string): string {
  return `${frame.slice(0, -1)},"live":false}`;
}

/** Writes a failure that is no event of a run: a bad frame, a full queue, a run that could not start. */
export function errorFrame(code: string, message: string): string {
  return JSON.stringify({ type: "error", message, code });
}

/** Writes that a message with a mode is on disk, and which run at work it goes to; null: it is the next turn. */
export function acceptedFrame(runId: string, steers: Run["steers"]): string {
  const { run_id = null, mode = "queue" } = steers ?? {};
  return JSON.stringify({ type: "accepted", run_id: runId, mode, steers: run_id });
}

/** The answer to a `ping` frame, in both modes. */
export const PONG_FRAME = `{"type":"pong"}`;

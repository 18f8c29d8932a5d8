import * as v from "valibot";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { REMEMBER, RULE_MATCHES } from "../../lib/base/records/approval.ts";
import type { Door } from "../door.ts";

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
 * message of that string; any other text is the message, word for word. An answer to a question refuses fields it does not know,
 * as the routes of approvals do.
 * Source: docs/design/websocket.md "Frames in"
 */
export const FRAMES = {
  message: {
    access: "chat",
    continues: "conversation",
    fields: v.object({
      type: v.literal("message"),
      text: v.pipe(v.string(), v.minLength(1)),
      conversation_id: v.nullish(id),
      model: v.nullish(v.string()),
    }),
  },
  resume: {
    access: "chat",
    continues: "run",
    fields: v.object({ type: v.literal("resume"), run_id: id, after: v.pipe(v.number(), v.integer(), v.minValue(0)) }),
  },
  cancel: { access: "chat", continues: "run", fields: v.object({ type: v.literal("cancel") }) },
  approve: { access: "approve", fields: v.strictObject({ type: v.literal("approve"), ...answerFields }) },
  deny: { access: "approve", fields: v.strictObject({ type: v.literal("deny"), ...answerFields }) },
  hello: {
    access: "chat",
    fields: v.object({
      type: v.literal("hello"),
      events: v.nullish(v.boolean()),
      /** Tells whether somebody at the client answers questions about calls, where the token may. Default true */
      approvals: v.nullish(v.boolean()),
    }),
  },
  ping: { access: "chat", fields: v.object({ type: v.literal("ping") }) },
} as const satisfies Readonly<Record<string, Door & { readonly fields: v.GenericSchema }>>;

type Frames = typeof FRAMES;
export type Frame = { [Type in keyof Frames]: v.InferOutput<Frames[Type]["fields"]> }[keyof Frames];
export type MessageFrame = Extract<Frame, { type: "message" }>;
export type ResumeFrame = Extract<Frame, { type: "resume" }>;
export type AnswerFrame = Extract<Frame, { type: "approve" | "deny" }>;

/** A frame, or why it is none. */
export type ParsedFrame = { readonly ok: true; readonly frame: Frame } | {
  readonly ok: false;
  readonly reason: string;
};

/** Parses one text frame. Never throws; a reason never repeats the frame's values. */
export function parseFrame(text: string): ParsedFrame {
  if (text === "") return { ok: false, reason: "Cannot answer an empty message" };
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
  return [value.message, value.content, value.text].find((field) => typeof field === "string" && field !== "") as
    | string
    | undefined;
}

/** Events as frames; undefined where an event has no place in the mode. */
export type FrameEncoder = (event: AgentEvent, runId: string) => string | undefined;

/**
 * The plain mode: `delta`, `done` and `error` with exactly the documented fields. A refusal is told as text.
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

/** After `hello {events: true}`: every event as it is, with its run. */
export const encodeEvent: FrameEncoder = (event, runId) => JSON.stringify({ ...event, run_id: runId });

/** A failure that is no event of a run: a bad frame, a full queue, a run that could not start. */
export function errorFrame(code: string, message: string): string {
  return JSON.stringify({ type: "error", message, code });
}

/** The answer to `ping`, in both modes: a client that never asks never sees it. */
export const PONG_FRAME = `{"type":"pong"}`;

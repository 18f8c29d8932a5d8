import * as v from "valibot";
import { REMEMBER } from "../../lib/base/records/approval.ts";

/**
 * What a client says on `/ws/chat` (DESIGN.md section 4). `null` equals absent.
 *
 * A JSON object with a known `type` is a command; one without a `type` but with a string `message`, `content` or `text` is a
 * message of that string; any other text is the message, word for word.
 */
const id = v.pipe(v.string(), v.minLength(1), v.maxLength(128));
const commands = {
  message: v.object({
    type: v.literal("message"),
    text: v.pipe(v.string(), v.minLength(1)),
    conversation_id: v.nullish(id),
    model: v.nullish(v.string()),
  }),
  cancel: v.object({ type: v.literal("cancel") }),
  approve: v.object({
    type: v.literal("approve"),
    approval_id: id,
    remember: v.nullish(v.picklist(REMEMBER)),
  }),
  deny: v.object({
    type: v.literal("deny"),
    approval_id: id,
    remember: v.nullish(v.picklist(REMEMBER)),
  }),
  resume: v.object({ type: v.literal("resume"), run_id: id, after: v.pipe(v.number(), v.integer(), v.minValue(0)) }),
  hello: v.object({
    type: v.literal("hello"),
    events: v.nullish(v.boolean()),
    /** Whether somebody there answers questions about calls, where the token may. Default true */
    approvals: v.nullish(v.boolean()),
  }),
  ping: v.object({ type: v.literal("ping") }),
} as const;

type Commands = typeof commands;
export type Frame = { [Type in keyof Commands]: v.InferOutput<Commands[Type]> }[keyof Commands];
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
  if (typeof type !== "string" || !Object.hasOwn(commands, type)) return message(text);
  // The key was just found in the table
  const result = v.safeParse(commands[type as keyof Commands], value, { abortEarly: true });
  if (result.success) return { ok: true, frame: result.output };
  const field = v.getDotPath(result.issues[0]) ?? "type";
  return { ok: false, reason: `Cannot read the "${type}" frame: its field "${field}" is missing or not valid` };
}

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

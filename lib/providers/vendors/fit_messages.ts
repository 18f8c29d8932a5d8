import { hash } from "node:crypto";
import {
  type AssistantMessage,
  type Content,
  type ContentPart,
  isTextPart,
  type Message,
  textOf,
} from "../../base/records/message.ts";
import type { ProviderRequest } from "../provider.ts";
import type { CallIdName, VendorForm } from "./vendor_forms.ts";

/** The ids of tool calls that a vendor takes. */
interface CallIdForm {
  readonly form: RegExp;
  /** Makes an id of the form. @param digest 64 hexadecimal digits. @param place number of the call in the request, from 0 */
  make(call: { readonly name: string; readonly digest: string; readonly place: number }): string;
}

const ANY: CallIdForm = { form: /[^]/, make: ({ digest }) => `call_${digest.slice(0, 24)}` };

const FORMS: Readonly<Record<CallIdName, CallIdForm>> = {
  any: ANY,
  // Source: the error "string too long. Expected a string with maximum length 40" of `messages[].tool_calls[].id`
  openai: { ...ANY, form: /^[^]{1,40}$/ },
  // Source: the error "String should match pattern '^[a-zA-Z0-9_-]+$'"; Bedrock takes 64 characters
  anthropic: { ...ANY, form: /^[a-zA-Z0-9_-]{1,64}$/ },
  // Source: the error "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9"
  mistral: { form: /^[a-zA-Z0-9]{9}$/, make: ({ digest }) => digest.slice(0, 9) },
  // Kimi's models were trained on ids that count the calls of a conversation
  kimi: { form: /^functions\.[^\s:]+:\d+$/, make: ({ name, place }) => `functions.${name}:${place}` },
};

/**
 * Gives each tool call of a request, and its result, an id that the vendor takes and that no other call of the request has: the id that
 * this provider gave the call, else the call's own, else one that is made of it. The same history gets the same ids each time. A
 * request whose ids the vendor takes is returned as it is.
 * @param options.provider name under which messages keep the ids that it gave
 */
export function fitCallIds(
  request: ProviderRequest,
  { provider, ids }: { readonly provider: string; readonly ids: CallIdName },
): ProviderRequest {
  if (!request.messages.some(hasCalls)) return request;
  const form = FORMS[ids];
  if (areFit(request.messages, form)) return request;
  const calls = readCalls(request.messages, provider);
  nameCalls(calls, form);
  let at = 0;
  const next = () => (calls.order[at++] as Call).sent; // there is one for each place, in the order of the messages
  return { ...request, messages: request.messages.map((message) => withIds(message, next)) };
}

function hasCalls(message: Message): boolean {
  return message.role === "tool" || (message.role === "assistant" && message.tool_calls !== undefined);
}

function areFit(messages: readonly Message[], { form }: CallIdForm): boolean {
  const seen = new Set<string>();
  const isFit = (id: string) => form.test(id) && !seen.has(id) && seen.add(id) === seen;
  return messages.every((message) => {
    if (message.role === "tool") return seen.has(message.tool_call_id);
    if (message.role !== "assistant") return true;
    return message.vendor_ids === undefined && (message.tool_calls?.every(({ id }) => isFit(id)) ?? true);
  });
}

/** A tool call of a request. A result without its call counts as one. */
interface Call {
  readonly id: string;
  readonly name: string;
  /** Id that the provider itself gave the call */
  readonly given: string | undefined;
  /** Id that the vendor is sent */
  sent: string;
}

interface Calls {
  /** Each call once */
  readonly all: readonly Call[];
  /** The call of each id in the messages, in their order: a call stands here for itself and for each of its results */
  readonly order: readonly Call[];
}

/** A result belongs to the first open call of its id in the message before it, else to the last call of that id. */
function readCalls(messages: readonly Message[], provider: string): Calls {
  const all: Call[] = [];
  const order: Call[] = [];
  const last = new Map<string, Call>();
  const open = new Map<string, Call[]>();
  const add = (call: Omit<Call, "sent">): Call => {
    const added = { ...call, sent: "" };
    all.push(added);
    last.set(call.id, added);
    return added;
  };
  for (const message of messages) {
    if (message.role === "assistant" && message.tool_calls !== undefined) {
      const given = message.vendor_ids?.[provider];
      const calls = message.tool_calls.map(({ id, function: { name } }, i) => add({ id, name, given: given?.[i] }));
      open.clear();
      for (const call of calls.toReversed()) {
        const same = open.get(call.id);
        if (same === undefined) open.set(call.id, [call]);
        else same.push(call);
      }
      for (const call of calls) order.push(call);
    } else if (message.role === "tool") {
      const id = message.tool_call_id;
      order.push(open.get(id)?.pop() ?? last.get(id) ?? add({ id, name: "tool", given: undefined }));
    }
  }
  return { all, order };
}

/** Ids that are kept come first, so that no made one takes their place. */
function nameCalls({ all }: Calls, { form, make }: CallIdForm): void {
  const taken = new Set<string>();
  for (const call of all) {
    const kept = [call.given, call.id].find((id) => id !== undefined && form.test(id) && !taken.has(id));
    if (kept !== undefined) taken.add(call.sent = kept);
  }
  /** Numbers of the next attempts, by id: they only grow, so that many calls of one id cost no more than others */
  const attempts = new Map<string, number>();
  let next = 0;
  for (const [index, call] of all.entries()) {
    if (call.sent !== "") continue;
    let attempt = attempts.get(call.id) ?? 0;
    next = Math.max(next, index);
    do {
      const digest = hash("sha256", `${attempt++}\0${call.id}`);
      call.sent = make({ name: call.name, digest, place: next++ });
    } while (taken.has(call.sent));
    attempts.set(call.id, attempt);
    taken.add(call.sent);
  }
}

function withIds(message: Message, next: () => string): Message {
  if (message.role === "tool") return { ...message, tool_call_id: next() };
  if (message.role !== "assistant" || message.tool_calls === undefined) return message;
  const { vendor_ids: _, ...rest }: AssistantMessage = message;
  return { ...rest, tool_calls: message.tool_calls.map((call) => ({ ...call, id: next() })) };
}

/** Result of a tool that gave none. */
const NO_OUTPUT = "(no output)";

/**
 * Leaves out the texts of a request that are blank or empty, and blanks at the end of a last message of the assistant. A request
 * without them is returned as it is. Claude refuses a whole request for one such text.
 * Source: the errors "text content blocks must contain non-whitespace text" and "final assistant content cannot end with trailing
 * whitespace" of the Messages API
 */
export function leaveOutBlanks(request: ProviderRequest): ProviderRequest {
  const { messages } = request;
  const last = messages.at(-1);
  const end = last?.role === "assistant" ? withoutEnd(last.content) : last?.content;
  if (end === last?.content && !messages.some(({ content }) => hasBlank(content))) return request;
  return {
    ...request,
    messages: messages.flatMap((message) => filled(message, message === last ? end ?? null : message.content)),
  };
}

function isBlank(text: string): boolean {
  return !/\S/.test(text);
}

function isBlankPart(part: ContentPart): boolean {
  return isTextPart(part) && isBlank(part.text);
}

function hasBlank(content: Content | null): boolean {
  return typeof content === "string" ? isBlank(content) : content?.some(isBlankPart) === true;
}

/** Returns a content without blanks at its end; the same one where there are none. */
function withoutEnd(content: Content | null): Content | null {
  if (typeof content === "string") return content.trimEnd();
  const part = content?.at(-1);
  if (content === null || part === undefined || !isTextPart(part) || !/\s$/.test(part.text)) return content;
  return [...content.slice(0, -1), { ...part, text: part.text.trimEnd() }];
}

/** The message with what is not blank of its content. One of which nothing is left goes too, unless it has calls, or is the result of one. */
function filled(message: Message, content: Content | null): readonly Message[] {
  if (content === message.content && !hasBlank(content)) return [message];
  const rest = typeof content === "string"
    ? (isBlank(content) ? null : content)
    : content?.filter((part) => !isBlankPart(part)) ?? null;
  if (message.role === "tool") return [{ ...message, content: rest === null || rest.length === 0 ? NO_OUTPUT : rest }];
  if (message.role !== "assistant") return rest === null || rest.length === 0 ? [] : [{ ...message, content: rest }];
  if (rest !== null && rest.length > 0) return [{ ...message, content: rest }];
  return (message.tool_calls?.length ?? 0) > 0 ? [{ ...message, content: null }] : [];
}

/** Joins messages that a vendor takes only as one. Messages of which it takes each are returned as they are. */
export function joinMessages(
  messages: readonly Message[],
  { instructions, alternates = false }: Pick<VendorForm, "instructions" | "alternates">,
): readonly Message[] {
  const told = instructions === "as_sent" ? messages : withOneSystem(messages);
  return alternates ? withTurns(told) : told;
}

const NO_REPLY: Message = { role: "assistant", content: "[no reply]" };

/**
 * Joins what one side says in several messages, up to its calls, so that the two take turns. Instructions behind the first message are what
 * the user says. Templates of models count no calls and no results, so that a reply stands between those and the user's next word.
 */
function withTurns(messages: readonly Message[]): readonly Message[] {
  const turns: Group[] = [];
  for (const [i, given] of messages.entries()) {
    const message: Message = i > 0 && isInstruction(given) ? { ...given, role: "user" } : given;
    const turn = turns.at(-1);
    const before = turn?.at(-1);
    if (before?.role === "tool" && message.role === "user") turns.push([NO_REPLY]);
    if (turn !== undefined && before?.role === message.role && isSaid(before)) turn.push(message);
    else turns.push([message]);
  }
  return turns.map(joined);
}

function isSaid(message: Message): boolean {
  return message.role === "user" || (message.role === "assistant" && message.tool_calls === undefined);
}

/** Joins the instructions at the beginning to one system message, and makes later ones of the role `developer` system messages. */
function withOneSystem(messages: readonly Message[]): readonly Message[] {
  const isJoined = messages.slice(0, 2).filter(isInstruction).length === 2;
  if (!isJoined && !messages.some(({ role }) => role === "developer")) return messages;
  const end = messages.findIndex((message) => !isInstruction(message));
  const [first, ...head] = messages.slice(0, end < 0 ? messages.length : end);
  const joint = first === undefined ? [] : [joined([first, ...head])];
  return [...joint, ...messages.slice(joint.length + head.length)].map((message): Message =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
}

/** Messages of one kind that stand together. */
type Group = [Message, ...Message[]];

/** Joins messages of one kind to one of the last one's role. All at once: one by one the time would grow with the square of their number. */
function joined(group: Group): Message {
  const [first, ...others] = group;
  if (others.length === 0) return first;
  const parted = group.findIndex(({ content }) => !isOneText(content));
  const texts = (parted < 0 ? group : group.slice(0, parted)).map(({ content }) => textOf(content));
  const text = texts.join("\n\n");
  const content = parted < 0 ? text : [
    ...toParts(texts.length === 0 ? null : text),
    ...group.slice(parted).flatMap((message) => toParts(message.content)),
  ];
  // All are of one kind, so that the fields of one fit the others
  const fields = {};
  for (const message of group) Object.assign(fields, message);
  return { ...fields, content } as Message; // by the fields of Object.assign
}

/** Tells whether a content can be written as one text without loss. */
function isOneText(content: Message["content"]): boolean {
  return !Array.isArray(content) || content.every((part) => part.type === "text" && Object.keys(part).length === 2);
}

function toParts(content: Message["content"]): readonly ContentPart[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content ?? [];
}

function isInstruction(message: Message): message is Extract<Message, { role: "system" | "developer" }> {
  return message.role === "system" || message.role === "developer";
}

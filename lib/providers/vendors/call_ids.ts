import { hash } from "node:crypto";
import type { AssistantMessage, Message } from "../../base/records/message.ts";
import type { ProviderRequest } from "../provider.ts";
import type { CallIdName } from "./vendor_forms.ts";

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

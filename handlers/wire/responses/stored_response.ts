import { HttpError, refuse } from "../../../lib/base/errors.ts";
import { createSystemRandom } from "../../../lib/base/random.ts";
import type { Caller } from "../../../lib/base/records/caller.ts";
import type { Message } from "../../../lib/base/records/message.ts";
import { isAtWork, type Run } from "../../../lib/base/records/run.ts";
import type { Logger } from "../../../lib/base/telemetry/log.ts";
import {
  checkConversation,
  CONVERSATION_ID,
  type ConversationEnds,
  type ConversationPlace,
  isUnbegun,
  lastRuns,
  readConversationEnds,
  refuseUnbegun,
} from "../../../lib/runs/conversations/conversation_records.ts";
import { createConversations, withSummary } from "../../../lib/runs/conversations/conversations.ts";
import { MAX_RESPONSE_BYTES, RUN_RESPONSES } from "../../../lib/runs/journal/run_records.ts";
import { removeRun, type StoredRuns } from "../../../lib/runs/journal/stored_runs.ts";
import type { Services } from "../../../lib/services.ts";
import type { RouteInput } from "../../define_route.ts";
import type { RouteParts } from "../../route.ts";
import { openRunEvents, reachesRun, runsToRead, upTo } from "../agent_runs.ts";
import type { StreamHead } from "../answer_by_run.ts";
import { collectSaid } from "../collect_reply.ts";
import { runFailure, toHttpError } from "../http_errors.ts";
import type { ReplyStoring } from "../to_completion_input.ts";
import {
  bringsTools,
  type ClientToolOfBody,
  isClientTool,
  type ResponseBody,
  type ResponseItem,
} from "./response_body.ts";
import { ResponseEvents, toRunId } from "./response_reply.ts";
import { toResponseTools } from "./response_tools.ts";
import { type ResponseForm, toResponseForm } from "./to_response_input.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Services that stored responses are read from. */
export type StoredParts = Pick<Services, "agent" | "store"> & Partial<Pick<Services, "storedRuns">>;

/** A response that is stored: its run, and what it repeats of its request. */
export interface StoredResponse {
  readonly run: Run;
  readonly form: ResponseForm;
  /** Items of the input, with their ids; undefined: they were too large to be kept */
  readonly input: readonly Fields[] | undefined;
  readonly brought: readonly ResponseItem[];
  readonly runs: StoredRuns;
}

/** Returns how a reply is stored, with what it repeats of its request. @throws {HttpError} 413 payload_too_large */
export function toStoring(body: ResponseBody, { conversationId, brought: before }: HistoryPlace): ReplyStoring {
  const { input: _input, stream: _stream, stream_options: _options, ...request } = body;
  const items = inputItems(body);
  const isKept = bytesOf(items) <= MAX_RESPONSE_BYTES;
  const brought = broughtBy([...before, ...items]);
  if (bytesOf([request, brought]) > MAX_RESPONSE_BYTES) {
    throw refuse(
      "payload_too_large",
      "Cannot store this response: its settings and its tools, with those that items brought before, have more than 4 MiB; " +
        'send "store": false and the whole history as "input"',
    );
  }
  return {
    conversationId,
    isBackground: body.background === true,
    writes: (runId) => [
      RUN_RESPONSES.insert(runId, { v: 1, request, brought, ...(isKept ? { input: [...items] } : {}) }),
    ],
  };
}

/** Returns the client's tools that items bring, an item for each: a client brings the same ones again and again, also in other words. */
function broughtBy(items: readonly ResponseItem[]): ResponseItem[] {
  const byName = new Map<string, ResponseItem>();
  for (const { type, tools } of items.filter(bringsTools)) {
    for (const tool of tools.filter(isClientTool).flatMap(oneByOne)) {
      const [inner] = tool.type === "namespace" ? tool.tools : [];
      const key = JSON.stringify([type, tool["name"], inner?.name]);
      // The last one counts
      byName.delete(key);
      byName.set(key, { type, tools: [tool] });
    }
  }
  return [...byName.values()];
}

function oneByOne(tool: ClientToolOfBody): readonly ClientToolOfBody[] {
  return tool.type === "namespace" ? tool.tools.map((inner) => ({ ...tool, tools: [inner] })) : [tool];
}

/** Returns the items of an input, which may be one text. */
export function inputItems({ input = [] }: ResponseBody): readonly ResponseItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/** Returns how many bytes a value has as JSON. */
function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/**
 * Reads a stored response.
 * @param param field that names it. Default: the path does
 * @throws {HttpError} 404 not_found for an unknown one, and for that of another token
 */
export async function findResponse(
  id: string,
  parts: StoredParts,
  { caller, param }: { readonly caller: Caller; readonly param?: string },
): Promise<StoredResponse> {
  const runId = toRunId(id);
  const runs = toRuns(parts);
  if (runId === undefined || await reachesRun(runs, runId, caller) !== true) throw unknownResponse(param);
  const [kept, run] = await Promise.all([RUN_RESPONSES.read(parts.store, runId), runs.get(runId)]);
  if (kept === undefined || run === undefined) throw unknownResponse(param);
  const { request, input, brought = [] } = kept.value;
  // Written from a body that had passed its check
  const body = request as ResponseBody;
  const { named } = toResponseTools(body, [], brought);
  return {
    run,
    form: toResponseForm(body, { named, isStored: true }),
    input: input?.map((item, at) => toShown(item, `${runId.slice("run_".length)}_i${at}`)),
    brought,
    runs,
  };
}

function toRuns({ agent, storedRuns }: StoredParts): StoredRuns {
  if (storedRuns !== undefined) return runsToRead({ agent, storedRuns });
  if (agent === undefined) throw new TypeError("Cannot read runs: neither an agent nor stored runs are there");
  return agent.runs;
}

function unknownResponse(param?: string): HttpError {
  return refuse(
    "not_found",
    "Cannot find this response: none of this id is stored that your token began; a request stores its response unless it is " +
      'in plain mode or says "store": false',
    param === undefined ? {} : { param },
  );
}

const PREFIXES: Readonly<Record<string, string>> = {
  message: "msg",
  reasoning: "rs",
  function_call: "fc",
  function_call_output: "fco",
  custom_tool_call: "ctc",
  custom_tool_call_output: "cto",
  tool_search_call: "tsc",
  tool_search_output: "tso",
  additional_tools: "at",
};

/** Returns an item of the input as lists show it. */
export function toShown(item: Fields, tail: string): Fields {
  const type = String(item["type"]);
  const id = `${PREFIXES[type] ?? "item"}_${tail}`;
  if (type !== "message") return { ...item, id };
  const { content, role } = item;
  const text = role === "assistant" ? { type: "output_text", annotations: [] } : { type: "input_text" };
  return {
    ...item,
    id,
    status: "completed",
    content: typeof content === "string" ? [{ ...text, text: content }] : content,
  };
}

/** Returns the members of a stored reply that do not change while it is told. */
export function toStoredHead(
  run: Run,
  { log, requestId }: { readonly log: Logger; readonly requestId: string },
): StreamHead {
  return {
    runId: run.id,
    created: Math.floor(Date.parse(run.created_at) / 1000),
    model: run.model,
    firstModel: run.model,
    conversationId: run.conversation_id,
    goesOn: true,
    interrupts: undefined,
    toError: (event) => toHttpError(runFailure(event), { log, requestId }),
  };
}

type Asking = Pick<RouteInput, "caller" | "signal" | "requestId">;

/** Returns a stored response as far as it has come, without a wait. */
export async function showResponse(
  { run, form, runs }: StoredResponse,
  { log, asking: { caller, signal, requestId } }: { readonly log: Logger; readonly asking: Asking },
): Promise<Fields> {
  const after = { name: "starting_after", seq: 0 };
  const { events, recorded } = await openRunEvents(runs, run.id, { after, signal, caller });
  const { said, end, answeredBy } = await collectSaid(upTo(recorded, { after: 0, events }));
  const head = toStoredHead(run, { log, requestId });
  const items = new ResponseEvents({ ...head, model: answeredBy ?? head.model }, form);
  items.encode(end?.type === "error" ? [...said, end] : said);
  const response = items.response();
  return end === undefined && run.status === "queued" ? { ...response, status: "queued" } : response;
}

/** Conversation that a request goes on with, and where in it. */
export interface HistoryPlace {
  readonly conversationId: string;
  /** Default: at its end */
  readonly after?: ConversationPlace;
  /** Items of the history that bring tools */
  readonly brought: readonly ResponseItem[];
}

/**
 * Returns the conversation that a request goes on with: behind `previous_response_id`, the one that it names, or a new one.
 * @throws {HttpError} 404 not_found for an unknown one and for that of another token; 409 conflict for a response that has not ended; 400
 *   invalid_request for both fields
 */
export async function conversationFor(
  { previous_response_id: previous, conversation }: ResponseBody,
  parts: StoredParts,
  caller: Caller,
): Promise<HistoryPlace> {
  if (typeof previous !== "string") {
    if (!conversation) return { conversationId: "new", brought: [] };
    const id = typeof conversation === "string" ? conversation : conversation.id;
    const { record } = await requireConversation(id, parts, caller);
    return { conversationId: id, brought: await broughtIn(id, record, parts) };
  }
  const param = "previous_response_id";
  if (conversation) {
    throw refuse("invalid_request", `Cannot take both "${param}" and "conversation": send one of them`, { param });
  }
  const { run, brought } = await findResponse(previous, parts, { caller, param });
  const { id: runId, conversation_id: id, status } = run;
  if (id === null) throw unknownResponse(param);
  if (isAtWork(status) || status === "needs_review") {
    throw refuse("conflict", "Cannot go on after this response: it is at work; wait for its end", { param });
  }
  return { conversationId: "new", after: { conversationId: id, runId }, brought };
}

/** Returns the items that bring tools up to the last response of a conversation, which may stand before messages that came by another way. */
async function broughtIn(
  id: string,
  record: ConversationEnds["record"],
  { store }: StoredParts,
): Promise<readonly ResponseItem[]> {
  for (const runId of await lastRuns(id, record, store)) {
    const response = await RUN_RESPONSES.read(store, runId);
    if (response !== undefined) return response.value.brought ?? [];
  }
  return [];
}

/** Returns the messages that a request goes on with, a summary in them. What does not fit into the model's window is among them. */
export async function readHistory(
  { conversationId: id, after }: HistoryPlace,
  { store }: StoredParts,
  caller: Caller,
): Promise<readonly Message[]> {
  const conversations = createConversations({ store, random: createSystemRandom() });
  const { lastRun } = after === undefined ? {} : await readConversationEnds(after.conversationId, store) ?? {};
  if (after !== undefined && lastRun !== after.runId) return (await conversations.upTo(after, caller)).messages;
  return withSummary(await conversations.history(after?.conversationId ?? id, caller));
}

async function requireConversation(id: string, { store }: StoredParts, caller: Caller): Promise<ConversationEnds> {
  const found = CONVERSATION_ID.test(id) ? await readConversationEnds(id, store) : undefined;
  try {
    if (found !== undefined) {
      checkConversation(caller, { owner: found.record.owner, isChannel: false });
      refuseUnbegun(found.record, "conversation");
      return found;
    }
  } catch (error) {
    if (!(error instanceof HttpError) || error.code !== "insufficient_scope") throw error;
  }
  throw refuse("not_found", "Cannot find this conversation: none of this id is stored that your token began", {
    param: "conversation",
  });
}

const REFERENCE = /^[a-z]{2,4}_([0-9a-z]{1,64})_i?[0-9]{1,6}$/;
/** Most responses that the references of one request name. */
const MAX_REFERENCED = 256;
/** Most bytes of JSON that references of one request stand for. */
const MAX_REFERENCED_BYTES = 16 * 1024 * 1024;

/**
 * Returns a body whose references to items are the items themselves.
 * @throws {HttpError} 404 not_found for an item that is unknown, or another token's; 413 payload_too_large
 */
export async function resolveReferences(
  body: ResponseBody,
  parts: StoredParts & Pick<RouteParts, "kit">,
  asking: Asking,
): Promise<ResponseBody> {
  const { input } = body;
  if (!Array.isArray(input) || !input.some(({ type }) => type === "item_reference")) return body;
  const items = [...input];
  let bytes = 0;
  // Reads one response after the other, so that no two large ones are held at once
  for (const [tail, places] of referencesIn(input)) {
    const [{ param }] = places;
    const known = await readItems(`resp_${tail}`, parts, { asking, param });
    for (const { at, id, param } of places) {
      const found = known.get(id);
      if (found === undefined) throw unknownItem(param);
      bytes += bytesOf(found);
      if (bytes > MAX_REFERENCED_BYTES) throw tooMuch(param, "more than 16 MiB");
      // Items of a reply and of an input that was checked have the form of items of an input
      items[at] = found as unknown as ResponseItem;
    }
  }
  return { ...body, input: items };
}

/** Place of a reference in an input. */
interface Reference {
  readonly at: number;
  readonly id: string;
  /** Field that has it */
  readonly param: string;
}

/** Returns the references of an input by the response that they name, whose id ends so. @throws as `resolveReferences` */
function referencesIn(input: readonly ResponseItem[]): ReadonlyMap<string, readonly [Reference, ...Reference[]]> {
  const byTail = new Map<string, [Reference, ...Reference[]]>();
  for (const [at, item] of input.entries()) {
    if (item.type !== "item_reference") continue;
    const reference = { at, id: String(item["id"]), param: `input[${at}].id` };
    const [, tail] = REFERENCE.exec(reference.id) ?? [];
    if (tail === undefined) throw unknownItem(reference.param);
    const others = byTail.get(tail);
    if (others !== undefined) others.push(reference);
    else if (byTail.size === MAX_REFERENCED) {
      throw tooMuch(reference.param, `items of more than ${MAX_REFERENCED} responses`);
    } else byTail.set(tail, [reference]);
  }
  return byTail;
}

async function readItems(
  id: string,
  parts: StoredParts & Pick<RouteParts, "kit">,
  { asking, param }: { readonly asking: Asking; readonly param: string },
): Promise<ReadonlyMap<unknown, Fields>> {
  try {
    const found = await findResponse(id, parts, { caller: asking.caller });
    const { output } = await showResponse(found, { log: parts.kit.log, asking });
    // The encoder makes the output
    const items = [...found.input ?? [], ...output as readonly Fields[]];
    return new Map(items.map((item) => [item["id"], item]));
  } catch (error) {
    if (error instanceof HttpError && error.code === "not_found") throw unknownItem(param);
    throw error;
  }
}

function unknownItem(param: string): HttpError {
  return refuse(
    "not_found",
    `Cannot find the item of "${param}": no response that your token began has stored it; send the item itself`,
    { param },
  );
}

function tooMuch(param: string, what: string): HttpError {
  return refuse("payload_too_large", `Cannot resolve "${param}": the references stand for ${what}; send the items`, {
    param,
  });
}

/**
 * Forgets a stored response with its run, and its conversation where nothing else was said in it.
 * @throws {HttpError} 409 conflict for one that has not ended
 */
export async function removeResponse(
  { run }: StoredResponse,
  { store, conversations }: Pick<Services, "store" | "conversations">,
): Promise<void> {
  const { id, conversation_id: conversation } = run;
  if (!await removeRun(id, store)) {
    throw refuse(
      "conflict",
      run.status === "needs_review"
        ? `Cannot delete this response: its run waits for a person; close it with "postern run resolve ${id} close"`
        : "Cannot delete this response: it is at work; wait for its end, or cancel it first",
    );
  }
  if (conversation === null) return;
  // Others may have gone on with the conversation until now; one that is at work stays
  const ends = await readConversationEnds(conversation, store);
  if (ends === undefined || !(isUnbegun(ends.record) || (ends.firstRun === id && ends.lastRun === id))) return;
  await conversations.delete(conversation);
}

import type { Random } from "../base/random.ts";
import { isWholeJson } from "../base/json.ts";
import { neutralize } from "../base/neutral_text.ts";
import { redactJson } from "../base/redact.ts";
import { type Message, SUMMARY_MARK, textOf } from "../base/records/message.ts";
import { joinTaints, type RunTaint, type Taint } from "../base/taint.ts";
import type { AgentRun, RecordedResult, TurnCall } from "./agent_run.ts";

/** Origins of the content of an envelope, and the source of its mark. */
export interface Envelope {
  /** Origins of the content, such as `web_fetch example.com` */
  readonly origin: Taint;
  readonly random: Random;
}

/**
 * Wraps what came from outside for the model's messages, so that it can tell data from instructions.
 *
 * The closing line carries a random mark: content cannot end its own envelope. Events and records keep the plain output.
 * Source: docs/design/network.md "Text from outside"
 */
export function wrapUntrusted(source: string, content: string, envelope: Envelope): string {
  const { open, close } = envelopeLines(source, envelope);
  return `${open}\n${neutralize(content)}\n${close}`;
}

/**
 * Returns data from outside for a client's program, with each text in it neutralized, names of properties included: lines of an envelope
 * would break the form of the data. What lies deeper than {@link redactJson} looks is left out, and `...` stands there.
 */
export function neutralizeData<T>(data: T): T {
  return redactJson(data, neutralize);
}

/** Returns the first and the last line of an envelope with a mark of its own. */
export function envelopeLines(source: string, { origin, random }: Envelope) {
  const mark = random.id("");
  const from = `source=${JSON.stringify(source)} origin=${JSON.stringify(origin.join(", "))}`;
  return { open: `<untrusted ${from} mark="${mark}">`, close: `</untrusted mark="${mark}">` };
}

/** The opening line of an envelope, whose origin is JSON */
const OPENING = /<untrusted source="[^"\n]{0,200}" origin=("(?:[^"\\\n]|\\.){0,4000}")/g;
/** Envelopes that are looked at in one message */
const MAX_ENVELOPES = 50;

/**
 * Returns the outside content in messages that a client sends: the results of its own tools, which nobody but the client knows,
 * envelopes of an agent whose messages it passes on, and summaries, of which nobody knows what they were made from.
 */
export function taintOfMessages(messages: readonly Message[]): Taint {
  const origins: string[] = [];
  const names = new Map<string, string>();
  for (const message of messages) {
    if (message.role === "assistant") {
      for (const call of message.tool_calls ?? []) names.set(call.id, call.function.name);
    }
    if (message.role === "tool") origins.push(`client tool ${names.get(message.tool_call_id) ?? ""}`.trim());
    if (message.role === "system" || message.role === "developer") continue;
    const text = textOf(message.content);
    if (message.role === "user" && text.startsWith(SUMMARY_MARK)) origins.push("summary");
    if (text.includes("<untrusted ")) origins.push(...originsIn(text));
  }
  return joinTaints(origins);
}

function originsIn(text: string): readonly string[] {
  return [...text.matchAll(OPENING)].slice(0, MAX_ENVELOPES).map(([, origin = ""]) =>
    // Attack: no envelope of a gateway has another text than JSON, and whoever writes one must not fail each request with it
    isWholeJson(origin) ? String(JSON.parse(origin)) : origin.slice(1, -1)
  );
}

type Result = Pick<RecordedResult, "output" | "isError"> & { readonly call: Pick<TurnCall, "name"> };
type Reader = Pick<AgentRun, "scope" | "facts" | "model" | "tools">;

/**
 * Notes the addresses that a run with tools of the agent begins with. All of them count before the run has read anything from outside. Afterwards the model may
 * have been told what to write, so only the words of people and what tools read count.
 */
export function noteOpening(run: Reader, messages: readonly Message[]): void {
  const { scope: { taint, conversationId }, facts: { kind } } = run;
  if (!taint.isTainted) return noteAll(taint, messages);
  // Their messages are written by a model
  const isPerson = kind !== "subagent" && kind !== "sop" && kind !== "cron";
  const names = new Map<string, string>();
  for (const message of messages) {
    const text = textOf(message.content);
    switch (message.role) {
      case "assistant":
        for (const call of message.tool_calls ?? []) names.set(call.id, call.function.name);
        break;
      case "tool":
        // The results of a client are in no conversation that is kept here under the name of an own tool
        if (conversationId === null || message.is_error === true) break;
        if (isVerbatim(run, names.get(message.tool_call_id) ?? "")) taint.links.add(text);
        break;
      default:
        if (isPerson && !text.startsWith(SUMMARY_MARK)) taint.links.add(text, { isPerson });
    }
  }
}

/** Notes the addresses in what a turn of the model said and called, while the run has read nothing from outside. */
export function noteTurn({ scope: { taint } }: Pick<AgentRun, "scope">, message: Message): void {
  if (!taint.isTainted) noteAll(taint, [message]);
}

/** Notes the addresses in the results of a turn's calls. */
export function noteResults(run: Reader, results: readonly Result[]): void {
  for (const { call, output, isError } of results) {
    if (!run.scope.taint.isTainted || (!isError && isVerbatim(run, call.name))) run.scope.taint.links.add(output);
  }
}

function noteAll({ links }: RunTaint, messages: readonly Message[]): void {
  for (const message of messages) {
    links.add(textOf(message.content), { isPerson: message.role !== "tool" });
    if (message.role !== "assistant") continue;
    for (const call of message.tool_calls ?? []) links.add(call.function.arguments);
  }
}

function isVerbatim({ tools: { agentTools }, model: { wishes: { clientTools } } }: Reader, name: string): boolean {
  const isClients = clientTools.some((tool) => tool.name === name);
  return !isClients && agentTools.some((tool) => tool.name === name && tool.verbatim === true);
}

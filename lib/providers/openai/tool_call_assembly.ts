import { type Fields, joinFields } from "../../base/join_fields.ts";
import { isRecord, isWholeJson } from "../../base/json.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import { ARGUMENTS_REPEATED, CallArguments } from "../upstream/call_arguments.ts";
import { type JsonRecord, stringOf } from "../upstream/json_reading.ts";
import { callFieldsBeside } from "./openai_chunk.ts";

interface Slot {
  id: string | undefined;
  name: string | undefined;
  readonly arguments: CallArguments;
  /** Place among the calls that were sent on; undefined until the name is known */
  index: number | undefined;
  /** The vendor's own fields */
  extra: Fields | undefined;
}

/** The services that an assembly of tool calls uses. */
export interface ToolCallAssemblyOptions {
  /** Makes an id for a call that came without one */
  readonly nextId: () => string;
  readonly notice: (code: string, message: string, out: ProviderEvent[]) => void;
}

/**
 * Puts the tool call deltas of a turn in order, and mends the mistakes of servers.
 *
 * Mended quirks of local servers, each reported once a turn: calls without an id or an index, two calls under one index,
 * a name repeated in each delta, arguments as an object. A call that never gets a name is reported as lost. Arguments that are no
 * JSON are reported and passed on unchanged.
 */
export class ToolCallAssembly {
  readonly #byIndex = new Map<number, Slot>();
  readonly #slots: Slot[] = [];
  #sent = 0;
  readonly #options: ToolCallAssemblyOptions;

  constructor(options: ToolCallAssemblyOptions) {
    this.#options = options;
  }

  /** Number of calls that were sent on. */
  count(): number {
    return this.#sent;
  }

  /** Returns the vendor's own fields of each call that was sent on, in their order. Undefined when no call has any. */
  extras(): readonly (Fields | null)[] | undefined {
    const known = this.#slots.filter(({ index }) => index !== undefined);
    if (known.every(({ extra }) => extra === undefined)) return undefined;
    return known.sort((a, b) => (a.index ?? 0) - (b.index ?? 0)).map(({ extra }) => extra ?? null);
  }

  /** Takes an entry of `delta.tool_calls`, or a whole call of `message.tool_calls`. */
  push(call: unknown, out: ProviderEvent[]): void {
    if (!isRecord(call)) {
      this.#options.notice("tool_call_malformed", "The provider sent a tool call that is no object: left out", out);
      return;
    }
    const fn = isRecord(call["function"]) ? call["function"] : call;
    const name = stringOf(fn["name"]);
    const slot = this.#slotOf(call, name, out);
    const delta = slot.arguments.take(this.#argumentsOf(fn["arguments"], out));
    slot.id ??= stringOf(call["id"]);
    const extra = callFieldsBeside(call);
    if (extra !== undefined) slot.extra = joinFields(slot.extra, extra);
    if (slot.name === undefined) {
      if (name !== undefined) this.#begin(slot, name, out);
      return;
    }
    if (name !== undefined) {
      const message = "The provider repeated a tool call's name in a later part: taken once";
      this.#options.notice("tool_call_name_repeated", message, out);
    }
    // A slot with a name was sent on and has its place
    const index = slot.index as number;
    if (extra !== undefined) out.push({ type: "tool_call_delta", index, arguments_delta: delta, extra });
    else if (delta !== "") out.push({ type: "tool_call_delta", index, arguments_delta: delta });
  }

  /** Reports calls that never got a name, and arguments that are no JSON. @returns how many calls the turn has */
  end(out: ProviderEvent[]): number {
    const { notice } = this.#options;
    for (const slot of this.#slots) {
      const held = slot.arguments.finish();
      if (held !== "" && slot.index !== undefined) {
        out.push({ type: "tool_call_delta", index: slot.index, arguments_delta: held });
      }
      if (slot.arguments.isCut) notice(ARGUMENTS_REPEATED.code, ARGUMENTS_REPEATED.message, out);
      if (slot.name === undefined) {
        notice("tool_call_lost", "The provider sent parts of a tool call without its name: the call is lost", out);
      } else if (slot.arguments.text !== "" && !isWholeJson(slot.arguments.text)) {
        notice("tool_call_arguments_broken", `The provider sent arguments for "${slot.name}" that are no JSON`, out);
      }
    }
    return this.#sent;
  }

  /** Sends a call on, now that its name is known. */
  #begin(slot: Slot, name: string, out: ProviderEvent[]): void {
    const { nextId, notice } = this.#options;
    const index = this.#sent++;
    slot.name = name;
    slot.index = index;
    if (slot.id === undefined) {
      slot.id = nextId();
      notice("tool_call_without_id", "The provider sent a tool call without an id: one was made up", out);
    }
    const first = {
      type: "tool_call_delta",
      index,
      call_id: slot.id,
      name,
      arguments_delta: slot.arguments.shown,
    } as const;
    out.push(slot.extra === undefined ? first : { ...first, extra: slot.extra });
  }

  #slotOf(call: JsonRecord, name: string | undefined, out: ProviderEvent[]): Slot {
    const { notice } = this.#options;
    const id = stringOf(call["id"]);
    const index = call["index"];
    if (typeof index !== "number") {
      notice("tool_call_without_index", "The provider sent a tool call without an index: taken in order", out);
      const known = id === undefined ? this.#slots.at(-1) : this.#slots.find((slot) => slot.id === id);
      return known === undefined || (id === undefined && isAnother(known, id, name)) ? this.#addSlot() : known;
    }
    const known = this.#byIndex.get(index);
    if (known !== undefined && !isAnother(known, id, name)) return known;
    if (known !== undefined) {
      notice("tool_call_index_shared", "The provider sent two tool calls under one index: kept apart", out);
    }
    const slot = this.#addSlot();
    this.#byIndex.set(index, slot);
    return slot;
  }

  #addSlot(): Slot {
    const slot: Slot = {
      id: undefined,
      name: undefined,
      arguments: new CallArguments(),
      index: undefined,
      extra: undefined,
    };
    this.#slots.push(slot);
    return slot;
  }

  #argumentsOf(value: unknown, out: ProviderEvent[]): string {
    if (typeof value === "string") return value;
    if (value === undefined || value === null) return "";
    const message = "The provider sent tool call arguments as JSON in place of text: written as text";
    this.#options.notice("tool_call_arguments_not_text", message, out);
    return JSON.stringify(value);
  }
}

/** Returns whether a part with a name belongs to another call than the one under its index. */
function isAnother(known: Slot, id: string | undefined, name: string | undefined): boolean {
  if (name === undefined || known.name === undefined) return false;
  if (id !== undefined && known.id !== undefined) return id !== known.id;
  return name !== known.name || (known.arguments.text !== "" && isWholeJson(known.arguments.text));
}

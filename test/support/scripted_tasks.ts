import type { Script, ScriptedTurn } from "../../fixtures/scripted_provider.ts";
import { textOf } from "../../lib/base/records/message.ts";
import type { ProviderRequest } from "../../lib/providers/provider.ts";

/** A turn, or what makes it of the request. */
export type TaskTurn = ScriptedTurn | string | ((request: ProviderRequest) => ScriptedTurn | string);

/**
 * A script for several agents at work at once: turns by the last words of the user, in order; the last one is repeated.
 * Words that are not among them are answered by `told <words>`.
 */
export function scriptedTasks(tasks: Readonly<Record<string, readonly TaskTurn[]>>): Script {
  const played = new Map<string, number>();
  return (request) => {
    const words = lastWords(request);
    const turns = tasks[words];
    if (turns === undefined) return `told ${words}`;
    const at = played.get(words) ?? 0;
    played.set(words, at + 1);
    const turn = turns[Math.min(at, turns.length - 1)] ?? "";
    return typeof turn === "function" ? turn(request) : turn;
  };
}

/** Returns the user's last words. */
export function lastWords({ messages }: ProviderRequest): string {
  const last = messages.findLast((message) => message.role === "user");
  return last === undefined ? "" : textOf(last.content);
}

/** A turn that calls one tool. */
export function toolTurn(name: string, input: Readonly<Record<string, unknown>>): ScriptedTurn {
  return { toolCalls: [{ name, arguments: input }] };
}

/** Returns the output of the last tool call. */
export function lastOutput({ messages }: ProviderRequest): string {
  const last = messages.at(-1);
  return last?.role === "tool" ? textOf(last.content) : "";
}

import type { Random } from "../base/random.ts";

/**
 * Wraps what came from outside for the model's messages, so that it can tell data from instructions.
 *
 * The closing line carries a random mark: content cannot end its own envelope. Events and records keep the plain output.
 * Source: docs/design/network.md "Text from outside"
 */
export function wrapUntrusted(source: string, content: string, random: Random): string {
  const mark = random.id("");
  return `<untrusted source=${JSON.stringify(source)} mark="${mark}">\n${content}\n</untrusted mark="${mark}">`;
}

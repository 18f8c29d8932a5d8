import { isRecord } from "../../../lib/base/json.ts";

/** A call that a model wrote. */
export interface WrittenCall {
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

/** Form in which the models of this trial are told to call: their template says so */
const TAGS = /<tool_call>\s*([^]*?)\s*<\/tool_call>/g;

/** Reads the calls of a reply, in the tags of the template; what is no call stays text. */
export function readCalls(reply: string): { readonly text: string; readonly calls: readonly WrittenCall[] } {
  const calls: WrittenCall[] = [];
  const text = reply.replaceAll(TAGS, (whole, json: string) => {
    const call = readCall(json);
    if (call === undefined) return whole;
    calls.push(call);
    return "";
  });
  return { text: text.trim(), calls };
}

/** Reads a call from its JSON. */
export function readCall(json: string): WrittenCall | undefined {
  try {
    const value: unknown = JSON.parse(json);
    if (!isRecord(value) || typeof value["name"] !== "string" || !isRecord(value["arguments"])) return undefined;
    return { name: value["name"], input: value["arguments"] };
  } catch {
    return undefined;
  }
}

import type { McpClientSdk } from "./load_sdk.ts";
import { isRecord } from "../../base/json.ts";
import { foreignWords } from "./mcp_error.ts";
import { FIELDS, isLeftOut, type ListMethod, MAX_ITEMS, MAX_SCHEMA_BYTES, TOO_MANY } from "./read_lists.ts";

/** Part of the SDK that tells the types of the protocol. */
type SpecTypes = Pick<McpClientSdk, "isSpecType">["isSpecType"];
type Fields = Readonly<Record<string, unknown>>;

/** Key of `_meta` of a page that has the sentences about its entries that were taken out. */
export const LEFT_OUT = "postern/left_out";

/** Characters of one entry as JSON: the SDK writes an issue for each wrong part of it, and millions of issues take all the memory. */
const MAX_ENTRY = 524_288;

/**
 * Returns a result with which the SDK can do: for the SDK one wrong entry makes a whole list wrong, and one unknown block a whole result of a
 * call or a prompt. Entries that break the protocol are taken out and named in `_meta`; a block that is none of the protocol becomes a line of text.
 */
export function mendResult(method: string, result: Fields, types: SpecTypes): Fields {
  if (method === "tools/call") return mendCall(result, types);
  if (method === "prompts/get") return mendPrompt(result, types);
  if (!Object.hasOwn(FIELDS, method)) return result;
  // The table has the method
  const list = method as ListMethod;
  const { [FIELDS[list]]: entries, _meta: meta } = result;
  if (!Array.isArray(entries)) return result;
  const faultOf = entryFault(list, { types, isLegacy: !("resultType" in result) });
  const judged = entries.slice(0, MAX_ITEMS).map((entry: unknown) => ({ entry, fault: faultOf(entry) }));
  const leftOut = judged.flatMap(({ entry, fault }) => fault === undefined ? [] : [isLeftOut(entry, fault)]);
  if (entries.length > MAX_ITEMS) leftOut.push(TOO_MANY);
  return {
    ...result,
    [FIELDS[list]]: judged.flatMap(({ entry, fault }) => fault === undefined ? [entry] : []),
    _meta: { ...isRecord(meta) ? meta : {}, [LEFT_OUT]: leftOut },
  };
}

function mendCall(result: Fields, types: SpecTypes): Fields {
  const { content: given, structuredContent: structured, ...rest } = result;
  // Servers leave the content out where all is in the structured result, and give a list as that in the old era, which wants an object
  const content = given === undefined && structured !== undefined ? [] : given;
  if (!Array.isArray(content)) return result;
  const blocks = content.map((block) => mendBlock(block, types));
  const isObject = "resultType" in result || structured === undefined || isRecord(structured);
  if (isObject) return { ...result, content: blocks };
  const hasText = blocks.some((block) => isRecord(block) && block["type"] === "text");
  return { ...rest, content: hasText ? blocks : [...blocks, { type: "text", text: JSON.stringify(structured) }] };
}

function mendPrompt(result: Fields, types: SpecTypes): Fields {
  const { messages } = result;
  if (!Array.isArray(messages)) return result;
  const mended = messages.map((message: unknown) =>
    isRecord(message) ? { ...message, content: mendBlock(message["content"], types) } : message
  );
  return { ...result, messages: mended };
}

function mendBlock(block: unknown, types: SpecTypes): unknown {
  if (types.ContentBlock(block)) return block;
  const type = isRecord(block) && typeof block["type"] === "string" ? block["type"] : "";
  const shown = JSON.stringify(foreignWords(type.slice(0, 100)));
  return { type: "text", text: `[a block of the type ${shown}: it is none of the protocol]` };
}

/** Returns what tells why an entry of a list is none, as the rest of a sentence. @param isLegacy the server speaks 2025-11-25 or older */
function entryFault(
  method: ListMethod,
  { types, isLegacy }: { readonly types: SpecTypes; readonly isLegacy: boolean },
): (entry: unknown) => string | undefined {
  const broken = "it breaks the schema of the protocol";
  const kinds = {
    "tools/list": types.Tool,
    "prompts/list": types.Prompt,
    "resources/list": types.Resource,
    "resources/templates/list": types.ResourceTemplate,
  };
  return (entry) => {
    if (!isRecord(entry)) return broken;
    if (JSON.stringify(entry).length > MAX_ENTRY) return `it is larger than ${MAX_ENTRY} characters`;
    const { inputSchema, outputSchema, description } = entry;
    if (method === "tools/list") {
      const isLong = [inputSchema, outputSchema].some((one) => (JSON.stringify(one) ?? "").length > MAX_SCHEMA_BYTES);
      if (isLong) return `its schema is larger than ${MAX_SCHEMA_BYTES} bytes`;
      if (!isRecord(inputSchema) || inputSchema["type"] !== "object") return 'its inputSchema has no "type": "object"';
      // The new era lets the structured result be of any type
      if (isLegacy && isRecord(outputSchema) && outputSchema["type"] !== "object") {
        return 'its outputSchema has no "type": "object"';
      }
    }
    if (description !== undefined && typeof description !== "string") return "its description is no text";
    return kinds[method](entry) ? undefined : broken;
  };
}

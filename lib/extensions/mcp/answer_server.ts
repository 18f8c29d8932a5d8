import type { CreateMessageRequest, CreateMessageResult, ElicitResult } from "@modelcontextprotocol/client";
import { ToolError } from "../../base/errors.ts";
import { parseElicitation } from "../../guard/elicitation.ts";
import type { SampleRequest } from "../../tools/runtime/askable_client.ts";
import type { CallContext } from "../../tools/runtime/tool_call.ts";
import type { McpRequestOptions } from "./mcp_connection.ts";

/** Server of a call, and what it may ask. */
export interface AskedServer {
  readonly server: string;
  /** Masks known secrets in the server's words. */
  readonly redact: (text: string) => string;
  /** True when the operator lets the server ask the run's model. Default: its requests are refused */
  readonly sampling?: boolean | undefined;
}

/** Requests to a model that a server may make in one call. */
const MAX_SAMPLES = 8;
/** Characters of all the messages of one request. */
const MAX_CHARACTERS = 200_000;

/**
 * Returns how the questions of a server are answered while its call runs: those to the user by a person, as an approval of kind
 * `elicitation`; those to a model by the run's own, where the operator allows it. A question that no form can show is declined.
 */
export function answerQuestions(
  { server, redact, sampling = false }: AskedServer,
  { elicit, progress, sample }: Pick<CallContext, "elicit" | "progress" | "sample">,
): Pick<McpRequestOptions, "onElicit" | "onSample"> {
  let sampled = 0;
  return {
    async onElicit(params, signal): Promise<ElicitResult> {
      const asked = parseElicitation(params, { server, redact });
      if ("refused" in asked) {
        progress(`A question of the MCP server "${server}" was declined: ${asked.refused}`);
        return { action: "decline" };
      }
      const answer = await elicit?.(asked, { signal });
      switch (answer?.action) {
        case "accept":
          return { action: "accept", ...(answer.content === undefined ? {} : { content: answer.content }) };
        case "decline":
          return { action: "decline" };
        default:
          return { action: "cancel" };
      }
    },
    ...(!sampling || sample === undefined ? {} : {
      async onSample(params, signal): Promise<CreateMessageResult> {
        if (++sampled > MAX_SAMPLES) throw refused(`one call may ask it ${MAX_SAMPLES} times`);
        progress(`The MCP server "${server}" asks the model`);
        const { text, model } = await sample(toSampleRequest(params), signal);
        return { role: "assistant", content: { type: "text", text: redact(text) }, model, stopReason: "endTurn" };
      },
    }),
  };
}

/** @throws {ToolError} for what no model is asked: tools, and messages that are no text */
function toSampleRequest(params: CreateMessageRequest["params"]): SampleRequest {
  const { messages, systemPrompt: system, maxTokens, temperature, tools } = params;
  if (tools !== undefined && tools.length > 0) throw refused("it is asked without tools");
  const texts = messages.map(({ role, content }) => {
    const blocks = Array.isArray(content) ? content : [content];
    return { role, content: blocks.map((block) => (block.type === "text" ? block.text : undefined)) };
  });
  const all = texts.flatMap(({ content }) => content);
  if (all.includes(undefined)) throw refused("its messages must be texts");
  const length = all.join("").length + (system?.length ?? 0);
  if (length > MAX_CHARACTERS) throw refused(`its messages have over ${MAX_CHARACTERS} characters`);
  const asked = texts.map(({ role, content }) => ({ role, content: content.join("\n") }));
  return { messages: asked, system, maxTokens: Math.max(1, Math.floor(maxTokens)), temperature };
}

function refused(why: string): ToolError {
  return new ToolError("sampling_refused", `Cannot ask the model: ${why}`);
}

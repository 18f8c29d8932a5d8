import type { CreateMessageRequest, CreateMessageResult, ElicitResult } from "@modelcontextprotocol/client";
import { parseElicitation } from "../../guard/elicitation.ts";
import type { ToolContext } from "../../tools/runtime/tool.ts";
import type { McpRequestOptions } from "./mcp_connection.ts";

/** Function that answers a request of a server to a model, for the run of a call. Rejects with the reason for the server. */
export type AnswerSampling = (
  params: CreateMessageRequest["params"],
  options: { readonly runId: string; readonly signal: AbortSignal },
) => Promise<CreateMessageResult>;

/** Server of a call, and what answers it. */
export interface AskedServer {
  readonly server: string;
  /** Masks known secrets in the server's words. */
  readonly redact: (text: string) => string;
  /** Default: a server's requests to a model are refused */
  readonly sample: AnswerSampling | undefined;
}

/**
 * Returns how the questions of a server are answered while its call runs: those to the user by a person, as an approval of kind
 * `elicitation`; those to a model where the operator allows it. A question that no form can show is declined.
 */
export function answerQuestions(
  { server, redact, sample }: AskedServer,
  { elicit, progress, runId }: Pick<ToolContext, "elicit" | "progress" | "runId">,
): Pick<McpRequestOptions, "onElicit" | "onSample"> {
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
    ...(sample === undefined ? {} : { onSample: (params, signal) => sample(params, { runId, signal }) }),
  };
}

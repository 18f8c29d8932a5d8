import { HttpError } from "../../lib/base/errors.ts";
import type { Message } from "../../lib/base/records/message.ts";
import type { ModelParameters, ToolChoice, ToolDeclaration } from "../../lib/providers/provider.ts";
import {
  addOnce,
  checkParts,
  sortUnknownFields,
  toMessage,
  type Unknown,
  withFunction,
} from "./completion_messages.ts";
import type { CompletionBody, CompletionTool } from "./completion_body.ts";

/** A completions body, translated for the start of a run. */
export interface CompletionInput {
  readonly model: string | undefined;
  readonly messages: readonly Message[];
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly clientTools: readonly ToolDeclaration[];
  readonly toolChoice: ToolChoice | undefined;
  readonly parallelToolCalls: boolean | undefined;
  readonly parameters: ModelParameters;
  /** Fields that are not honoured, as `logit_bias` or `messages[].cache_control`, each once */
  readonly ignored: readonly string[];
}

/** Options of `toCompletionInput`. */
export interface CompletionInputOptions {
  /** The agent's own tools are off: unknown fields go on to the model. Default false: they are named in `ignored` */
  readonly plain?: boolean;
}

/**
 * Translates a checked body. Fields that are `null` are left out. In plain mode unknown fields are copied to the place they came from;
 * those of the body itself, and the names of all, go to `parameters.passed`. Otherwise they are named in `ignored` and not copied, save
 * a vendor's own parts of a reply that the client sends back with a tool call.
 * @throws {HttpError} 400 `unsupported_parameter` for `n` above 1, for `logprobs` where the agent's tools are on, and for the legacy
 * `functions`; 400 `invalid_request` for a tool name given twice, and for a content part that `checkParts` refuses
 */
export function toCompletionInput(
  body: CompletionBody,
  { plain = false }: CompletionInputOptions = {},
): CompletionInput {
  if ((body.n ?? 1) > 1) {
    throw unsupported(
      "n",
      `Cannot make ${body.n} choices: this gateway makes one a request, so leave "n" out or send 1`,
    );
  }
  if (body.logprobs && !plain) {
    throw unsupported(
      "logprobs",
      'Cannot give "logprobs" for a reply in which the agent uses its own tools: leave it out, or turn those tools off with the ' +
        'header "x-postern-tools: none" or the model "plain/<id>"',
    );
  }
  const unknown: Unknown = { ignored: [], passed: [], plain };
  const parameters: Record<string, unknown> = {};
  let passedBody: [string, unknown][] | undefined;
  for (const key in body) {
    // The key was just listed on this object
    const value = (body as Record<string, unknown>)[key];
    if (value === null || value === undefined || OWN_FIELDS.has(key)) continue;
    if (PARAMETERS.has(key)) parameters[key] = value;
    else if (key === "functions" || key === "function_call") {
      throw unsupported(key, `Cannot honour "${key}": use "${key === "functions" ? "tools" : "tool_choice"}" instead`);
    } else if (key !== "logprobs" || value === true) {
      addOnce(plain ? unknown.passed : unknown.ignored, key);
      if (plain) (passedBody ??= []).push([key, value]);
    }
  }
  if (body.stream_options) {
    const options = body.stream
      ? sortUnknownFields(body.stream_options, STREAM_OPTIONS, "stream_options", unknown)
      : undefined;
    if (!body.stream) addOnce(unknown.ignored, "stream_options");
    else if (options !== undefined) (passedBody ??= []).push(["stream_options", options]);
  }
  checkParts(body.messages, { plain });
  const clientTools = body.tools ? toTools(body.tools, unknown) : NO_TOOLS;
  const messages = body.messages.map((message) => toMessage(message, unknown));
  const { ignored, passed: names } = unknown;
  if (names.length > 0) parameters["passed"] = { body: Object.fromEntries(passedBody ?? []), names };
  return {
    model: body.model ?? undefined,
    messages,
    stream: body.stream ?? false,
    includeUsage: body.stream_options?.include_usage ?? false,
    clientTools,
    toolChoice: toToolChoice(body.tool_choice),
    parallelToolCalls: body.parallel_tool_calls ?? undefined,
    // Holds only fields that the schema has checked and ModelParameters names
    parameters: parameters as ModelParameters,
    ignored,
  };
}

const NO_TOOLS: readonly ToolDeclaration[] = [];

const OWN_FIELDS: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "n",
]);

const PARAMETERS: ReadonlySet<string> = new Set([
  "temperature",
  "top_p",
  "max_tokens",
  "max_completion_tokens",
  "stop",
  "seed",
  "presence_penalty",
  "frequency_penalty",
  "response_format",
  "reasoning_effort",
  "user",
  "metadata",
]);

const STREAM_OPTIONS: ReadonlySet<string> = new Set(["include_usage"]);

const TOOL_DECLARATION_FIELDS: ReadonlySet<string> = new Set(["type", "function"]);
const FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "description", "parameters", "strict"]);

function toTools(tools: readonly CompletionTool[], unknown: Unknown): readonly ToolDeclaration[] {
  const seen = new Set<string>();
  return tools.map((declared, index) => {
    const tool = declared.function;
    const own = sortUnknownFields(declared, TOOL_DECLARATION_FIELDS, "tools[]", unknown);
    const inner = sortUnknownFields(tool, FUNCTION_FIELDS, "tools[].function", unknown);
    if (seen.has(tool.name)) {
      throw invalid(
        `tools[${index}].function.name`,
        `Cannot declare the tool "${tool.name}" twice: rename one of the two`,
      );
    }
    seen.add(tool.name);
    return {
      name: tool.name,
      description: tool.description ?? "",
      parameters: tool.parameters ?? undefined,
      ...(typeof tool.strict === "boolean" ? { strict: tool.strict } : {}),
      ...withFunction(own, inner),
    };
  });
}

function toToolChoice(choice: CompletionBody["tool_choice"]): ToolChoice | undefined {
  if (choice === null || choice === undefined) return undefined;
  return typeof choice === "string" ? choice : { name: choice.function.name };
}

function invalid(param: string, message: string): HttpError {
  return new HttpError("invalid_request", message, { status: 400, type: "invalid_request_error", param });
}

function unsupported(param: string, message: string): HttpError {
  return new HttpError("unsupported_parameter", message, { status: 400, type: "invalid_request_error", param });
}

import { CancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest, isRecord, type JsonObject, type JsonSchema, type ObjectJsonSchema } from "../../base/json.ts";
import { createForeignInput, type ForeignInput, withDefaults } from "../../tools/runtime/foreign_input.ts";
import { parseInput } from "../../tools/runtime/parse_input.ts";
import type { Access, PreparedCall, Tool, ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import { answerQuestions } from "./answer_server.ts";
import { toToolResult } from "./call_result.ts";
import type { McpConnection, McpResult, McpToolDefinition } from "./mcp_connection.ts";
import { foreignWords, McpError } from "./mcp_error.ts";

/** Tool of a server, and the ways to judge and to call it. */
export interface McpToolOptions {
  /** Name in the registry, such as `mcp__files__read` */
  readonly name: string;
  readonly connection: McpConnection;
  readonly definition: McpToolDefinition;
  /** Returns the access that the operator gave it, `network` without one. */
  readonly access: () => Access;
  /** Limits of the server, in seconds, from the newest configuration. */
  readonly limits: () => { readonly startupSecs: number; readonly callSecs: number };
  /** Tells whether calls are made once more that may have taken effect: `[security.mcp] retry_lost_calls`. Default: no */
  readonly repeatsLost?: (() => boolean) | undefined;
  /** Tells whether the operator lets the server ask the run's model. Default: no */
  readonly sampling?: (() => boolean) | undefined;
}

/** Progress of the server grants a call its time again, up to this many times; see RequestDeadline. */
const MAX_EXTENSION = 10;
/** Milliseconds beyond the limit of the session: its own error comes first and says more. */
const GRACE_MS = 5_000;

/**
 * Makes a tool of a server one of the gateway's. The operator gives it its access, and its output is content from outside. An approval
 * counts for the definition that it was asked with: description, schemas and claims of the server.
 */
export function createMcpTool(options: McpToolOptions): Tool {
  const { name, connection, definition, access, limits } = options;
  const { schema, read } = createMcpInput(name, definition.inputSchema);
  const { hints } = definition;
  const prepare = (text: string): PreparedCall => {
    const input = read(text);
    return {
      input,
      digest: canonicalDigest(input),
      access: access(),
      effects: {},
      // The server's claim decides about a repeat alone, never about the policy
      repeatable: mayRepeat(hints),
      bind: () => {
        const now = connection.tools().find((tool) => tool.name === definition.name);
        const bound = {
          kind: "tool",
          name: `${connection.name}/${definition.name}`,
          sha256: now?.digest ?? null,
        } as const;
        return Promise.resolve({ shown: [bound] });
      },
      run: (context) => call(options, input as JsonObject, context), // it was parsed from JSON
    };
  };
  return {
    name,
    description: definition.description,
    get access() {
      return access();
    },
    source: "mcp",
    origin: mcpOrigin(connection.name, definition),
    outside: true,
    enabled: () => true,
    enabledBy: undefined,
    // A server by address is as far from any other gateway as from this one
    local: connection.status().transport === "stdio",
    needs: ["redactor"],
    inputSchema: schema,
    modelSchema: definition.inputSchema,
    timeoutMs: () => {
      const { startupSecs, callSecs } = limits();
      return 2 * (startupSecs + MAX_EXTENSION * callSecs) * 1000 + GRACE_MS;
    },
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}

/** Returns the owner of a server's tool, with the beginning of the digest of its definition as the version. */
export function mcpOrigin(server: string, { digest }: Pick<McpToolDefinition, "digest">): string {
  return `mcp ${server} ${digest.slice(0, 12)}`;
}

/** Tells whether a call may be made again where nobody knows what became of it. What a server does not claim counts as false. */
function mayRepeat({ readOnly, idempotent }: McpToolDefinition["hints"]): boolean {
  return readOnly || idempotent;
}

/**
 * Makes a call, and makes it once more where its session broke and the server claims that a repeat does no harm, or the operator wants it all
 * the same. A tool error, a refusal and a timeout are answers: nothing is repeated after them. The connection repeats what the server did not do.
 * @throws {ToolError} `outcome_unknown` where the session broke and the call may have taken effect; {McpError} {CancelError}
 */
async function call(options: McpToolOptions, input: JsonObject, context: ToolContext): Promise<ToolResult> {
  const { connection, definition, access, repeatsLost = () => false } = options;
  const isHarmless = mayRepeat(definition.hints);
  try {
    return await callOnce(options, input, context);
  } catch (error) {
    if (isLate(error) && !isHarmless) throw mayHaveHappened(error);
    if (!(error instanceof McpError) || !error.written) throw error;
    const isLost = error.code === "mcp_lost";
    if (!isHarmless && !(isLost && repeatsLost())) {
      throw isLost && access() !== "read" ? outcomeUnknown(options, error) : error;
    }
    if (!isLost && !(error.isStale && error.code === "mcp_refused")) throw error;
    context.log.info("An MCP call is made once more", { server: connection.name, reason: error.message });
  }
  try {
    return await callOnce(options, input, context);
  } catch (error) {
    // Whatever the second one came to, the first may have taken effect
    throw !isHarmless && error instanceof McpError && access() !== "read" ? outcomeUnknown(options, error) : error;
  }
}

function isLate(error: unknown): error is McpError {
  return error instanceof McpError && error.code === "mcp_timeout" && error.written;
}

function mayHaveHappened(error: McpError): ToolError {
  const message = `${error.message}. The server was told to stop; the call may have taken effect all the same`;
  return new ToolError(error.code, message, { cause: error });
}

function outcomeUnknown({ name, connection }: McpToolOptions, error: McpError): ToolError {
  return new ToolError(
    "outcome_unknown",
    `Cannot tell what became of "${name}": the session with the MCP server "${connection.name}" broke after the call was sent, so it ` +
      `may have taken effect. Look before you call it again. ${error.message}`,
    { cause: error },
  );
}

async function callOnce(
  { name, connection, definition, sampling }: McpToolOptions,
  input: JsonObject,
  context: ToolContext,
): Promise<ToolResult> {
  const { signal, runId, services: { redactor } } = context;
  const result = await connection.request("tools/call", { name: definition.name, arguments: input }, {
    signal,
    owner: runId,
    digest: definition.digest,
    onProgress: progressTeller(context),
    ...answerQuestions(
      { server: connection.name, redact: (text) => redactor.redact(text), sampling: sampling?.() },
      context,
    ),
  });
  if (signal.aborted) throw new CancelError("cancelled");
  // The request was tools/call, so this is its result
  return toToolResult(result as McpResult<"tools/call">, { tool: name, server: connection.name, definition, context });
}

/** Messages of progress that a call may send at once, and how long one more takes to be granted, in milliseconds. */
const PROGRESS_BURST = 20;
const PROGRESS_MS = 250;
const MAX_PROGRESS_CHARACTERS = 500;

/** Returns a function that tells the run's readers of progress. A storm of it is thinned out. */
function progressTeller(
  { clock, progress }: ToolContext,
): (given: { progress: number; total?: number | undefined; message?: string | undefined }) => void {
  let granted = PROGRESS_BURST;
  let since = clock.monotonic();
  return ({ progress: done, total, message = "" }) => {
    const now = clock.monotonic();
    granted = Math.min(PROGRESS_BURST, granted + (now - since) / PROGRESS_MS);
    since = now;
    if (granted < 1) return;
    granted--;
    const words = foreignWords(message).slice(0, MAX_PROGRESS_CHARACTERS);
    progress(`${words === "" ? "" : `${words} `}(${done}${total === undefined ? "" : ` of ${total}`})`);
  };
}

/**
 * Returns the reader of a tool's input: by its schema where all of that is understood, else by the names of its fields, and the server checks.
 * Fields that the schema does not name are refused where it names some and says nothing of others.
 */
export function createMcpInput(name: string, inputSchema: JsonSchema): ForeignInput {
  const schema = toObjectSchema(inputSchema);
  let nullable: readonly string[] = [];
  try {
    nullable = Object.entries(schema.properties).flatMap(([field, form]) => (allowsNull(form) ? [field] : []));
    return createForeignInput(name, schema, { nullable });
  } catch {
    // Attack: one that throws anything else, as {"$ref": {"toString": 1}}, would take the tools of all owners away
  }
  const fields = Object.keys(schema.properties);
  const parsing = { tool: name, fields, required: schema.required ?? [], textField: undefined, nullable };
  return { schema, read: (text) => withDefaults(parseInput(text, parsing), schema) };
}

/** Tells whether a field's schema names null: some servers take it for "no value any more". */
function allowsNull(form: unknown): boolean {
  if (!isRecord(form)) return false;
  const { type, anyOf, oneOf, enum: values, const: value, nullable } = form;
  if (type === "null" || nullable === true || value === null) return true;
  if ([type, values].some((list) => Array.isArray(list) && (list.includes("null") || list.includes(null)))) return true;
  return [anyOf, oneOf].some((branches) => Array.isArray(branches) && branches.some(allowsNull));
}

/** Returns the schema of a server's tool as those of the gateway's own look: an object with named fields. */
function toObjectSchema(schema: JsonSchema): ObjectJsonSchema {
  const { properties, required, additionalProperties: others = isRecord(properties) ? false : true } = schema;
  return {
    ...schema,
    type: "object",
    // A schema by which the gateway checks nothing: the server does
    properties: isRecord(properties) ? properties as ObjectJsonSchema["properties"] : {},
    required: Array.isArray(required) ? required.filter((name) => typeof name === "string") : [],
    additionalProperties: others as JsonSchema | boolean, // the server checks by it, and the gateway does not
  };
}

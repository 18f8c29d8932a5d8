import { CLIENT_ABILITIES } from "../base/records/tool_info.ts";
import { ToolError } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import { checkClientNeeds, toProgramQuestions } from "./ask_caller.ts";
import { MadeTool } from "./made_tool.ts";
import type { ProgramAbility, ProgramQuestions } from "./program_questions.ts";
import { MadeResult, type WholeProgramResult } from "./program_result.ts";
import {
  createOutputCheck,
  naming,
  type ProgramJsonSchema,
  type ProgramSchema,
  type ProgramSchemaInput,
  type ProgramSchemaOutput,
  readSchema,
} from "./program_schema.ts";
import { createForeignInput } from "./runtime/foreign_input.ts";
import type { PreparedCall, Tool, ToolContext } from "./runtime/tool.ts";
import type { ToolResult } from "./runtime/tool_call.ts";
import { showContent } from "./runtime/tool_content.ts";

/** The call that a tool of a program executes. */
export interface ProgramToolCall extends ProgramQuestions {
  /** Aborts when the run is cancelled and when the tool's time is over. A tool that goes on is given up after 2 s */
  readonly signal: AbortSignal;
  /** Id of the run that makes the call; of a call without a run, an id of its own */
  readonly runId: string;
  /** Id of the call, the same in events, approvals and audit */
  readonly callId: string;
  /** Absolute path of the folder that the agent works in */
  readonly workspace: string;
  /** Shows a message to the readers of the run */
  readonly progress: (message: string) => void;
}

/** The widest thing that a call does: `read`, `state` (records of its own), `write` (files, programs) or `network`. */
export type ProgramAccess = "read" | "state" | "write" | "network";

/** Definition of a tool by the program that mounts the gateway. */
export interface ProgramToolDefinition<Input, Given = Input> {
  /** `[a-z][a-z0-9_]{0,63}`, and no name of a built-in tool */
  readonly name: string;
  /** Text for the model: what the tool does and returns */
  readonly description: string;
  /**
   * The widest thing that a call does, or a function that says it of one input. The policy decides by it, and lists show `network` for a
   * function. Required, so that no tool is allowed by accident
   */
  readonly access: ProgramAccess | ((input: Given) => ProgramAccess);
  /**
   * Schema of the input, an object at its top: a Standard Schema that gives JSON Schema (valibot, zod, arktype), or a JSON Schema. Objects
   * that name `properties` and say nothing of `additionalProperties` are closed
   */
  readonly input?: ProgramSchema<Given, Input> | ProgramJsonSchema;
  /** A JSON Schema, as MCP names it, in place of `input` */
  readonly inputSchema?: ProgramJsonSchema;
  /** Schema of what `execute` returns, in a value of `data`. Another value is an error of the call. Default: any value */
  readonly output?: ProgramSchema | ProgramJsonSchema;
  /** False when all text that the tool returns is the program's own. Default true: it may hold text of others, which the model is told */
  readonly outside?: boolean;
  /**
   * Kinds of questions that whoever calls must answer. A call of anybody else is refused before it runs; a client of MCP is told which
   * capability it would need. Default: none, and `can` says what is answered
   */
  readonly clientNeeds?: readonly ProgramAbility[];
  /** Milliseconds that one call may take, 1 to 3,600,000, without the time that an answer is waited for. Default 120,000 */
  readonly timeoutMs?: number;
  /**
   * Does the work. `input` has passed the schema and is a copy. A string is the model's text; any other JSON value is given as JSON; what
   * toolResult returns has parts beside text.
   * Throw a ToolError to tell the model why a call failed. Any other error is logged, and the model is told of an internal error
   */
  readonly execute: (input: Input, call: ProgramToolCall) => unknown;
}

/** Tool of a program, ready for the option `tools` of createGateway. Only defineTool makes one. */
export interface ProgramTool {
  /** Name of the tool, as its definition has it */
  readonly name: string;
  /** Mark of the type. It exists in the types alone, so that no other object passes for a tool */
  readonly "~tool": true;
}

const NAME = /^[a-z][a-z0-9_]{0,63}$/;
const ACCESS: readonly ProgramAccess[] = ["read", "state", "write", "network"];
const MAX_TIMEOUT_MS = 3_600_000;
/** Longest JSON, in UTF-16 units, that is kept as `data` beside the text */
const MAX_DATA = 1_048_576;
const KEYS = [
  ...[
    "name",
    "description",
    "access",
    "input",
    "inputSchema",
    "output",
    "outside",
    "clientNeeds",
    "timeoutMs",
    "execute",
  ],
];

/**
 * Makes a tool of the program that mounts the gateway. Its calls go the way of all calls: schema, policy, approval, audit, journal, bounds.
 * @throws {TypeError} for a definition that breaks the rules above, and for a schema with a part that is not understood
 */
export function defineProgramTool<const Schema extends ProgramSchema | ProgramJsonSchema>(
  definition: ProgramToolDefinition<ProgramSchemaOutput<Schema>, ProgramSchemaInput<Schema>> & {
    readonly input: Schema;
  },
): ProgramTool;
/** Makes a tool from a JSON Schema in `inputSchema`, which tells no type of the input. */
export function defineProgramTool<Input = Readonly<Record<string, unknown>>>(
  definition: ProgramToolDefinition<Input> & { readonly inputSchema: ProgramJsonSchema },
): ProgramTool;
export function defineProgramTool<Input>(definition: ProgramToolDefinition<Input>): ProgramTool {
  checkDefinition(definition);
  const { name, description, outside = true, clientNeeds, timeoutMs, execute } = definition;
  const place = `Cannot define the tool "${name}": its input`;
  const given = readSchema(definition.input ?? definition.inputSchema, place);
  const { schema, read } = naming(place, () => createForeignInput(name, given.json));
  const checkOutput = definition.output === undefined ? undefined : createOutputCheck(name, definition.output);
  const accessOf = toAccessOf(definition);
  const prepare = (text: string): PreparedCall => {
    const input = read(text);
    return {
      input,
      digest: canonicalDigest(input),
      access: accessOf(input),
      effects: {},
      run: async (context) => {
        const call = toCall(context);
        checkClientNeeds(name, clientNeeds, call.can);
        // A copy: what a tool does to its input must not reach the journal
        const parsed = await given.parse(structuredClone(input));
        if ("fault" in parsed) throw new ToolError("invalid_input", `Cannot call "${name}": ${parsed.fault}`);
        // The schema has checked what its type says
        const value = await execute(parsed.value as Input, call);
        return toResult(name, checkOutput === undefined ? value : await checkOutput(value), context);
      },
    };
  };
  const tool: Tool = {
    name,
    description,
    access: typeof definition.access === "string" ? definition.access : "network",
    source: "program",
    outside,
    enabled: "always",
    enabledBy: undefined,
    local: true,
    needs: ["redactor"],
    ...(clientNeeds === undefined || clientNeeds.length === 0 ? {} : { clientNeeds: [...clientNeeds] }),
    inputSchema: schema,
    ...(timeoutMs === undefined ? {} : { timeoutMs: () => timeoutMs }),
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
  return new MadeTool(tool) as unknown as ProgramTool; // the mark is a type, and toTools checks the class
}

/** Returns how wide one call is. A function that fails or gives anything else lets nothing run. */
function toAccessOf<Input>({ name, access }: ProgramToolDefinition<Input>): (input: unknown) => ProgramAccess {
  if (typeof access !== "function") return () => access;
  return (input) => {
    const given: unknown = access(structuredClone(input) as Input); // the schema has checked what its type says
    const known = ACCESS.find((one) => one === given);
    if (known !== undefined) return known;
    throw new ToolError("tool_failed", `Cannot call "${name}": its access() must give one of ${ACCESS.join(", ")}`);
  };
}

function checkDefinition<Input>(definition: ProgramToolDefinition<Input>): void {
  const { name, description, access, input, inputSchema, timeoutMs, outside, clientNeeds, execute } = definition;
  const wrong = (reason: string) => new TypeError(`Cannot define the tool ${JSON.stringify(name)}: ${reason}`);
  const unknown = Object.keys(definition).find((key) => !KEYS.includes(key));
  if (unknown !== undefined) throw wrong(`there is no option "${unknown}"; the options are ${KEYS.join(", ")}`);
  if (typeof name !== "string" || !NAME.test(name)) throw wrong(`its name must match ${NAME.source}`);
  if (typeof description !== "string" || description === "") throw wrong("it needs a description");
  if (typeof access !== "function" && !ACCESS.includes(access)) {
    throw wrong(`its access must be one of ${ACCESS.join(", ")}, or a function of the input`);
  }
  if ((input === undefined) === (inputSchema === undefined)) throw wrong("it needs a schema in input");
  if (typeof execute !== "function") throw wrong("execute must be a function");
  if (outside !== undefined && typeof outside !== "boolean") throw wrong("outside must be true or false");
  const isNeeds = clientNeeds === undefined ||
    (Array.isArray(clientNeeds) && clientNeeds.every((need) => CLIENT_ABILITIES.includes(need)));
  if (!isNeeds) throw wrong(`clientNeeds must be a list of ${CLIENT_ABILITIES.join(", ")}`);
  const isTimeout = timeoutMs === undefined ||
    (Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= MAX_TIMEOUT_MS);
  if (!isTimeout) throw wrong(`timeoutMs must be a whole number from 1 to ${MAX_TIMEOUT_MS}`);
}

function toCall(context: ToolContext): ProgramToolCall {
  const { signal, runId, callId, workspaceRoot, elicit, client, tell, services: { redactor } } = context;
  const progress = (message: string) => context.progress(String(message));
  const questions = toProgramQuestions({ elicit, client, tell, progress, signal, redact: redactor.redact });
  return { signal, runId, callId, workspace: workspaceRoot, progress, ...questions };
}

function toResult(name: string, value: unknown, { sees }: Pick<ToolContext, "sees">): ToolResult {
  const made = MadeResult.resultOf(value);
  if (made !== undefined) return showMade(name, made, sees);
  if (typeof value === "string") return { output: value, isError: false };
  if (value === undefined) return { output: "", isError: false };
  const json = requireJson(name, value);
  return { output: json, isError: false, ...(json.length > MAX_DATA ? {} : { data: JSON.parse(json) as unknown }) };
}

/** Returns a result in parts as text and pictures for models, and whole for clients of MCP. */
function showMade(name: string, { content, data, isError }: WholeProgramResult, sees: boolean): ToolResult {
  const { output, pictures } = showContent(content, { sees });
  const json = data === undefined ? undefined : requireJson(name, data);
  const kept = json === undefined || json.length > MAX_DATA ? undefined : JSON.parse(json) as unknown;
  const structured = kept === undefined ? {} : { structured: kept };
  return {
    output,
    isError,
    ...(kept === undefined ? {} : { data: kept }),
    ...(pictures.length === 0 ? {} : { pictures }),
    whole: { content, ...structured },
  };
}

function requireJson(name: string, value: unknown): string {
  const json = toJson(value);
  if (json !== undefined) return json;
  throw new ToolError("tool_failed", `Cannot use the result of "${name}": it is neither text nor a JSON value`);
}

function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

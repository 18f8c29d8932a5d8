import type { CallToolResult, Tool } from "@modelcontextprotocol/server";
import * as v from "valibot";
import type { Scope } from "../../lib/base/records/caller.ts";
import { neutralizeData, wrapUntrusted } from "../../lib/agent/untrusted_text.ts";
import { isEnded, type Run, RUN_ID } from "../../lib/base/records/run.ts";
import type { Services } from "../../lib/services.ts";
import { createRunState } from "../../lib/runs/journal/apply_event.ts";
import { requireAgent } from "../wire/agent_runs.ts";
import { checkBody } from "../wire/check_body.ts";
import { findRun, startRun, startRunSchema } from "../wire/run_work.ts";
import type { Door } from "../door.ts";
import { mcpCallerOf, type McpRequest } from "./mcp_request.ts";

/** Longest time that `run_status` waits for the end of a run, in seconds. */
const MAX_WAIT_SECONDS = 60;

const startSchema = v.pick(startRunSchema, ["message", "model", "conversation_id", "agent"]);
const statusSchema = v.object({
  run_id: v.pipe(v.string(), v.regex(RUN_ID, "Expected the id of a run")),
  wait_secs: v.optional(v.pipe(v.number(), v.minValue(0), v.maxValue(MAX_WAIT_SECONDS)), 0),
});

/** Runs of the agent as tools of MCP. They exist for clients alone: the agent itself starts runs by `subagent_spawn`. */
export const RUN_TOOLS: Readonly<
  Record<"run_start" | "run_status", Door & { readonly access: Scope; readonly tool: Tool }>
> = {
  run_start: {
    access: "runs",
    tool: {
      name: "run_start",
      description:
        "Give Postern's own agent a task. It works on durably, also when this client goes away. Returns the run with its id; " +
        "read the answer with run_status.",
      inputSchema: {
        type: "object",
        properties: {
          message: { type: "string", minLength: 1, description: "The task, in words" },
          model: { type: "string", description: "Model to use. Default: the configured one" },
          conversation_id: { type: "string", description: 'Conversation to continue; "new" begins one. Default: none' },
          agent: { type: "string", description: "Name of a configured agent. Default: none" },
        },
        required: ["message"],
        additionalProperties: false,
      },
      annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: true },
      // For 2025-11-25; the SDK leaves it out of later revisions
      execution: { taskSupport: "optional" },
    },
  },
  run_status: {
    access: "runs",
    tool: {
      name: "run_status",
      description: "Look how a run is doing, and read its answer once it is completed.",
      inputSchema: {
        type: "object",
        properties: {
          run_id: { type: "string", pattern: RUN_ID.source, description: "Id that run_start returned" },
          wait_secs: {
            type: "number",
            minimum: 0,
            maximum: MAX_WAIT_SECONDS,
            description: "Seconds to wait for the end of the run. Default: 0",
          },
        },
        required: ["run_id"],
        additionalProperties: false,
      },
      annotations: { readOnlyHint: true, destructiveHint: false, openWorldHint: false },
    },
  },
};

/** Name of a tool for runs. */
export type RunToolName = keyof typeof RUN_TOOLS;

/** Tells whether a name is that of a tool for runs. A tool of the gateway with the same name goes first. */
export function isRunTool(name: string): name is RunToolName {
  return Object.hasOwn(RUN_TOOLS, name);
}

/** A call of a tool for runs. */
export interface RunToolCall {
  readonly name: RunToolName;
  readonly input: Readonly<Record<string, unknown>>;
  readonly asked: McpRequest;
  readonly signal: AbortSignal;
}

/** Starts a run, or reads one. @throws {HttpError} 400 invalid_request, 404 not_found, 503 agent_unavailable */
export async function callRunTool(call: RunToolCall, services: Services): Promise<CallToolResult> {
  switch (call.name) {
    case "run_start": {
      const run = await startClientRun(call, services);
      return toRunResult(createRunState(run).run, services);
    }
    case "run_status": {
      const { run_id: id, wait_secs: seconds } = checkBody(statusSchema, call.input, []);
      const runs = services.agent?.runs ?? services.storedRuns;
      if (seconds > 0) await waitForEnd(id, { seconds, signal: call.signal, services });
      return toRunResult(await findRun(runs, id), services);
    }
  }
}

/**
 * Starts a durable run for a client.
 * @param options.showsQuestions true: the client shows its user where a question of the run is answered. Default false
 * @throws {HttpError}
 */
export async function startClientRun(
  { input, asked, showsQuestions = false }: Pick<RunToolCall, "input" | "asked"> & {
    readonly showsQuestions?: boolean;
  },
  services: Services,
): Promise<Run> {
  const { runs } = requireAgent(services);
  return await startRun(runs, checkBody(startSchema, input, []), {
    by: { caller: mcpCallerOf(asked), requestId: asked.requestId, showsQuestions },
  });
}

async function waitForEnd(
  id: string,
  { seconds, signal, services }: {
    readonly seconds: number;
    readonly signal: AbortSignal;
    readonly services: Services;
  },
): Promise<void> {
  const limit = services.clock.timeoutSignal(seconds * 1000);
  await services.agent?.runs.ended(id, AbortSignal.any([limit.signal, signal])).catch(() => undefined);
  limit.clear();
  signal.throwIfAborted();
}

/** Returns a run as the result of a tool: its state in a line, and its answer. */
export function toRunResult(run: Run, { random }: Pick<Services, "random">): CallToolResult {
  const { id, status, result, error, taint = [] } = run;
  const answer = result === null || taint.length === 0 ? result : wrapUntrusted(id, result, { origin: taint, random });
  const state = isEnded(status) ? `Run ${id} is ${status}` : `Run ${id} is ${status}: read it again with run_status`;
  const lines = [error === null ? state : `${state}: ${error.message}`, ...(answer === null ? [] : [answer])];
  return {
    content: [{ type: "text", text: lines.join("\n\n") }],
    structuredContent: {
      run_id: id,
      status,
      conversation_id: run.conversation_id,
      error: taint.length === 0 ? error : neutralizeData(error),
    },
    ...(status === "failed" ? { isError: true } : {}),
  };
}

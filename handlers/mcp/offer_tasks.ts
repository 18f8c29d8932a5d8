import type { Server, ServerContext } from "@modelcontextprotocol/server";
import * as v from "valibot";
import type { McpSdk } from "./mcp_errors.ts";
import { isOfSession, type McpGuard, requestOf } from "./mcp_request.ts";
import type { RunTasks, TaskRequest } from "./run_tasks.ts";

/** Name of the extension for tasks of the revision 2026-07-28, in the capabilities of both sides. */
export const TASKS_EXTENSION = "io.modelcontextprotocol/tasks";

/** Way in which a client wants a call answered with a task. undefined: it wants none. */
export type TaskWish = "asked" | "declared" | undefined;

const ID_PARAMS = v.looseObject({ taskId: v.pipe(v.string(), v.maxLength(128)) });
const LIST_PARAMS = v.looseObject({ cursor: v.optional(v.string()) });

/** Serves the methods of tasks: those of the extension to clients that declare it, and those of 2025-11-25 to sessions. */
export function offerTasks(
  server: Server,
  { sdk, tasks, guarded }: { readonly sdk: McpSdk; readonly tasks: RunTasks; readonly guarded: McpGuard },
): void {
  const answer = <T>(context: ServerContext, work: (request: TaskRequest) => Promise<T>) =>
    guarded(context, async () => {
      const capabilities = server.getClientCapabilities();
      if (!isOfSession(context) && !declaresTasks(capabilities)) throw missingExtension(sdk);
      const opensAddresses = capabilities?.elicitation?.url !== undefined;
      return await work({ asked: requestOf(context), context, opensAddresses });
    });
  server.setRequestHandler(
    "tasks/get",
    { params: ID_PARAMS },
    ({ taskId }, context) => answer(context, (request) => tasks.get(taskId, request)),
  );
  server.setRequestHandler(
    "tasks/cancel",
    { params: ID_PARAMS },
    ({ taskId }, context) => answer(context, (request) => tasks.cancel(taskId, request)),
  );
  server.setRequestHandler(
    "tasks/update",
    { params: ID_PARAMS },
    ({ taskId }, context) => answer(context, (request) => tasks.update(taskId, request)),
  );
  // The SDK answers these two in sessions alone
  server.setRequestHandler(
    "tasks/result",
    { params: ID_PARAMS },
    ({ taskId }, context) => answer(context, (request) => tasks.result(taskId, request)),
  );
  server.setRequestHandler(
    "tasks/list",
    { params: LIST_PARAMS },
    ({ cursor }, context) => answer(context, (request) => tasks.list(cursor, request)),
  );
}

/**
 * Returns whether a call is to be answered with a task. `asked`: the client asks for one, as 2025-11-25 does, and every tool but those that make
 * tasks refuses. `declared`: the client takes one where the gateway gives it, as 2026-07-28 does. undefined: neither.
 */
export function taskWishOf(
  params: Readonly<Record<string, unknown>>,
  { context, capabilities }: { readonly context: ServerContext; readonly capabilities: ClientCapabilities },
): TaskWish {
  if (isOfSession(context)) return params["task"] === undefined ? undefined : "asked";
  return declaresTasks(capabilities) ? "declared" : undefined;
}

type ClientCapabilities = ReturnType<Server["getClientCapabilities"]>;

function declaresTasks(capabilities: ClientCapabilities): boolean {
  return capabilities?.extensions?.[TASKS_EXTENSION] !== undefined;
}

/** Returns the error for a request about tasks of a client that does not declare the extension. */
function missingExtension(sdk: McpSdk): InstanceType<McpSdk["MissingRequiredClientCapabilityError"]> {
  return new sdk.MissingRequiredClientCapabilityError(
    { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } },
    "Missing required client capability",
  );
}

const LISTEN_TO_TASKS = v.object({
  id: v.union([v.string(), v.number()]),
  params: v.object({
    _meta: v.looseObject({
      "io.modelcontextprotocol/clientCapabilities": v.fallback(
        v.object({ extensions: v.optional(v.record(v.string(), v.unknown()), {}) }),
        { extensions: {} },
      ),
    }),
    notifications: v.object({ taskIds: v.pipe(v.array(v.unknown()), v.minLength(1)) }),
  }),
});

/**
 * Returns the refusal of a stream of notifications that names tasks, of a client that does not declare the extension. undefined for every other
 * one: a gateway sends no notifications of tasks, and its acknowledgement says so.
 */
export function refuseTaskStream(sdk: McpSdk, body: unknown): Response | undefined {
  const { success, output } = v.safeParse(LISTEN_TO_TASKS, body);
  if (!success) return undefined;
  const { id, params: { _meta: { "io.modelcontextprotocol/clientCapabilities": { extensions } } } } = output;
  if (Object.hasOwn(extensions, TASKS_EXTENSION)) return undefined;
  const { code, message, data } = missingExtension(sdk);
  return Response.json({ jsonrpc: "2.0", id, error: { code, message, data } }, { status: 400 });
}

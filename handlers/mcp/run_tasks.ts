import type { CallToolResult, ServerContext } from "@modelcontextprotocol/server";
import { isAtWork, isEnded, type Run, RUN_ID, type RunStatus } from "../../lib/base/records/run.ts";
import type { Services } from "../../lib/services.ts";
import { requireAgent } from "../wire/agent_runs.ts";
import { cancelRun } from "../wire/run_work.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { isOfSession, type McpRequest } from "./mcp_request.ts";
import { toRunResult } from "./run_tools.ts";

/** States of a task. `input_required` exists for clients that open addresses. */
type TaskStatus = "working" | "input_required" | "completed" | "failed" | "cancelled";

/** Task as the client gets it, without the fields that each revision names in its own way. */
interface Task {
  readonly taskId: string;
  readonly status: TaskStatus;
  readonly statusMessage?: string;
  readonly createdAt: string;
  readonly lastUpdatedAt: string;
}

/** A request about tasks. */
export interface TaskRequest {
  readonly asked: McpRequest;
  readonly context: ServerContext;
  /** The client opens addresses for its user */
  readonly opensAddresses: boolean;
}

/** Time between two questions about a task that is advised to clients, in milliseconds. */
const POLL_MS = 2_000;
const DAY_MS = 86_400_000;
/** Questions whose answers by clients are remembered. */
const MAX_ANSWERED = 1_024;
/** Approvals that are looked through for the one that a run waits for. */
const MAX_PENDING = 1_000;
/** Runs of a page of tasks. */
const PAGE = 100;
/** Field of `_meta` with the task that a result belongs to, in the revision 2025-11-25. */
const RELATED_TASK = "io.modelcontextprotocol/related-task";

/**
 * Durable runs as tasks of MCP. The id of a task is that of its run, and a task lives as long as its run. A task exists for the token that
 * began it, and for no other.
 *
 * Source: the extension `io.modelcontextprotocol/tasks` for 2026-07-28, "Tasks" of MCP 2025-11-25
 */
export class RunTasks {
  readonly #sdk: McpSdk;
  readonly #services: Services;
  /** Approvals whose address a client has shown: it is not asked to show them again */
  readonly #answered = new Set<string>();

  constructor({ sdk, services }: { readonly sdk: McpSdk; readonly services: Services }) {
    this.#sdk = sdk;
    this.#services = services;
  }

  /** Returns the result of a call that began a run, in the revision of its request. */
  created(run: Run, { asked, context }: Pick<TaskRequest, "asked" | "context">): CallToolResult {
    const task = this.#write(run, { asked, context, opensAddresses: false }, undefined);
    // The SDK's type of results has no task; it passes one on, and adds `content`
    return (isOfSession(context)
      ? { task, content: [] }
      : { resultType: "task", ...task }) as unknown as CallToolResult;
  }

  /** Returns a task with its result or with what it waits for. @throws {ProtocolError} -32602 for a task that this token did not begin */
  async get(id: string, request: TaskRequest) {
    const run = await this.#find(id, request.asked);
    const approval = run.status === "waiting_for_approval" ? await this.#pendingOf(run.id) : undefined;
    const task = this.#write(run, request, approval);
    if (isOfSession(request.context)) return task;
    const isAsked = task.status === "input_required" && approval !== undefined;
    return {
      resultType: "complete",
      ...task,
      ...(isAsked ? { inputRequests: { [approval]: linkTo(approval, request.asked) } } : {}),
      ...(task.status === "completed" ? { result: toRunResult(run, this.#services) } : {}),
    };
  }

  /**
   * Takes what the client says of the questions of a task. It decides nothing: the person answers in the dashboard. An answered question is
   * not put to the client again.
   * @throws {ProtocolError} -32602 for a task that this token did not begin
   */
  async update(id: string, { asked, context }: TaskRequest) {
    const run = await this.#find(id, asked);
    const approval = await this.#pendingOf(run.id);
    // The SDK takes the answers out of the parameters
    const { inputResponses = {} } = context.mcpReq;
    if (approval !== undefined && Object.hasOwn(inputResponses, approval)) this.#note(approval);
    return { resultType: "complete" };
  }

  /**
   * Cancels the run of a task.
   * @returns an acknowledgement; in 2025-11-25 the task
   * @throws {ProtocolError} -32602 for a task that this token did not begin, and in 2025-11-25 for one that has ended; {HttpError} 409, 503
   */
  async cancel(id: string, request: TaskRequest) {
    const run = await this.#find(id, request.asked);
    if (isEnded(run.status)) {
      if (!isOfSession(request.context)) return { resultType: "complete" };
      throw invalidParams(this.#sdk, `Cannot cancel task: already in terminal status '${toStatus(run.status, true)}'`);
    }
    const { runs } = requireAgent(this.#services);
    const cancelled = await cancelRun(runs, run.id, this.#services.clock);
    return isOfSession(request.context) ? this.#write(cancelled, request, undefined) : { resultType: "complete" };
  }

  /** Waits for the end of a task and returns the result of its call, as 2025-11-25 wants it. @throws {ProtocolError} -32602 */
  async result(id: string, { asked, context }: TaskRequest): Promise<CallToolResult> {
    const found = await this.#find(id, asked);
    const { agent } = this.#services;
    const run = isAtWork(found.status) ? await agent?.runs.ended(id, context.mcpReq.signal) ?? found : found;
    return { ...toRunResult(run, this.#services), _meta: { [RELATED_TASK]: { taskId: id } } };
  }

  /** Lists a page of the token's tasks, the newest first, as 2025-11-25 wants it. @param cursor id of the last run that was looked at */
  async list(cursor: string | undefined, request: TaskRequest) {
    if (cursor !== undefined && !RUN_ID.test(cursor)) throw invalidParams(this.#sdk, "Invalid cursor");
    const { runs, hasMore } = await this.#runs.list({ after: cursor, limit: PAGE });
    const tasks = [];
    for (const run of runs) {
      if (await this.#isOwn(run, request.asked)) tasks.push(this.#write(run, request, undefined));
    }
    const last = runs.at(-1);
    return { tasks, ...(hasMore && last !== undefined ? { nextCursor: last.id } : {}) };
  }

  get #runs() {
    return this.#services.agent?.runs ?? this.#services.storedRuns;
  }

  /** Finds the run of a task. One that another token began looks like one that never was. */
  async #find(id: string, asked: McpRequest): Promise<Run> {
    const run = RUN_ID.test(id) ? await this.#runs.get(id) : undefined;
    if (run !== undefined && await this.#isOwn(run, asked)) return run;
    throw invalidParams(this.#sdk, "Failed to retrieve task: Task not found");
  }

  async #isOwn({ id, kind }: Run, { identity }: McpRequest): Promise<boolean> {
    const owner = kind === "chat" ? await this.#runs.startedBy(id) : undefined;
    return owner !== undefined && owner.tokenId === identity.tokenId;
  }

  /** Returns the id of the approval that a run waits for. */
  async #pendingOf(runId: string): Promise<string | undefined> {
    const { approvals } = await this.#services.approvals.list({ status: "pending", limit: MAX_PENDING });
    return approvals.find(({ run_id: run }) => run === runId)?.id;
  }

  #note(approval: string): void {
    this.#answered.add(approval);
    const [oldest] = this.#answered;
    if (this.#answered.size > MAX_ANSWERED && oldest !== undefined) this.#answered.delete(oldest);
  }

  #write(run: Run, { asked, context, opensAddresses }: TaskRequest, approval: string | undefined) {
    const old = isOfSession(context);
    const isAsked = !old && opensAddresses && approval !== undefined && !this.#answered.has(approval);
    const message = sayState(run, approval === undefined ? undefined : dashboard(approval, asked));
    const task: Task = {
      taskId: run.id,
      status: isAsked ? "input_required" : toStatus(run.status, old),
      ...(message === undefined ? {} : { statusMessage: message }),
      createdAt: run.created_at,
      lastUpdatedAt: run.ended_at ?? run.started_at ?? run.created_at,
    };
    const ttl = this.#ttlOf(run);
    return old ? { ...task, ttl, pollInterval: POLL_MS } : { ...task, ttlMs: ttl, pollIntervalMs: POLL_MS };
  }

  /** Returns how long a run is kept after it was made, in milliseconds. null: for ever, or until some time after its end. */
  #ttlOf({ created_at: created, ended_at: ended }: Run): number | null {
    const days = this.#services.config().runs.retention_days;
    return ended === null || days === 0 ? null : Date.parse(ended) - Date.parse(created) + days * DAY_MS;
  }
}

/** Returns the state of a task. A run that failed is a call with an error of its own: in 2026-07-28 such a call is completed. */
function toStatus(status: RunStatus, old: boolean): TaskStatus {
  switch (status) {
    case "queued":
    case "running":
    case "waiting_for_approval":
    case "needs_review":
      return "working";
    case "completed":
    case "cancelled":
      return status;
    case "failed":
      return old ? "failed" : "completed";
  }
}

function sayState(
  { id, status, error, waiting_for: waitingFor }: Run,
  waitsAt: string | undefined,
): string | undefined {
  switch (status) {
    case "queued":
      return waitingFor === undefined
        ? "The run waits for its turn"
        : "The run waits for its workspace, which has no gateway now";
    case "waiting_for_approval":
      return `The run waits for a person's answer${waitsAt === undefined ? "" : ` at ${waitsAt}`}`;
    case "needs_review":
      return `The run was interrupted in the middle of an effect: a person must decide with postern run resolve ${id}`;
    case "failed":
      return error?.message;
    case "running":
    case "completed":
    case "cancelled":
      return undefined;
  }
}

function linkTo(approval: string, asked: McpRequest) {
  const message = "Postern's agent asks before it goes on. Answer in the dashboard of the gateway.";
  return { method: "elicitation/create", params: { mode: "url", message, url: dashboard(approval, asked) } };
}

function dashboard(approval: string, { gatewayUrl }: McpRequest): string {
  return `${gatewayUrl}/#approvals/${approval}`;
}

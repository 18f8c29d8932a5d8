import type { ToolInfo } from "../../lib/base/records/tool_info.ts";
import { CancelError, cancelError } from "../../lib/base/cancel.ts";
import { ToolError } from "../../lib/base/errors.ts";
import { canonicalDigest } from "../../lib/base/json.ts";
import type { Access, PreparedCall, Tool } from "../../lib/tools/runtime/tool.ts";
import type { ToolCallOutcome, ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import type { FlatCall } from "./tool_call.ts";

/** A tool of the fake executor as data. */
export interface FakeTool {
  readonly name: string;
  /** Default `read` */
  readonly access?: Access;
  /** Default `builtin` */
  readonly source?: Tool["source"];
  /** Default false */
  readonly repeatable?: boolean;
  /** Default false */
  readonly alwaysOffered?: boolean;
  /** Default false */
  readonly local?: boolean;
  /** Default one without properties */
  readonly inputSchema?: Tool["inputSchema"];
  /** Decision of the policy. Default `allow` */
  readonly decision?: "allow" | "ask" | "deny";
  /** Data for programs beside the output. Default none */
  readonly data?: unknown;
  /** Gives the output, or throws for an error result. Default echoes the input */
  readonly run?: (input: Readonly<Record<string, unknown>>, request: FlatCall) => string | Promise<string>;
}

export interface FakeToolExecutor extends ToolExecutor {
  /** Requests that reached `call`, in order */
  readonly calls: readonly FlatCall[];
  /** Most calls that ran at the same time */
  readonly widest: number;
}

/** An executor over tools given as data, which keeps the contract of ToolExecutor: approval, start, run, and only CancelError thrown. */
export function createFakeToolExecutor(tools: readonly FakeTool[]): FakeToolExecutor {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  const calls: FlatCall[] = [];
  let running = 0;
  let widest = 0;
  const refused = (output: string, access?: Access): ToolCallOutcome => ({
    result: { output, isError: true },
    ran: false,
    access,
  });
  const run = async (tool: FakeTool, prepared: PreparedCall, request: FlatCall): Promise<ToolCallOutcome> => {
    await request.onStart?.(prepared);
    widest = Math.max(widest, ++running);
    try {
      // The fake prepares JSON objects only
      const input = prepared.input as Readonly<Record<string, unknown>>;
      const output = await (tool.run ?? ((given) => JSON.stringify(given)))(input, request);
      const data = tool.data === undefined ? {} : { data: tool.data };
      const { access } = prepared;
      if (access !== "network") return { result: { output, isError: false, ...data }, ran: true, access };
      request.taint?.add([tool.name]);
      return { result: { output, isError: false, ...data }, ran: true, access, taint: [tool.name] };
    } catch (error) {
      if (error instanceof CancelError) throw error;
      const { access } = prepared;
      const brought = access === "network" ? { taint: [tool.name] } : {};
      const isUnknown = error instanceof ToolError && error.code === "outcome_unknown";
      const lost = isUnknown ? { isUnknown } : {};
      return { result: { output: (error as Error).message, isError: true }, ran: true, access, ...brought, ...lost };
    } finally {
      running--;
    }
  };
  return {
    calls,
    get widest() {
      return widest;
    },
    list: () => [],
    get(name) {
      const tool = byName.get(name);
      return tool === undefined ? undefined : toInfo(tool);
    },
    enabled: (patterns) => tools.filter((tool) => patterns.includes("*") || patterns.includes(tool.name)).map(toTool),
    bind(name, input) {
      const tool = byName.get(name);
      if (tool === undefined || tool.decision === "deny") {
        return Promise.resolve({ ok: false, reason: `Cannot call "${name}": there is no such tool, or it is denied` });
      }
      const { digest, access } = toPrepared(tool, input);
      return Promise.resolve({
        ok: true,
        binding: { digest, files: [], bound: [], containment: null, versions: new Map() },
        access,
        inputDigest: digest,
        preview: () => Promise.resolve({}),
      });
    },
    accessOf: (name) => (byName.has(name) ? byName.get(name)?.access ?? "read" : undefined),
    shown: (input) => input,
    masked: () => [],
    judge: () => undefined,
    explain: () => Promise.resolve(undefined),
    async call(given) {
      const request = { ...given.scope, ...given };
      calls.push(request);
      if (request.signal.aborted) throw cancelError(request.signal);
      const tool = byName.get(request.name);
      if (tool === undefined) return refused(`Cannot call "${request.name}": there is no such tool`);
      const prepared = toPrepared(tool, request.input);
      if (tool.decision === "deny") return refused(`Cannot call "${tool.name}": the policy denies it`, prepared.access);
      if (tool.decision === "ask") {
        const { scope, callId } = request;
        const answer = await request.approver({
          tool: tool.name,
          prepared,
          input: prepared.input,
          binding: { digest: prepared.digest, files: [], bound: [], containment: null, versions: new Map() },
          subject: { tool: tool.name, workspace: "/workspace", inputDigest: prepared.digest },
          reason: "asked",
          rule: "test",
          callId,
          scope,
        }, request.signal);
        if (answer.decision === "deny") return refused(answer.reason, prepared.access);
      }
      return run(tool, prepared, request);
    },
  };
}

function toPrepared(tool: FakeTool, text: string): PreparedCall {
  const input: unknown = JSON.parse(text);
  return {
    input,
    digest: canonicalDigest(input),
    access: tool.access ?? "read",
    repeatable: tool.repeatable ?? false,
    effects: {},
    run: () => Promise.reject(new TypeError("The fake executor runs its tools itself")),
  };
}

function toTool(tool: FakeTool): Tool {
  return {
    name: tool.name,
    description: `The tool ${tool.name}`,
    access: tool.access ?? "read",
    source: tool.source ?? "builtin",
    enabled: "always",
    enabledBy: undefined,
    alwaysOffered: tool.alwaysOffered,
    local: tool.local ?? false,
    needs: [],
    inputSchema: tool.inputSchema ?? { type: "object", properties: {}, additionalProperties: false },
    prepare: (input) => toPrepared(tool, input),
    execute: () => Promise.reject(new TypeError("The fake executor runs its tools itself")),
  };
}

function toInfo({ name, access = "read" }: FakeTool): ToolInfo {
  return {
    name,
    description: "",
    access,
    enabled: true,
    reason: null,
    turn_on: null,
    source: "builtin",
    origin: null,
    input_schema: undefined,
  };
}

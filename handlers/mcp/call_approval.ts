import type { ClientAbility } from "../../lib/base/records/tool_info.ts";
import type {
  CallToolRequest,
  CallToolResult,
  InputRequest,
  InputRequiredResult,
  RequestStateCodec,
  ServerContext,
} from "@modelcontextprotocol/server";
import type { Clock } from "../../lib/base/clock.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { type Caller, hasScope } from "../../lib/base/records/caller.ts";
import { exactLine } from "../../lib/base/text.ts";
import type { Config } from "../../lib/config/config.ts";
import { describeApproval, toApprovalText, whyAsked } from "../../lib/guard/describe_approval.ts";
import type { Approvals } from "../../lib/guard/approvals.ts";
import { askElicitation } from "../../lib/runs/supervisor/ask_elicitation.ts";
import type { Approver } from "../../lib/tools/runtime/tool_call.ts";
import { askByReply, sayWaiting } from "../../lib/runs/supervisor/ask_by_reply.ts";
import { type CallState, requestDigest } from "./call_state.ts";
import type { ClientWay } from "./asking_work.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { mcpCallerOf, type McpRequest, requestOf } from "./mcp_request.ts";

/** Ways to ask the client's user: `url` leads to the dashboard, `form` takes the answer in the client's own window. */
type AskMode = "url" | "form";

/** Name of the question in the client's request and answer. */
const QUESTION = "approval";
/** Characters of a question that a form shows, so that a person sees all of it. A longer one goes to the dashboard. */
const MAX_FORM = 2_000;
/** Approvals that are looked at for an earlier one of the same call. */
const MAX_LOOKED_AT = 200;

/** Parts of the gateway that approvals of calls need. */
export interface CallApprovalParts {
  readonly sdk: McpSdk;
  readonly approvals: Approvals;
  readonly clock: Clock;
  readonly config: () => Config;
  readonly states: RequestStateCodec<CallState>;
}

/** The approval of one call of a client of MCP. */
export class CallApproval {
  readonly #parts: CallApprovalParts;
  readonly #asked: McpRequest;
  readonly #caller: Caller;
  readonly #params: CallToolRequest["params"];
  readonly #context: ServerContext;
  /** Ways that the client declares, the best first */
  readonly #modes: readonly AskMode[];
  #way: ClientWay | undefined = undefined;

  /** @param can kinds of questions that the client answers */
  constructor(
    parts: CallApprovalParts,
    { params, context, can }: {
      readonly params: CallToolRequest["params"];
      readonly context: ServerContext;
      readonly can: ReadonlySet<ClientAbility>;
    },
  ) {
    this.#parts = parts;
    this.#params = params;
    this.#context = context;
    this.#asked = requestOf(context);
    this.#caller = mcpCallerOf(this.#asked);
    this.#modes = this.#modesOf(can);
  }

  /**
   * Takes the client's answer to an earlier question, where it brings one. Waits for the person who answers in the dashboard.
   * @returns the approver of the call, or the result of a call that the person does not want
   * @throws {ProtocolError} -32602 for the state of another call; {CancelError} when the client goes away
   */
  async begin(): Promise<Approver | CallToolResult> {
    const state = this.#context.mcpReq.requestState<CallState>();
    if (state === undefined) return this.#approver(undefined);
    if (!("approvalId" in state) || state.call !== requestDigest(this.#params)) {
      throw invalidParams(this.#parts.sdk, "Invalid or expired requestState", { reason: "invalid_request_state" });
    }
    const { approvals } = this.#parts;
    const answer = this.#parts.sdk.inputResponse(this.#context.mcpReq.inputResponses, QUESTION);
    // A client that brings no answer is asked again, or hears how the approval has ended
    if (answer.kind !== "elicit") return this.#approver(state.approvalId);
    const asked = await approvals.get(state.approvalId);
    const isLink = asked !== undefined && this.#modeFor(asked) === "url";
    if (answer.action !== "accept" && isLink) {
      // The answer is given behind the address. Clients decline to open it unasked where they run without a person, as codex exec does
      if (asked.status !== "pending") return this.#approver(state.approvalId);
      const _meta = { "postern/approval_id": asked.id };
      return { ...refused(sayWaiting(asked, this.#wayOn(asked.id))), _meta };
    }
    if (answer.action !== "accept") {
      await approvals.cancel(state.approvalId);
      return refused(`Cannot call "${this.#params.name}": the client's user did not approve it`);
    }
    if (asked !== undefined && this.#modeFor(asked) === "form") await this.#takeForm(asked.id, answer.content);
    else await this.#waitFor(state.approvalId);
    return this.#approver(state.approvalId);
  }

  /** Returns the question to the client's user about an approval that waits; undefined where the client can only be refused. */
  async question(approvalId: string): Promise<InputRequiredResult | undefined> {
    const approval = await this.#parts.approvals.get(approvalId);
    if (approval?.status !== "pending") return undefined;
    const mode = this.#modeFor(approval);
    if (mode === undefined) return undefined;
    const state: CallState = { approvalId, call: requestDigest(this.#params) };
    return this.#parts.sdk.inputRequired({
      inputRequests: { [QUESTION]: mode === "form" ? this.#formOf(approval) : this.#linkTo(approval) },
      requestState: await this.#parts.states.mint(state, this.#context),
    });
  }

  /** Takes the way to the client once the call runs: the request that waits for it may then be another one. */
  follow(way: ClientWay): void {
    this.#way = way;
  }

  #modesOf(can: ReadonlySet<ClientAbility>): readonly AskMode[] {
    const isTrusted = this.#parts.config().mcp.server.trust_elicitation &&
      hasScope(this.#asked.identity.scopes, "approve");
    return [
      ...(can.has("form") && isTrusted ? ["form"] as const : []),
      ...(can.has("url") ? ["url"] as const : []),
    ];
  }

  /** Returns the way to ask about an approval: a form shows the whole question or is not used. Undefined: the client can only be refused. */
  #modeFor(approval: Approval): AskMode | undefined {
    return this.#modes.find((mode) => mode === "url" || formText(approval).length <= MAX_FORM);
  }

  #approver(given: string | undefined): Approver {
    const { approvals, clock, config } = this.#parts;
    const { runs, autonomy } = config();
    const approver: Approver = async (request, signal) => {
      const id = given ?? await this.#earlier(request.binding.digest);
      return await askByReply({
        approvals,
        clock,
        given: id,
        granted: false,
        timeoutMs: runs.approval_timeout_secs * 1000,
        elicitMs: autonomy.approval_timeout_secs * 1000,
        wayOn: (approvalId) => this.#wayOn(approvalId),
      })(request, signal);
    };
    const elicit: Approver["elicit"] = (request, signal) =>
      askElicitation(request, {
        approvals,
        timeoutMs: autonomy.approval_timeout_secs * 1000,
        signal,
        // The call waits in the gateway, so its client is told where the question is answered
        onAsked: (id) => void this.#tellWaiting(id),
      });
    return Object.assign(approver, { elicit });
  }

  /** Finds an approval that this token asked for exactly this call: it still waits, or it lets the call through once. */
  async #earlier(digest: string): Promise<string | undefined> {
    const { approvals } = await this.#parts.approvals.list({ limit: MAX_LOOKED_AT });
    const found = approvals.find((approval) =>
      approval.digest === digest && approval.requested_by === this.#caller.tokenId &&
      (approval.status === "pending" || (approval.status === "approved" && approval.used_at === null))
    );
    return found?.id;
  }

  #wayOn(approvalId: string): string {
    return `repeat exactly this call. ${this.#dashboard(approvalId)} shows it`;
  }

  async #waitFor(approvalId: string): Promise<void> {
    await this.#tellWaiting(approvalId);
    await this.#parts.approvals.settled(approvalId, this.#context.mcpReq.signal);
  }

  /** Tells the client where a person answers: as progress where it asked for progress, otherwise as a log message. */
  async #tellWaiting(approvalId: string): Promise<void> {
    const context = this.#way === undefined ? this.#context : this.#way.context();
    if (context === undefined) return;
    const { mcpReq } = context;
    const progressToken = mcpReq._meta?.progressToken;
    const message = `Waits for a person to answer ${approvalId} at ${this.#dashboard(approvalId)}`;
    const told = progressToken === undefined
      ? mcpReq.log("info", message, this.#params.name)
      : mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress: 0, message } });
    // Nobody reads what fails here: the wait for a client that is gone ends by its signal
    await told.catch(() => {});
  }

  /** Takes the answer of the form. The modes have seen that this client may give one. */
  async #takeForm(approvalId: string, content: Readonly<Record<string, unknown>> | undefined): Promise<void> {
    const decision = content?.["decision"];
    if (decision !== "approve" && decision !== "deny") {
      throw invalidParams(this.#parts.sdk, 'Cannot take the answer: "decision" must be "approve" or "deny"');
    }
    await this.#parts.approvals.answer(approvalId, { decision, by: this.#caller });
  }

  #linkTo(approval: Approval): InputRequest {
    const isOld = this.#context.mcpReq.envelope === undefined;
    return {
      method: "elicitation/create",
      params: {
        mode: "url",
        message: `Postern asks before it calls "${exactLine(approval.tool)}". ${describeApproval(approval).title}. ` +
          `${exactLine(whyAsked(approval.reason))}. ` +
          "Answer in the dashboard of the gateway.",
        url: this.#dashboard(approval.id),
        // The id exists in revisions with sessions alone
        ...(isOld ? { elicitationId: approval.id } : {}),
      },
    } as InputRequest; // The SDK's type has the id for every revision
  }

  #formOf(approval: Approval): InputRequest {
    return this.#parts.sdk.inputRequired.elicit({
      message: formText(approval),
      requestedSchema: {
        type: "object",
        properties: {
          decision: { type: "string", title: "Decision", enum: ["approve", "deny"], default: "deny" },
        },
        required: ["decision"],
      },
    });
  }

  #dashboard(approvalId: string): string {
    return `${this.#asked.gatewayUrl}/#approvals/${approvalId}`;
  }
}

function formText(approval: Approval): string {
  return `Postern asks before it makes this call:\n${toApprovalText(describeApproval(approval))}`;
}

/** Returns the result of a call that was refused. */
function refused(text: string): CallToolResult {
  return { content: [{ type: "text", text }], isError: true };
}

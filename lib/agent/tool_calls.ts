import { CancelError, cancelError } from "../base/cancel.ts";
import { type EffectRightSlot, withEffectRight } from "../base/effect_right.ts";
import type { AgentEventBody, WrittenFile } from "../base/records/agent_event.ts";
import type { DeniedBy } from "../base/records/approval.ts";
import type { Picture, ToolMessage } from "../base/records/message.ts";
import { type Taint, taintField, UNTAINTED } from "../base/taint.ts";
import type { CallingModel, ToolCallOutcome, ToolCallRequest, ToolExecutor } from "../tools/runtime/tool_executor.ts";
import { matchesPatterns } from "../tools/runtime/registry.ts";
import type { Approver, ReadSkill } from "../tools/runtime/tool_call.ts";
import type { PreparedCall } from "../tools/runtime/tool.ts";
import type { AgentRun, AgentSteering, RecordedResult, TurnCall } from "./agent_run.ts";
import { envelopeLines, wrapUntrusted } from "./untrusted_text.ts";

/** The calls of one turn, and everything they run with. */
export interface CallToolsOptions {
  readonly run: AgentRun;
  readonly calls: readonly TurnCall[];
  /** Calls that may still run under `max_tool_calls`; the rest are answered with an error */
  readonly left: number;
  /** Names of the tools this run was told of */
  readonly allowed: readonly string[];
  /** Skills that the run has read, which may take tools from it: those that the calls read are added */
  readonly skills: ReadSkill[];
  /** Results of calls that ended before the run was interrupted: these are not made again */
  readonly known: ReadonlyMap<string, RecordedResult> | undefined;
  /** Takes the results as they come */
  readonly ended: CallResult[];
  readonly model: CallingModel;
  readonly emit: (body: AgentEventBody) => void;
}

/** The result of a call. `content` is for the model's messages: `output`, in the untrusted envelope when it came from outside. */
export interface CallResult {
  readonly call: TurnCall;
  readonly output: string;
  readonly content: string;
  readonly isError: boolean;
  /** Pictures of the result; undefined: none */
  readonly pictures?: readonly Picture[] | undefined;
  /** Lines of the envelope for the pictures, where the result came from outside */
  readonly frame?: ToolMessage["frame"];
  /** Present where the call was not made, as a message came before it. */
  readonly skipped?: true | undefined;
  /** Source of the denial of a call that was not made. */
  readonly deniedBy?: DeniedBy | undefined;
}

/**
 * Returns why a tool cannot be called any more: a skill that the run has read takes it, to the end of the run. Undefined for one that can.
 * Source: docs/design/skills.md "Narrowing"
 */
function refusalBySkill(tool: string, read: readonly ReadSkill[]): string | undefined {
  const by = read.find(({ disallowedTools }) => matchesPatterns(tool, disallowedTools));
  if (by === undefined) return undefined;
  return `Cannot call "${tool}": the skill "${by.name}", which this run has read, turns it off for the rest of the run`;
}

/** Result of a call that a message of a person came before. */
const SKIPPED = "Not called: the user has sent a message meanwhile, which follows. Call it again if it is still needed";
/** Files of one call that its end names. */
const MAX_WRITTEN = 1_000;
/** At most this many read calls run at once. */
const MAX_PARALLEL = 8;

/**
 * Runs the agent's calls of one turn through the executor: together where all of them only read, else one after the other.
 * @returns the results in the order of the calls
 * @throws {CancelError} once every started call has ended
 */
export async function callTools(options: CallToolsOptions): Promise<readonly CallResult[]> {
  const { calls, run: { limits, tools: { executor } } } = options;
  const onlyReads = () => calls.every((call) => (executor.accessOf(call.name, inputOf(call)) ?? "read") === "read");
  const width = limits.parallelTools && calls.length > 1 && onlyReads() ? MAX_PARALLEL : 1;
  const results = new Array<CallResult>(calls.length);
  let next = 0;
  const work = async () => {
    while (next < calls.length) {
      const i = next++;
      const call = calls[i] as TurnCall; // i is below calls.length
      const known = options.known?.get(call.id);
      if (known === undefined) results[i] = await new RunningCall(call, options).run(i < options.left);
      else options.ended.push(results[i] = toResult(call, known, options.run));
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: Math.min(width, calls.length) }, work));
  for (const worker of workers) if (worker.status === "rejected") throw worker.reason;
  return results;
}

/** A call of a durable run was cut off, and nobody knows whether it took effect: the run ends as `needs_review`, and a person decides. */
export class NeedsReview extends Error {
  override readonly name = "NeedsReview";
}

/** Tool call on its way through the executor. Its start and its end are shown once each. */
class RunningCall {
  readonly #call: TurnCall;
  readonly #options: CallToolsOptions;
  readonly #run: AgentRun;
  /** Start of the call, without the wait for a person before it. Milliseconds, monotonic */
  #begun: number;
  readonly #parsed: ParsedInput;
  #isShown = false;
  /** Right of the call to effects, once it comes to them */
  readonly #slot: EffectRightSlot = {};
  /** Files that it has written, up to MAX_WRITTEN */
  readonly #written: WrittenFile[] = [];
  #droppedFiles = 0;
  /** Present when the start could not be written: the call then never ran */
  #journalFailure: { readonly error: unknown } | undefined = undefined;

  constructor(call: TurnCall, options: CallToolsOptions) {
    this.#call = call;
    this.#options = options;
    this.#run = options.run;
    this.#begun = options.run.kit.clock.monotonic();
    this.#parsed = options.run.facts.call !== undefined ? { input: call.arguments } : parseInput(call);
  }

  async run(mayRun: boolean): Promise<CallResult> {
    const { name } = this.#call;
    const { skills } = this.#options;
    const { resume, steering, scope: { signal }, limits: { maxToolCalls } } = this.#run;
    const taken = skills.length === 0 ? undefined : refusalBySkill(name, skills);
    const problem = resume?.gone.get(name) ?? taken ?? this.#parsed.problem;
    if (signal.aborted) throw cancelError(signal);
    if (steering?.isDue === true && await this.#isSteered(steering)) {
      this.#start(this.#parsed.input);
      return this.#end(SKIPPED, true, { skipped: true });
    }
    if (mayRun && problem === undefined) return await this.#execute();
    await this.#withdraw();
    this.#start(this.#parsed.input);
    return this.#end(
      problem ?? `Cannot call "${name}": the limit of ${maxToolCalls} tool calls for one run is reached`,
      true,
    );
  }

  /** Tells whether a message comes before the call. A call that a person was asked about has begun: nothing takes the question back. */
  async #isSteered(steering: AgentSteering): Promise<boolean> {
    if (this.#run.tools.approve.isAsked?.(this.#call.id) === true) return false;
    return (await steering.waiting()).length > 0;
  }

  async #execute(): Promise<CallResult> {
    try {
      const outcome = await this.#ask();
      if (this.#journalFailure !== undefined) throw this.#journalFailure.error;
      if (!this.#isShown) {
        await this.#withdraw();
        this.#start(this.#parsed.input);
      }
      const { output, isError, data } = outcome.result;
      if (outcome.isUnknown === true && this.#run.facts.survivesShutdown) throw new NeedsReview(output);
      if (this.#run.facts.call !== undefined) {
        return this.#end(output, isError, { data, taint: outcome.taint, deniedBy: outcome.deniedBy });
      }
      const pictures = outcome.pictures?.map(({ picture, bytes }) => {
        this.#run.tools.pictures?.keep(picture.sha256, bytes);
        return picture;
      });
      const { taint, skill, turnOn, deniedBy } = outcome;
      if (skill !== undefined) this.#options.skills.push(skill);
      return this.#end(output, isError, { taint, pictures, skill, turnOn, deniedBy });
    } catch (error) {
      return this.#failed(error);
    }
  }

  #ask(): ReturnType<ToolExecutor["call"]> {
    const { emit, skills, allowed, model } = this.#options;
    const { scope, facts, tools: { executor, approve, passesOn } } = this.#run;
    const { elicit } = approve;
    const approver: Approver = Object.assign<Approver, Pick<Approver, "elicit">>(
      (request, waiting) => approve(request, waiting, emit),
      elicit === undefined ? {} : { elicit: (request, waiting) => elicit(request, waiting, emit) },
    );
    const request: ToolCallRequest = {
      name: this.#call.name,
      input: inputOf(this.#call),
      callId: this.#call.id,
      scope,
      model,
      approver,
      approvedDigest: facts.call?.digest,
      ...(passesOn === undefined ? {} : { inherited: { ...passesOn, approver } }),
      allowed: skills.length === 0 ? allowed : allowed.filter((tool) => refusalBySkill(tool, skills) === undefined),
      onStart: this.#onStart,
      onWritten: (file) => void (this.#written.length < MAX_WRITTEN ? this.#written.push(file) : this.#droppedFiles++),
      onProgress: (message) => emit({ type: "tool_progress", call_id: this.#call.id, message }),
    };
    return scope.right === undefined
      ? executor.call(request)
      : withEffectRight(this.#slot, () => executor.call(request));
  }

  #withdraw(): Promise<void> | undefined {
    return this.#run.tools.approve.withdraw?.(this.#call.id, this.#options.emit);
  }

  /** Shows the start, and writes it where the call may have an effect. Bound, so that the executor calls it directly */
  readonly #onStart = async ({ input, access, repeatable }: PreparedCall): Promise<void> => {
    await this.#withdraw();
    this.#start(input ?? null);
    if (access === "read") return;
    try {
      await this.#run.journal.beforeEffect(this.#call.id, { repeatable: repeatable === true });
      this.#slot.right = this.#run.scope.right;
    } catch (error) {
      this.#journalFailure = { error };
      throw error;
    }
  };

  /** @throws what the caller of the tools must know: a cancellation, or a journal that cannot be written */
  #failed(error: unknown): CallResult {
    const { facts: { survivesShutdown }, kit: { log }, scope: { runId } } = this.#run;
    const { id, name } = this.#call;
    // The next start makes the call again, or asks a person what became of it
    if (survivesShutdown && error instanceof CancelError && error.reason === "shutdown") throw error;
    // The call has no end: a person says what became of it
    if (error instanceof NeedsReview) throw error;
    if (!this.#isShown) this.#start(this.#parsed.input);
    if (error instanceof CancelError) {
      this.#end(`The call was stopped: ${error.message}`, true);
      throw error;
    }
    const result = this.#end(
      `Cannot call "${name}": it failed inside the gateway, whose log names the cause`,
      true,
    );
    if (this.#journalFailure !== undefined) throw this.#journalFailure.error;
    log.error("Tool call failed inside", { run_id: runId, call_id: id, tool: name, error });
    return result;
  }

  #start(input: unknown): void {
    const { kit, tools } = this.#run;
    this.#isShown = true;
    this.#begun = kit.clock.monotonic();
    this.#options.emit({
      type: "tool_start",
      call_id: this.#call.id,
      tool: this.#call.name,
      input: tools.executor.shown(input),
    });
  }

  #end(
    output: string,
    isError: boolean,
    { taint = UNTAINTED, data, pictures, skill, turnOn, skipped, deniedBy }:
      & Partial<Pick<RecordedResult, "pictures" | "skill" | "skipped" | "deniedBy">>
      & {
        readonly taint?: Taint | undefined;
        readonly turnOn?: ToolCallOutcome["turnOn"] | undefined;
        readonly data?: unknown;
      } = {},
  ): CallResult {
    this.#options.emit({
      type: "tool_end",
      call_id: this.#call.id,
      tool: this.#call.name,
      output,
      is_error: isError,
      duration_ms: Math.round(this.#run.kit.clock.monotonic() - this.#begun),
      ...(deniedBy === undefined ? {} : { denied_by: deniedBy }),
      ...(data === undefined ? {} : { data }),
      ...(turnOn === undefined ? {} : { turn_on: turnOn }),
      ...taintField(taint),
      ...(pictures === undefined ? {} : { pictures: [...pictures] }),
      ...(this.#written.length === 0 ? {} : { files: [...this.#written] }),
      ...(this.#droppedFiles === 0 ? {} : { files_dropped: this.#droppedFiles }),
      ...(skipped === undefined ? {} : { skipped }),
      ...(skill === undefined ? {} : { skill: { name: skill.name, disallowed_tools: [...skill.disallowedTools] } }),
    });
    this.#run.journal.afterCall(this.#call.id);
    const result = toResult(this.#call, { output, isError, taint, pictures, skill, skipped, deniedBy }, this.#run);
    this.#options.ended.push(result);
    return result;
  }
}

/** Arguments of a call as JSON, and what is wrong with them. */
interface ParsedInput {
  readonly input: unknown;
  readonly problem?: string;
}

/** The output of a single call without a model is the reply, and goes on as it is. */
function toResult(
  call: TurnCall,
  { output, isError, taint, pictures, skill, skipped, deniedBy }: RecordedResult,
  { facts, kit: { random } }: Pick<AgentRun, "facts" | "kit">,
): CallResult {
  const envelope = { origin: taint, random };
  // Instructions that a person trusts are no data; the run is tainted by them all the same
  const isOutside = facts.call === undefined && taint.length > 0 && skill === undefined;
  const content = isOutside ? wrapUntrusted(call.name, output, envelope) : output;
  if (pictures === undefined) return { call, output, isError, content, skipped, deniedBy };
  const frame = isOutside ? envelopeLines(call.name, envelope) : undefined;
  return { call, output, isError, content, pictures, frame };
}

/** Models leave the arguments empty for a tool without parameters. */
function inputOf(call: TurnCall): string {
  return call.arguments.trim() === "" ? "{}" : call.arguments;
}

/** A model's arguments are a JSON object; the plain-text form of some tools is for people, and broken JSON must not pass as one. */
function parseInput(call: TurnCall): ParsedInput {
  try {
    const input: unknown = JSON.parse(inputOf(call));
    if (typeof input === "object" && input !== null && !Array.isArray(input)) return { input };
    return { input, problem: `Cannot call "${call.name}": its arguments are valid JSON but not an object` };
  } catch (error) {
    // JSON.parse throws nothing but SyntaxError
    const reason = (error as SyntaxError).message;
    return {
      input: call.arguments,
      problem: `Cannot call "${call.name}": its arguments are not valid JSON (${reason})`,
    };
  }
}

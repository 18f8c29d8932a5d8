import { CancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { HttpError } from "../base/errors.ts";
import type { Approval } from "../base/records/approval.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { createPatience } from "../storage/read_records.ts";
import { APPROVAL_LIMITS, type Approvals, type PatientApprovals } from "./approvals.ts";

/** Function of the program around the gateway that answers approvals. It may give anything: what is given is checked. */
export type AskProgram = (approval: Approval, options: { readonly signal: AbortSignal }) => unknown;

/** Options of `createProgramApprover`. */
export interface ProgramApproverOptions {
  readonly approvals: Approvals;
  readonly ask: AskProgram;
  /** Resolves when the program has its gateway. It is not asked before. */
  readonly ready: Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Masks known secrets in what the program throws. */
  readonly redact: (text: string) => string;
}

/** Approvals that the program is asked about. */
export interface ProgramApprover {
  /** The same approvals: each one that is filed is shown to the program. */
  readonly approvals: Approvals;
  /** Aborts the signals of the program. Approvals that wait stay open. */
  close(): void;
}

/**
 * Asks the program about each approval, those that wait from before included. An elicitation is answered with
 * `{ decision: "approve", content }`, or by `approve` where the form needs no field. People may answer beside it: the first answer counts. What
 * the program gives is an answer for one call; it is never remembered. An error and an answer of any other form deny, with the reason in
 * the record. A slow program changes nothing: the approval waits as before, until somebody answers or its time is over.
 * Source: docs/design/policy.md "Approvals"
 */
export function createProgramApprover(options: ProgramApproverOptions): ProgramApprover {
  const program = new Program(options);
  const { approvals } = options;
  const showing = ({ ask }: Pick<Approvals, "ask">): Approvals["ask"] => async (request, claim) => {
    const asked = await ask(request, claim);
    if (asked !== undefined && request.isAnswered !== true) program.show(asked);
    return asked;
  };
  return {
    approvals: {
      ask: showing({ ask: (request, claim) => approvals.ask(request, claim) }),
      patient(patience) {
        const patient = approvals.patient(patience);
        return { ...patient, ask: showing(patient) };
      },
      settled: (id, signal) => approvals.settled(id, signal),
      elicited: (id, signal) => approvals.elicited(id, signal),
      answer: (id, reply) => approvals.answer(id, reply),
      cancel: (id) => approvals.cancel(id),
      use: (id, digest) => approvals.use(id, digest),
      get: (id) => approvals.get(id),
      list: (page) => approvals.list(page),
      ofRuns: (runIds, status) => approvals.ofRuns(runIds, status),
      remembered: (subject, runId) => approvals.remembered(subject, runId),
      rules: () => approvals.rules(),
      revoke: (ruleId, by) => approvals.revoke(ruleId, by),
      askers: approvals.askers,
      tidy: (days) => approvals.tidy(days),
      program,
    },
    close: () => program.close(),
  };
}

class Program {
  readonly #options: ProgramApproverOptions;
  readonly #closing = new AbortController();
  /** Approvals once the database is back: the program's answer counts afterwards too. */
  readonly #patient: PatientApprovals;
  /** Approvals that the program is being asked about, each with what `isLeft` gives. */
  readonly #asked = new Map<string, Promise<boolean>>();

  constructor(options: ProgramApproverOptions) {
    this.#options = options;
    const { approvals, clock } = options;
    this.#patient = approvals.patient(createPatience({ clock, signal: this.#closing.signal }));
    void options.ready.then(() => this.#showWaiting());
  }

  close(): void {
    this.#closing.abort(new CancelError("shutdown"));
  }

  show(approval: Approval): void {
    const { id } = approval;
    if (this.#asked.has(id)) return;
    this.#asked.set(id, this.#options.ready.then(() => this.#ask(approval)));
  }

  isLeft(id: string): Promise<boolean> {
    return this.#asked.get(id) ?? Promise.resolve(true);
  }

  async #showWaiting(): Promise<void> {
    const { log } = this.#options;
    try {
      const waiting = await this.#patient.list({ status: "pending", limit: APPROVAL_LIMITS.pending });
      for (const approval of waiting.approvals) this.show(approval);
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      log.error("The program could not be asked about the approvals that wait", { error });
    }
  }

  /** Asks about one approval. @returns true when the program leaves it to people. Never rejects */
  async #ask(approval: Approval): Promise<boolean> {
    const { id } = approval;
    const over = new AbortController();
    const settled = this.#settlement(id);
    void settled.then(() => {
      const { aborted, reason } = this.#closing.signal;
      over.abort(aborted ? reason : new CancelError("cancelled", "The approval is settled"));
      this.#asked.delete(id);
    });
    const word = this.#wordOf(approval, over.signal);
    const first = await Promise.race([word, settled]);
    if (first === "settled" || over.signal.aborted) return false;
    if (first === "left") return true;
    await this.#answer(id, first);
    return false;
  }

  /** Resolves when the approval is settled, by whomever, or when the gateway closes. */
  async #settlement(id: string): Promise<"settled"> {
    // An approval that is forgotten, or cannot be read, needs no answer either
    await this.#patient.settled(id, this.#closing.signal).catch(() => {});
    return "settled";
  }

  async #wordOf(approval: Approval, signal: AbortSignal): Promise<Word | "left"> {
    const { ask, log, redact } = this.#options;
    try {
      // A copy: what the program changes in it must not reach the call
      const given = await ask(structuredClone(approval), { signal });
      if (given === "approve" || given === "deny") return { decision: given };
      if (given === undefined) return "left";
      return wordWithContent(given, approval) ??
        { decision: "deny", note: 'onApproval gave neither "approve" nor "deny" nor undefined' };
    } catch (error) {
      const { id: approval_id, run_id, tool } = approval;
      if (!signal.aborted) log.error("onApproval failed: the call is denied", { approval_id, run_id, tool, error });
      const note = redact(`onApproval failed: ${sayError(error)}`).slice(0, APPROVAL_LIMITS.noteCharacters);
      return { decision: "deny", note };
    }
  }

  async #answer(id: string, word: Word): Promise<void> {
    const by = { via: "program", tokenId: null } as const;
    try {
      await this.#patient.answer(id, { ...word, by });
    } catch (error) {
      // The content does not fit the form: as an answer of no form
      if (error instanceof HttpError && error.status === 400) {
        const note = `onApproval gave an answer that does not fit: ${error.message}`.slice(
          0,
          APPROVAL_LIMITS.noteCharacters,
        );
        return await this.#answer(id, { decision: "deny", note });
      }
      // Somebody answered at the same moment, the approval was taken back, or the gateway closes
      if (error instanceof HttpError || error instanceof CancelError) return;
      this.#options.log.error("The program's answer to an approval could not be stored", { approval_id: id, error });
    }
  }
}

/** Answer of the program. */
interface Word {
  readonly decision: "approve" | "deny";
  readonly note?: string;
  readonly content?: Readonly<Record<string, unknown>>;
}

/** Returns the answer to an elicitation that an object of the program is. undefined: it is none, or the approval is about a call */
function wordWithContent(given: unknown, { kind }: Approval): Word | undefined {
  if (kind !== "elicitation" || given === null || typeof given !== "object") return undefined;
  const { decision, content = {} }: { readonly decision?: unknown; readonly content?: unknown } = given;
  if (decision === "deny") return { decision };
  if (decision !== "approve" || content === null || typeof content !== "object" || Array.isArray(content)) {
    return undefined;
  }
  // A copy of its own properties, so that the program cannot change what was checked
  return { decision, content: { ...content } };
}

function sayError(error: unknown): string {
  try {
    return error instanceof Error ? `${error.message}` : "it threw something that is no error";
  } catch {
    return "its error cannot be read";
  }
}

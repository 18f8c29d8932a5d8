import type { Clock } from "../base/clock.ts";
import type {
  Approval,
  ApprovalRule,
  ApprovalStatus,
  BoundState,
  Remember,
  RuleMatchKind,
} from "../base/records/approval.ts";
import type { Actor } from "../base/records/caller.ts";
import type { FormContent } from "../base/records/elicitation.ts";
import type { MaskedSecret } from "../base/redact.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Patience } from "../storage/read_records.ts";
import type { Write } from "../storage/store.ts";
import type { Askers } from "./askers.ts";
import type { Elicitation } from "./elicitation.ts";
import type { Access } from "./policy.ts";
import type { RuleSubject } from "./rule_match.ts";

/** Bounds of approvals. */
export const APPROVAL_LIMITS = {
  /** Approvals that may be pending at once, of all tokens */
  pending: 1_000,
  /** Records of any state. Above this the oldest settled records are deleted */
  records: 10_000,
  /** Rules that are remembered */
  rules: 1_000,
  noteCharacters: 1_000,
} as const;

/** `answered_by` of an approval that the program around the gateway answered. No token has this id. */
export const ANSWERED_BY_PROGRAM = "program";

/** Says who answered an approval, for sentences. */
export function sayAnswerer({ answered_by }: Pick<Approval, "answered_by">): "a person" | "the program" {
  return answered_by === ANSWERED_BY_PROGRAM ? "the program" : "a person";
}

/** Says whose question an elicitation is, for the middle of a sentence. */
export function sayAsker({ server, agent }: Pick<Approval, "server" | "agent">): string {
  if (agent === true) return "the agent";
  return server === undefined ? "the program around the gateway" : `the MCP server "${server}"`;
}

/** Adds to the reason of a question which secrets the person sees as `[redacted]`. */
export function withMasks(reason: string, masked: readonly MaskedSecret[]): string {
  return masked.length === 0 ? reason : `${reason}. Its input shows [redacted] in place of ${namesOf(masked)}`;
}

/**
 * Returns why nobody may approve a call with these secrets in its input: a stranger chose what the person would not see. Undefined where a
 * person may.
 */
export function hiddenByOthers(masked: readonly MaskedSecret[]): string | undefined {
  const others = masked.filter(({ isOwn }) => !isOwn);
  return others.length === 0
    ? undefined
    : `its input holds ${namesOf(others)}, so that whoever is asked would not see all of it; leave that text out`;
}

function namesOf(masked: readonly MaskedSecret[]): string {
  return masked.map(({ name }) => name).join(", ");
}

/** A request for approval of one call, or for the answer to what the server of a running call asks. */
export interface NewApproval extends RuleSubject {
  readonly access: Access;
  /** For the person; known secrets masked */
  readonly input: unknown;
  /** Secrets that are masked in the input: the reason then names them. Default: none */
  readonly masked?: readonly MaskedSecret[] | undefined;
  readonly reason: string;
  /** The policy's rule; one of `always_ask` is never remembered */
  readonly rule: string;
  readonly files: readonly { readonly path: string; readonly sha256: string | null }[];
  /** State of files or repositories that the answer is bound to as well. Default: nothing */
  readonly bound?: readonly BoundState[] | undefined;
  /** How the programs the call would start are contained. Default: it starts none */
  readonly containment?: NonNullable<Approval["containment"]> | null | undefined;
  /** For the person: what the call does, and who asks. Default: nothing is known of it */
  readonly shown?: Pick<Approval, "changes" | "fails" | "commands" | "asker" | "editable"> | undefined;
  /** Digest of everything that the answer is bound to */
  readonly digest: string;
  readonly runId: string;
  readonly callId: string;
  /** Id of the request that made the call. Default: none did */
  readonly requestId?: string | undefined;
  readonly requestedBy: Actor;
  /** Milliseconds that the approval waits, and that an answer counts */
  readonly timeoutMs: number;
  /** Question of the call's server to a person. Default: the approval is about the call itself */
  readonly elicitation?: Elicitation | undefined;
  /** True when whoever files the approval answers it at once: the program is not asked. Default false */
  readonly isAnswered?: boolean | undefined;
}

/** A person's answer to an approval. */
export interface ApprovalReply {
  readonly decision: "approve" | "deny";
  /** Default `once` */
  readonly remember?: Remember | undefined;
  /** Match of what is remembered. Default `call`, the exact call */
  readonly match?: RuleMatchKind | undefined;
  /** At most 1,000 characters, for whoever reads the record */
  readonly note?: string | undefined;
  /** Content for the form of an elicitation that is approved. Default: no field is filled in */
  readonly content?: Readonly<Record<string, unknown>> | undefined;
  /** Call that the person wants in place of the one that was asked about, bound as things are now. Default: that very call */
  readonly edit?: EditedCall | undefined;
  readonly by: Actor;
}

/** Call with the input of a person, and what its approval is bound to. */
export type EditedCall =
  & Pick<
    Approval,
    "access" | "input" | "input_digest" | "files" | "containment" | "digest" | "changes" | "fails" | "commands"
  >
  & { readonly bound: readonly BoundState[] };

/** Writes that go with something that happens, and what to do once they are written. */
export interface Told {
  readonly writes: readonly Write[];
  written(): void;
}

/** Returns what tells people of an approval that is being filed. @param isMasked true: its input has masked parts. Never rejects */
export type TellOfApproval = (approval: Approval, isMasked: boolean) => Promise<Told | undefined>;

/** End of an elicitation. */
export interface ElicitationEnd {
  readonly approval: Approval;
  /** Content that the person gave; undefined unless the approval is approved. No record has it */
  readonly content: FormContent | undefined;
}

/** Result of using an approval for a call: the call may run, or the reason why not. */
export type ApprovalUse =
  | { readonly ok: true; readonly approval: Approval }
  /** `waiting`: it may still be answered */
  | { readonly ok: false; readonly waiting: boolean; readonly reason: string };

/** A page of approvals, newest first. */
export interface ApprovalPage {
  readonly approvals: readonly Approval[];
  readonly hasMore: boolean;
}

/**
 * The approvals: records of calls that wait for a person. They outlive a restart, and expire into a denial (docs/design/policy.md "Approvals").
 *
 * One gateway owns a store's approvals. Metric: postern_approvals_total{decision}.
 */
export interface Approvals {
  /**
   * Files an approval.
   * @param claim a record written in the same transaction, so that only one of several approvals is filed
   * @throws {HttpError} 409 conflict when the claim does not hold
   * @returns undefined when 1,000 approvals are pending already, or 875 of this token
   */
  ask(
    request: NewApproval,
    claim?: (approvalId: string) => Write | readonly Write[],
  ): Promise<Approval | undefined>;
  /**
   * Resolves when the approval is settled, by its expiry at the latest.
   * @throws {CancelError} when the signal aborts first; the approval then stays as it is
   */
  settled(id: string, signal: AbortSignal): Promise<Approval>;
  /**
   * Waits for the end of an elicitation, as `settled`, and gives the content of its answer. To be called right after `ask`, once: the
   * content is in memory alone, and an elicitation for which nobody waits any more is cancelled.
   * @throws {CancelError} when the signal aborts first; the approval is then cancelled
   */
  elicited(id: string, signal: AbortSignal): Promise<ElicitationEnd>;
  /**
   * @throws {HttpError} 404 not_found; 409 conflict for one that is settled; 400 invalid_request for a `remember` that is refused, and for
   *   content that does not fit the form
   * @returns the approval, and the rule that was stored
   */
  answer(
    id: string,
    reply: ApprovalReply,
  ): Promise<{ readonly approval: Approval; readonly rule: ApprovalRule | undefined }>;
  /** Cancels a pending approval whose answer nobody needs any more. Leaves a settled approval as it is */
  cancel(id: string): Promise<void>;
  /**
   * Lets the call of this digest through, once.
   * @param digest everything that the answer is bound to, as it is now
   */
  use(id: string, digest: string): Promise<ApprovalUse>;
  get(id: string): Promise<Approval | undefined>;
  /** Newest first. @param options.limit 1-1000; `after`: older than this one */
  list(options: {
    readonly status?: ApprovalStatus | undefined;
    readonly limit: number;
    readonly after?: string | undefined;
  }): Promise<ApprovalPage>;
  /**
   * Returns the approvals of some runs among the newest 1,000, or the newest 1,000 of a status. Reads once, however many there are, and
   * settles those of the runs whose time is over.
   */
  ofRuns(runIds: ReadonlySet<string>, status?: ApprovalStatus): Promise<readonly Approval[]>;
  /** Returns the rule that decides this call, in this run or for good. A denial wins over other rules */
  remembered(subject: RuleSubject, runId: string): Promise<ApprovalRule | undefined>;
  /** Newest first */
  rules(): Promise<readonly ApprovalRule[]>;
  /** @returns false for an unknown id */
  revoke(ruleId: string, by: Actor): Promise<boolean>;
  /** Settles what expired while no gateway ran, and forgets what was settled `days` ago (0: nothing) */
  tidy(days: number): Promise<void>;
  /** Returns the same approvals for work that waits while the database of the gateways is down */
  patient(patience: Patience): PatientApprovals;
  /** Ways by which a person can be asked */
  readonly askers: Pick<Askers, keyof Askers>;
  /** The program around the gateway, where it answers approvals. Default: it does not */
  readonly program?: {
    /** Resolves with true once the program leaves an approval to people, and with false once the approval is settled. Never rejects */
    isLeft(approvalId: string): Promise<boolean>;
  } | undefined;
}

/** Steps of approvals that work may wait for. */
export type PatientApprovals = Pick<
  Approvals,
  "ask" | "settled" | "elicited" | "answer" | "cancel" | "use" | "get" | "list" | "ofRuns"
>;

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Tidies the approvals now and once a day; a failure is logged.
 * @returns a function that stops the daily tidying
 */
export async function keepTidy(
  approvals: Pick<Approvals, "tidy">,
  options: { readonly clock: Clock; readonly log: Logger; readonly days: () => number },
): Promise<() => void> {
  const tidy = async () => {
    try {
      await approvals.tidy(options.days());
    } catch (error) {
      options.log.error("Old approvals could not be forgotten", { error });
    }
  };
  await tidy();
  const timer = options.clock.every(DAY_MS, () => void tidy());
  return () => timer.clear();
}

import type { Clock } from "../base/clock.ts";
import type {
  Approval,
  ApprovalRule,
  ApprovalStatus,
  BoundState,
  Remember,
  RuleMatchKind,
} from "../base/records/approval.ts";
import type { Caller } from "../base/records/caller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Write } from "../storage/store.ts";
import type { Access } from "./policy.ts";
import type { RuleSubject } from "./rule_match.ts";

/** Bounds of approvals. */
export const APPROVAL_LIMITS = {
  /** Questions that may wait at once */
  pending: 1_000,
  /** Records of any state: over this the oldest that are answered make room */
  records: 10_000,
  /** Rules that are remembered */
  rules: 1_000,
  noteCharacters: 1_000,
} as const;

/** Who asked or answered: the door it came by, and the token's id. */
export type Actor = Pick<Caller, "via" | "tokenId">;

/** A question about one call. */
export interface ApprovalQuestion extends RuleSubject {
  readonly access: Access;
  /** For the person; known secrets masked */
  readonly input: unknown;
  readonly reason: string;
  /** The policy's rule; one of `always_ask` is never remembered */
  readonly rule: string;
  readonly files: readonly { readonly path: string; readonly sha256: string | null }[];
  /** State of files or repositories that the answer is bound to as well. Default: nothing */
  readonly bound?: readonly BoundState[] | undefined;
  /** How the programs the call would start are contained. Default: it starts none */
  readonly containment?: NonNullable<Approval["containment"]> | null | undefined;
  /** Over all that the answer is bound to */
  readonly digest: string;
  readonly runId: string;
  readonly callId: string;
  readonly requestedBy: Actor;
  /** How long an answer counts, and a question waits */
  readonly timeoutMs: number;
}

export interface ApprovalReply {
  readonly decision: "approve" | "deny";
  /** Default `once` */
  readonly remember?: Remember | undefined;
  /** Match of what is remembered. Default `call`, the exact call */
  readonly match?: RuleMatchKind | undefined;
  /** At most 1,000 characters, for whoever reads the record */
  readonly note?: string | undefined;
  readonly by: Actor;
}

/** Whether a call may go through on an approval. */
export type ApprovalUse =
  | { readonly ok: true; readonly approval: Approval }
  /** `waiting`: it may still be answered */
  | { readonly ok: false; readonly waiting: boolean; readonly reason: string };

export interface ApprovalPage {
  readonly approvals: readonly Approval[];
  readonly hasMore: boolean;
}

/**
 * Questions to a person as records: they outlive a restart, and expire into a denial (docs/design/policy.md "Approvals").
 *
 * One gateway owns a store's approvals. Metric: postern_approvals_total{decision}.
 */
export interface Approvals {
  /**
   * Files a question.
   * @param claim a record written in the one transaction with it, so that one question of many is filed
   * @throws {HttpError} 409 conflict when the claim does not hold
   * @returns undefined when as many wait as may
   */
  ask(question: ApprovalQuestion, claim?: (approvalId: string) => Write): Promise<Approval | undefined>;
  /**
   * Resolves when the question is settled, by its expiry at the latest.
   * @throws {CancelError} when the signal aborts first; the question then stays as it is
   */
  settled(id: string, signal: AbortSignal): Promise<Approval>;
  /**
   * @throws {HttpError} 404 not_found; 409 conflict for one that is settled; 400 invalid_request for a `remember` that is refused
   * @returns the approval, and the rule that was stored
   */
  answer(
    id: string,
    reply: ApprovalReply,
  ): Promise<{ readonly approval: Approval; readonly rule: ApprovalRule | undefined }>;
  /** Nobody needs the answer any more. Of a settled one nothing changes */
  cancel(id: string): Promise<void>;
  /** Lets the call of this digest through, once */
  use(id: string, digest: string): Promise<ApprovalUse>;
  get(id: string): Promise<Approval | undefined>;
  /** Newest first. @param options.limit 1-1000; `after`: older than this one */
  list(options: {
    readonly status?: ApprovalStatus | undefined;
    readonly limit: number;
    readonly after?: string | undefined;
  }): Promise<ApprovalPage>;
  /** The rule that stands for this call, in this run or for good; of several a denial */
  remembered(subject: RuleSubject, runId: string): Promise<ApprovalRule | undefined>;
  /** Newest first */
  rules(): Promise<readonly ApprovalRule[]>;
  /** @returns false for an unknown id */
  revoke(ruleId: string, by: Actor): Promise<boolean>;
  /** Settles what expired while no gateway ran, and forgets what was settled `days` ago (0: nothing) */
  tidy(days: number): Promise<void>;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Tidies the approvals now and once a day; a failure is logged.
 * @returns what ends it
 */
export async function keepTidy(
  approvals: Approvals,
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

import { createHmac, hash, timingSafeEqual } from "node:crypto";
import * as v from "valibot";
import { slidingWindow } from "../access/sliding_window.ts";
import type { Clock } from "../base/clock.ts";
import { HttpError, refuse as refusal } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Approval } from "../base/records/approval.ts";
import type { FormContent } from "../base/records/elicitation.ts";
import { exactLine, withoutEnd } from "../base/text.ts";
import type { Config } from "../config/config.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import { isOver } from "./approval_records.ts";
import { type Approvals, sayAnswerer } from "./approvals.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import { isShownWhole } from "./describe_approval.ts";

const linkSchema = v.object({
  v: v.literal(1),
  /** Name of the link in the audit. It opens nothing */
  id: v.string(),
  approval_id: v.string(),
  /** Digest of the approval as it was told */
  digest: v.string(),
  /** ISO 8601 */
  expires_at: v.string(),
});
type Link = v.InferOutput<typeof linkSchema>;

/** Collection of the links that answer an approval, by the hash of the secret part of each. */
export const ANSWER_LINKS = new Collection("answer_links", linkSchema, { replaced: "never changed" });

/** Question of a link that can be answered now. */
export interface LinkQuestion {
  readonly approval: Approval;
  /** Proof that an answer comes from the page of the question. */
  readonly nonce: string;
  /** Words of the two answers. Undefined: the page can take none, see `NOT_HERE` */
  readonly words: { readonly allow: string; readonly deny: string } | undefined;
}

/** Reason why a link answers nothing, as a sentence for the person who has it. */
export interface LinkRefusal {
  readonly refused: string;
  readonly status: 404 | 409 | 410;
}

/** Where an answer by a link comes from. */
export interface LinkVisit {
  /** Secret part of the link */
  readonly token: string;
  /** Address of the peer. Undefined where the server beneath does not say */
  readonly address: string | undefined;
}

/** Services that answer links work with. */
export interface AnswerLinksOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly audit: AuditAppend;
  readonly approvals: Pick<Approvals, "get" | "answer">;
  readonly config: () => Pick<Config, "gateway">;
}

/** Sentence on a question that the page of a link cannot take an answer to. */
export const NOT_HERE =
  "This cannot be answered by a link: it is too long, or has more to fill in. Answer it in the dashboard.";
/** Characters of an input as JSON that the page takes an answer about. Nothing is allowed that is shown in part. */
const MAX_SHOWN = 16_000;

/** Visits in a minute by one link, or by one address without a link that is known, whatever the limits of other requests are. */
const VISITS = { max: 30, windowMs: 60_000 } as const;
const TOKEN_BYTES = 32;
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
/** Old links that each new one may delete. */
const SWEEP = 20;

/**
 * Links that answer one approval, for whoever has one: off by default. A link counts once, for the call as it was told, and no longer than the
 * approval waits. Every refusal is in the audit.
 * Source: docs/design/policy.md "Answer links"
 */
export class AnswerLinks {
  readonly #options: AnswerLinksOptions;
  readonly #window = slidingWindow(VISITS);

  constructor(options: AnswerLinksOptions) {
    this.#options = options;
  }

  /** Makes the link of an approval. Undefined where links are off, and for an approval that does not wait any more. */
  async make(approvalId: string): Promise<string | undefined> {
    const { store, random, approvals, clock } = this.#options;
    const { answer_links: isOn, public_url: start } = this.#options.config().gateway;
    const approval = isOn && start !== "" ? await approvals.get(approvalId) : undefined;
    if (approval?.status !== "pending") return undefined;
    const over = await ANSWER_LINKS.removeOldest(store, SWEEP, (link) => isOver(link, clock.now()));
    const token = Buffer.from(random.bytes(TOKEN_BYTES)).toString("base64url");
    const { digest, expires_at } = approval;
    const link = { v: 1, id: random.id("lnk_"), approval_id: approvalId, digest, expires_at } as const;
    await store.batch([...over, ANSWER_LINKS.insert(keyOf(token), link)]);
    return `${withoutEnd(start, "/")}/answer/${token}`;
  }

  /** Returns the question of a link. Answers nothing, however often it is opened. @throws {HttpError} 429 `rate_limited` */
  async look(visit: LinkVisit): Promise<LinkQuestion | LinkRefusal> {
    const found = await this.#open(visit);
    if ("refused" in found) return found;
    const { approval, nonce } = found;
    return { approval, nonce, words: wordsOf(approval) };
  }

  /**
   * Answers the question of a link, once.
   * @param nonce the one of its page
   * @returns undefined once the answer counts
   * @throws {HttpError} 429 `rate_limited`
   */
  async answer(
    visit: LinkVisit,
    { nonce, decision }: { readonly nonce: string; readonly decision: "allow" | "deny" },
  ): Promise<LinkRefusal | undefined> {
    const found = await this.#open(visit);
    if ("refused" in found) return found;
    const { link, approval } = found;
    const refuse = (refused: string, status: LinkRefusal["status"]) =>
      this.#refuse(visit, { link, refused: { refused, status } });
    if (!isSame(nonce, found.nonce)) {
      return await refuse("This answer did not come from the page of the question. Open the link again.", 409);
    }
    if (wordsOf(approval) === undefined) {
      return await refuse(NOT_HERE, 409);
    }
    const field = soleSwitch(approval);
    const reply = field === undefined
      ? { decision: decision === "allow" ? "approve" : "deny" } as const
      : { decision: "approve", content: { [field]: decision === "allow" } satisfies FormContent } as const;
    try {
      await this.#options.approvals.answer(approval.id, { ...reply, by: { via: "link", tokenId: link.id } });
      return undefined;
    } catch (error) {
      if (!(error instanceof HttpError) || error.code !== "conflict") throw error;
      // Somebody was faster; or the call waits at another gateway of the cluster
      const again = await this.#options.approvals.get(approval.id);
      const isSettled = again !== undefined && again.status !== "pending";
      return await refuse(
        isSettled ? sayEnd(again, link) : "This question can be answered in the dashboard alone.",
        409,
      );
    }
  }

  async #open(visit: LinkVisit): Promise<{ link: Link; approval: Approval; nonce: string } | LinkRefusal> {
    const { store, clock, approvals, config } = this.#options;
    const { token, address } = visit;
    const link = TOKEN.test(token) ? (await ANSWER_LINKS.read(store, keyOf(token)))?.value : undefined;
    // Others at the address of a proxy, who have no link, lock nobody out who has one
    if (!this.#window.take(link?.id ?? address ?? "unknown", clock.monotonic()).allowed) {
      throw refusal("rate_limited", "Cannot open answer links so often: try again in a minute", {
        headers: { "retry-after": "60" },
      });
    }
    const refuse = (refused: string, status: LinkRefusal["status"], link?: Link) =>
      this.#refuse(visit, { link, refused: { refused, status } });
    if (!config().gateway.answer_links) {
      return await refuse("Answer links are turned off at this gateway. Open the dashboard.", 404);
    }
    if (link === undefined) {
      return await refuse("This link is not known here: it was cut or altered, or its time is long over.", 404);
    }
    const approval = await approvals.get(link.approval_id);
    if (approval === undefined) return await refuse("This question is not kept any more.", 404, link);
    if (approval.status !== "pending") return await refuse(sayEnd(approval, link), 410, link);
    if (isOver(link, clock.now())) return await refuse("The time for this answer is over.", 410, link);
    if (approval.digest !== link.digest) {
      return await refuse(
        "The call has changed since this link was sent. Open the dashboard to see it as it is.",
        409,
        link,
      );
    }
    const nonce = createHmac("sha256", token).update(`answer ${link.id} ${approval.digest}`).digest("base64url");
    return { link, approval, nonce };
  }

  /** Records a refusal. */
  async #refuse(
    { address = null }: { readonly address?: string | null | undefined },
    { link, refused }: { readonly link: Link | undefined; readonly refused: LinkRefusal },
  ): Promise<LinkRefusal> {
    await this.#options.audit({
      ...{ type: "answer_link", action: "refused", link: link?.id ?? null, approval_id: link?.approval_id ?? null },
      ...{ reason: refused.refused, address },
    });
    return refused;
  }
}

function keyOf(token: string): string {
  return hash("sha256", token, "base64url");
}

function isSame(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Returns the words of the two answers; undefined for a question that is too long, or has more to fill in than yes or no. */
function wordsOf(approval: Approval): LinkQuestion["words"] {
  if (JSON.stringify(approval.input ?? null).length > MAX_SHOWN || !isShownWhole(approval)) return undefined;
  if (approval.kind !== "elicitation") return { allow: "Allow once", deny: "Deny" };
  const fields = Object.keys(approval.schema?.properties ?? {}).length;
  if (approval.schema === null || approval.schema === undefined) return undefined;
  if (fields === 0) return { allow: "Confirm", deny: "Decline" };
  return soleSwitch(approval) === undefined ? undefined : { allow: "Yes", deny: "No" };
}

/** Returns the name of the one field of a question that asks for yes or no. */
function soleSwitch({ schema }: Approval): string | undefined {
  const [first, ...others] = Object.entries(schema?.properties ?? {});
  return others.length === 0 && first?.[1].type === "boolean" ? first[0] : undefined;
}

/** Says how an approval has ended, to the person who came too late. */
function sayEnd(approval: Approval, link: Link): string {
  const { status, answered_at: at, answered_by: by } = approval;
  if (status === "expired") return "The time for this answer is over: nobody answered, so the call was denied.";
  if (status === "cancelled") return "This answer is not needed any more: whoever asked has ended.";
  const word = status === "approved" ? "allowed" : "denied";
  const who = by === link.id ? "with this link, which counts once" : `by ${sayAnswerer(approval)} elsewhere`;
  return exactLine(`This was ${word} already, ${who}${at === null ? "" : ` (${at})`}.`);
}

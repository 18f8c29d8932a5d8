import assert from "node:assert/strict";
import { systemClock } from "../../lib/base/clock.ts";
import type { CallInit } from "./gateway_call.ts";
import type { StruckCluster, StruckGateway } from "./struck_cluster.ts";

/** A token that a gateway made. */
interface MadeToken {
  readonly id: string;
  readonly token: string;
  /** Index of the gateway that made it. */
  readonly madeAt: number;
  /** Monotonic time of the answer that it is revoked. Undefined while it counts */
  revokedAt: number | undefined;
  /** True: a revocation was asked for, and nobody knows yet whether it happened. */
  isLeaving: boolean;
}

/** The second after which a revoked token counts nowhere any more. Milliseconds */
const PROMISED_MS = 1_000;
const PAUSE_MS = 50;
/** Milliseconds in which a token is used before it is revoked. */
const USED_MS = 300;
/**
 * Milliseconds in which the token that was revoked last is tried at all gateways. A gateway that meets a token which it does not know looks
 * at once, so no new token and none that was revoked before is used then.
 */
const QUIET_MS = 2_000;
/** Answers of a gateway whose database is down, and of one that stood still while the request came. */
const NOT_NOW: ReadonlySet<number> = new Set([503, 408]);
/** Clients that use tokens: some wait for a gateway that stands still. */
const CLIENTS = 6;

/**
 * Makes, uses and revokes tokens at gateways of which some fail, until `end`. A token that one gateway made counts at all; one that was
 * revoked counts nowhere after the promised second.
 */
export class ClusterTokens {
  readonly #cluster: StruckCluster;
  readonly #kept: MadeToken[] = [];
  readonly #revoked: MadeToken[] = [];
  readonly #working: Promise<void>;
  #isOver = false;
  #failure: unknown = undefined;
  /** Numbers of changes and of requests, for the summary. */
  readonly counts = { made: 0, revoked: 0, accepted: 0, refused: 0 };

  constructor(cluster: StruckCluster) {
    this.#cluster = cluster;
    const clients = [() => this.#change(), ...Array.from({ length: CLIENTS }, () => () => this.#use())];
    this.#working = Promise.all(clients.map((work) => this.#repeat(work))).then(() => {});
    this.#working.catch((error) => void (this.#failure = error));
  }

  /** Throws what was found so far. */
  assertRight(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  stop(): void {
    this.#isOver = true;
  }

  /** Ends the work, and throws what it found. */
  async end(): Promise<void> {
    this.stop();
    await this.#working;
  }

  /** Asserts that all gateways agree, in peace, on who may call. */
  async check(): Promise<void> {
    await this.end();
    await systemClock.sleep(PROMISED_MS);
    // Tokens that count come last: a gateway that does not know them would look
    const kept = this.#kept.filter(({ isLeaving }) => !isLeaving);
    for (const [tokens, status] of [[this.#revoked, 401], [kept, 200]] as const) {
      for (const member of this.#cluster.members) {
        for (const made of tokens) assert.equal(await statusOf(member, made), status, `${made.id} at ${member.index}`);
      }
    }
    assert.ok(this.counts.made > 0 && this.counts.revoked > 0, JSON.stringify(this.counts));
  }

  async #repeat(work: () => Promise<void>): Promise<void> {
    while (!this.#isOver) {
      await work();
      await systemClock.sleep(PAUSE_MS);
    }
  }

  /** Makes a token, lets it be used, revokes the oldest, and lets that be used. */
  async #change(): Promise<void> {
    await this.#make();
    await systemClock.sleep(USED_MS);
    const oldest = this.#kept.length > 1 ? this.#kept[0] : undefined;
    if (oldest === undefined) return;
    while (!this.#isOver && !await this.#revoke(oldest)) await systemClock.sleep(PAUSE_MS);
    await systemClock.sleep(QUIET_MS);
  }

  async #make(): Promise<void> {
    const member = this.#anyMember();
    const reply = await answerOf(member, "/v1/tokens", { body: { scopes: ["runs"] } });
    if (reply === undefined) return;
    assert.equal(reply.status, 201, reply.text);
    const { id, token } = JSON.parse(reply.text) as { readonly id: string; readonly token: string };
    this.#kept.push({ id, token, madeAt: member.index, revokedAt: undefined, isLeaving: false });
    this.counts.made++;
  }

  /** @returns false when nobody can say that the token is revoked */
  async #revoke(made: MadeToken): Promise<boolean> {
    const member = this.#anyMember();
    // Only where the answer to an earlier revocation was lost may the token be gone
    const expected = made.isLeaving ? [200, 404] : [200];
    made.isLeaving = true;
    const reply = await answerOf(member, `/v1/tokens/${made.id}`, { method: "DELETE" });
    if (reply === undefined) return false;
    const what = `revoking ${made.id} of gateway ${made.madeAt} at gateway ${member.index}`;
    assert.ok(expected.includes(reply.status), `${what}: ${reply.status} ${reply.text}`);
    made.revokedAt = systemClock.monotonic();
    this.#kept.splice(this.#kept.indexOf(made), 1);
    this.#revoked.push(made);
    this.counts.revoked++;
    return true;
  }

  /** Uses a token at any gateway. */
  async #use(): Promise<void> {
    const made = this.#cluster.any([...this.#kept, ...this.#revoked.slice(-1)]);
    if (made === undefined) return;
    const member = this.#anyMember();
    const before = systemClock.monotonic();
    const status = await statusOf(member, made);
    if (status === undefined) return;
    const what = `${made.id} of gateway ${made.madeAt} at gateway ${member.index}`;
    if (made.revokedAt === undefined && !made.isLeaving) assert.equal(status, 200, `${what} counts`);
    if (made.revokedAt !== undefined && before >= made.revokedAt + PROMISED_MS) {
      assert.equal(status, 401, `${what} was revoked ${before - made.revokedAt} ms before`);
      this.counts.refused++;
    }
    if (status === 200) this.counts.accepted++;
  }

  #anyMember(): StruckGateway {
    return this.#cluster.any(this.#cluster.members) ?? assert.fail("There is no gateway");
  }
}

async function statusOf(member: StruckGateway, { token }: MadeToken): Promise<number | undefined> {
  const headers = { authorization: `Bearer ${token}` };
  return (await answerOf(member, "/v1/runs?limit=1", { headers }))?.status;
}

/** @returns undefined where the gateway is gone, or cannot say now */
async function answerOf(
  member: StruckGateway,
  path: string,
  init: CallInit,
): Promise<{ readonly status: number; readonly text: string } | undefined> {
  try {
    const reply = await member.gateway.call(path, init);
    const text = await reply.text();
    return NOT_NOW.has(reply.status) ? undefined : { status: reply.status, text };
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

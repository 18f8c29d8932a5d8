import { type Clock, withTimeout } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import { Poller } from "../base/poller.ts";
import { type ClusterNews, POLL_MS } from "./cluster_news.ts";
import type { JoinedGateway } from "./leases.ts";
import { type OtherGateway, WorkspaceMembers, type WorkspaceMembersOptions } from "./workspace_members.ts";
import { proofContent } from "./workspace_proof.ts";
import { type FoundWorkspace, WorkspaceRecord, type WorkspaceRecordOptions } from "./workspace_record.ts";

/** Options of `WorkspaceMembership`. */
export interface WorkspaceMembershipOptions extends WorkspaceRecordOptions, Omit<WorkspaceMembersOptions, "workspace"> {
  readonly news: ClusterNews;
  readonly clock: Clock;
}

/** Time that gateways give each other to see their files, since a network file system may be slow. Milliseconds */
const PROOF_WAIT_MS = 10_000;
/** Time that a start waits for gateways that say nothing: their leases may be about to run out. Milliseconds */
const SILENCE_MS = 6_000;
/** Pause before a gateway that was refused writes another file. Milliseconds */
const AGAIN_MS = 60_000;

/**
 * Membership of this gateway in its workspace.
 *
 * Each gateway writes a random file into the workspace, and the file's digest into a record (workspace_members.ts). A gateway that comes in reads
 * the files of all members, and each member reads the file of that gateway: a folder that is another one, or a copy, shows in one of the two.
 * The folder must also be that of the gateways before (workspace_record.ts). Until then, and without an answer, the gateway claims no run that
 * needs the workspace. Gateways are let in one after the other, since each changes the record of the workspace.
 */
export class WorkspaceMembership {
  readonly id: string;
  readonly #options: WorkspaceMembershipOptions;
  readonly #members: WorkspaceMembers;
  readonly #record: WorkspaceRecord;
  /** Content of this gateway's file. */
  #content = "";
  /** Times at which files were looked for first, by gateway and digest. */
  readonly #soughtAt = new Map<string, number>();
  /** Time of the first mismatch, and what it was. */
  #mismatch: { readonly since: number; readonly reason: string } | undefined = undefined;
  #isRefused = false;
  /** Reason why the gateway is not let in yet, as the end of a sentence. */
  #waitsFor = "it has not looked for the other gateways of the workspace yet";
  /** True: the last look found other gateways of the workspace. */
  #isShared = false;
  readonly #poller: Poller;
  readonly #settled = Promise.withResolvers<void>();

  constructor(options: WorkspaceMembershipOptions) {
    this.#options = options;
    this.id = options.workspace.id;
    this.#members = new WorkspaceMembers({ ...options, workspace: this.id });
    this.#record = new WorkspaceRecord(options);
    this.#poller = new Poller(() => this.#look(), (error) => {
      options.log.error("The other gateways of the workspace cannot be looked for", { error });
    });
  }

  /** Returns the workspace whose runs this gateway may claim. Null while it has not proven that it has it */
  proven(): string | null {
    const { is_member, fence } = this.#members.own();
    return is_member && this.#options.lease.hasFence(fence) ? this.id : null;
  }

  /** Returns why the workspace is not that of the other gateways. Undefined while nothing says so */
  refusal(): string | undefined {
    return this.#isRefused ? this.#mismatch?.reason : undefined;
  }

  /** Returns why the gateway claims no run that needs the workspace. Undefined when it does, and while it has no lease */
  whyUnproven(): string | undefined {
    if (this.proven() !== null || this.#options.lease.own() === undefined) return undefined;
    return this.refusal() ?? this.#waitsFor;
  }

  /**
   * Comes in, and lets others in until `stop`. Waits for the answers of the other gateways, for a short time when there is none.
   * @throws {ConfigError} `workspace_mismatch` when another gateway has another folder, or had one before
   */
  async start(): Promise<void> {
    const { clock } = this.#options;
    this.#poller.start(clock, POLL_MS);
    await this.#poller.look();
    for (const ms of [SILENCE_MS, PROOF_WAIT_MS]) {
      if (this.proven() !== null || (ms !== SILENCE_MS && this.#mismatch === undefined)) break;
      await withTimeout(this.#settled.promise, { ms, clock });
    }
    const refusal = this.refusal();
    if (refusal !== undefined) throw new ConfigError("workspace_mismatch", `Cannot start: ${refusal}`);
  }

  /** Takes the file and the record away. Call it before the lease is given back. Never throws. */
  async stop(): Promise<void> {
    await this.#poller.stop();
    const { workspace, gateway } = this.#options;
    await workspace.files.remove(gateway);
    await this.#members.remove();
  }

  /** Looks for other gateways, now or after the look that is at work. */
  look(): void {
    void this.#poller.look();
  }

  /** Tells whether other gateways have this workspace, let in or not: changes of its files then need locks. */
  isShared(): boolean {
    return this.#isShared;
  }

  /** Tells whether a gateway is there that has proven that it has a workspace, and takes work: one that is drained claims nothing. */
  async isThere(workspace: string): Promise<boolean> {
    const { lease, leases } = this.#options;
    if (workspace === this.proven() && !lease.isDrained()) return true;
    const members = (await this.#members.counting(workspace)).counting.filter(({ is_member }) => is_member);
    if (members.length === 0) return false;
    const drained = new Set((await leases.list()).flatMap(({ id, drain }) => drain === undefined ? [] : [id]));
    return members.some(({ gateway }) => !drained.has(gateway));
  }

  async #look(): Promise<void> {
    try {
      await this.#lookOnce();
    } catch (error) {
      this.#waitsFor = "the database does not tell which other gateways have the workspace";
      throw error;
    }
  }

  async #lookOnce(): Promise<void> {
    const { lease, workspace, gateway } = this.#options;
    const own = lease.own();
    if (own === undefined) return;
    const isTimeForAnother = this.#isRefused && this.#now() - (this.#mismatch?.since ?? 0) > AGAIN_MS;
    if (own.fence !== this.#members.own().fence || isTimeForAnother) await this.#enter(own);
    else await this.#members.writeAgain(own);
    const found = this.#members.own().is_member ? undefined : await this.#record.find();
    const { others, isWhole } = await this.#members.others();
    this.#isShared = others.length > 0 || !isWhole;
    // A record that cannot be read may be that of a gateway with another folder
    if (!isWhole && found !== undefined) {
      this.#waitsFor =
        "the record of another gateway of the workspace cannot be read: it waits until its gateway has written it again";
      return await this.#members.write(own);
    }
    if (found !== undefined) await this.#prove(own, { others, found });
    if (!this.#members.own().is_member) return;
    await this.#record.keep(own, others);
    await this.#answer(own, others);
    await workspace.files.tidy(gateway, new Set(others.map((other) => other.gateway)));
  }

  /** Writes a new file, and says so. */
  async #enter(own: JoinedGateway): Promise<void> {
    const { gateway, random, news } = this.#options;
    this.#soughtAt.clear();
    this.#content = proofContent(random);
    const digest = await this.#write(gateway, this.#content);
    if (this.#isRefused) this.#mismatch = { since: this.#now(), reason: this.#mismatch?.reason ?? "" };
    else this.#mismatch = undefined;
    await this.#members.write(own, { fence: own.fence, digest, is_member: false, seen: {} });
    news.tell("workspace", this.id);
  }

  /** Writes the file. In a folder that nobody can write, no gateway can join another, and one alone needs no file. */
  async #write(gateway: string, content: string): Promise<string> {
    const { workspace, log } = this.#options;
    try {
      return await workspace.files.write(gateway, content);
    } catch (error) {
      log.warn("The workspace cannot be written: no other gateway can share it", { error });
      return "";
    }
  }

  /** Becomes a member once all members have seen this gateway's file, and this gateway theirs. */
  async #prove(own: JoinedGateway, { others, found }: {
    readonly others: readonly OtherGateway[];
    readonly found: FoundWorkspace;
  }): Promise<void> {
    const { workspace, news, log } = this.#options;
    const { digest } = this.#members.own();
    const members = others.filter(({ is_member }) => is_member);
    let isAnswered = true;
    for (const { gateway, host, seen, ...other } of members) {
      if (await workspace.files.read(gateway) !== other.digest || other.digest === "") {
        return this.#note(this.#otherThanOthers(`its folder lacks the file of the gateway ${gateway} on ${host}`));
      }
      if (seen[own.id] === `!${digest}` || digest === "") {
        // The other gateway has waited for the file already
        return this.#note(this.#otherThanOthers(`the gateway ${gateway} on ${host} does not find its file there`), 0);
      }
      if (seen[own.id] === digest) continue;
      isAnswered = false;
      this.#waitsFor =
        `the gateway ${gateway} on ${host} has not said yet that it finds this gateway's file in the workspace`;
    }
    const mismatch = await this.#record.mismatch(found, { hasMembers: members.length > 0 });
    if (mismatch !== undefined) return this.#note(mismatch.reason, mismatch.waitMs);
    if (!this.#isRefused) this.#mismatch = undefined;
    if (!isAnswered) return;
    // Another gateway was let in meanwhile when the version is another: its file has to be read first
    if (!await this.#members.letIn(own, await this.#record.letInWrite(found))) return this.look();
    if (this.#isRefused) log.info("The workspace is that of the other gateways", { workspace: this.id });
    this.#isRefused = false;
    this.#mismatch = undefined;
    this.#settled.resolve();
    news.tell("workspace", this.id);
    news.tell("queue", this.id);
  }

  /** Looks for the files of gateways that want to come in, and says which of them this gateway has seen. */
  async #answer(own: JoinedGateway, others: readonly OtherGateway[]): Promise<void> {
    const { workspace, gateway, news } = this.#options;
    const { digest: ownDigest, seen: before } = this.#members.own();
    const seen: Record<string, string> = {};
    for (const { gateway: other, is_member, digest } of others) {
      if (is_member) continue;
      const known = before[other];
      if (known === digest || known === `!${digest}`) {
        seen[other] = known;
        continue;
      }
      if (digest !== "" && await workspace.files.read(other) === digest) {
        seen[other] = digest;
        continue;
      }
      const soughtAt = this.#soughtAt.get(`${other} ${digest}`) ?? this.#now();
      this.#soughtAt.set(`${other} ${digest}`, soughtAt);
      if (this.#now() - soughtAt >= PROOF_WAIT_MS / 2) seen[other] = `!${digest}`;
    }
    if (others.length === 0) this.#soughtAt.clear();
    if (JSON.stringify(seen) === JSON.stringify(before)) return;
    // Whoever comes in has to read this gateway's file: somebody may have removed it
    if (await workspace.files.read(gateway) !== ownDigest) await this.#write(gateway, this.#content);
    await this.#members.write(own, { seen });
    news.tell("workspace", this.id);
  }

  /** Notes a mismatch, and refuses when it has lasted. */
  #note(message: string, waitMs = PROOF_WAIT_MS): void {
    this.#mismatch = { since: this.#mismatch?.since ?? this.#now(), reason: message };
    this.#waitsFor = `it looks as if ${message}`;
    if (this.#isRefused || this.#now() - this.#mismatch.since < waitMs) return;
    this.#isRefused = true;
    this.#options.log.error("This gateway claims no run that needs its workspace", { reason: message });
    this.#settled.resolve();
  }

  #otherThanOthers(reason: string): string {
    return `the workspace of this gateway is not the one that others have as "${this.id}": ${reason}; give it the same folder, or ` +
      "another [cluster] workspace_id";
  }

  #now(): number {
    return this.#options.clock.monotonic();
  }
}

import { readFile, readlink } from "node:fs/promises";
import process from "node:process";
import type { Clock, Timer } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { readable } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { type ClusterNews, POLL_MS } from "./cluster_news.ts";
import {
  type MemberBody,
  parseMember,
  parseWorkspace,
  toPlace,
  WORKSPACE_MEMBERS,
  type WorkspaceBody,
  WORKSPACES,
} from "./cluster_records.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";
import { isOwnWorkspace } from "./workspace_id.ts";
import { newFolderId, proofContent, type ProofFiles } from "./workspace_proof.ts";

/** Workspace of a gateway, and the files that prove it. */
export interface OwnWorkspace {
  /** Id of the workspace, see workspace_id.ts. */
  readonly id: string;
  readonly files: ProofFiles;
  /** Real path of the workspace, for people. */
  readonly folder: string;
  /** Data directory of the gateway, for people. */
  readonly dataDir: string;
}

/** Options of `WorkspaceMembership`. */
export interface WorkspaceMembershipOptions {
  readonly workspace: OwnWorkspace;
  readonly store: Store;
  readonly leases: Leases;
  readonly lease: GatewayLease;
  readonly news: ClusterNews;
  /** Id of this gateway. */
  readonly gateway: string;
  readonly host: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/** Another gateway of the workspace whose fence counts. */
interface OtherGateway extends MemberBody {
  readonly gateway: string;
}

/** Time that gateways give each other to see their files, since a network file system may be slow. Milliseconds */
const PROOF_WAIT_MS = 10_000;
/** Time that a start waits for gateways that say nothing: their leases may be about to run out. Milliseconds */
const SILENCE_MS = 6_000;
/** Pause before a gateway that was refused writes another file. Milliseconds */
const AGAIN_MS = 60_000;
/** Most gateways of one workspace. */
const MAX_MEMBERS = 1_000;

/** Record of the workspace as it was found. */
interface FoundWorkspace {
  /** 0: there is none */
  readonly version: number;
  /** Undefined: there is none, or it cannot be read */
  readonly body: WorkspaceBody | undefined;
}

/**
 * This gateway as a member of its workspace.
 *
 * Each gateway writes a random file into the workspace, and its digest into a record. One that comes in reads the files of all members, and
 * each member reads its file: a folder that is another one, or a copy, shows in one of the two. Until then, and without an answer, the
 * gateway claims no run that needs the workspace. One is let in after the other, since each changes the record of the workspace.
 *
 * No file of a gateway tells anything once all of them are dead. The folder of a workspace with a configured id therefore keeps an id of its own,
 * whose digest stands in the record of the workspace: whoever comes in has that folder.
 */
export class WorkspaceMembership {
  readonly id: string;
  readonly #options: WorkspaceMembershipOptions;
  #own: { readonly fence: number; readonly digest: string; readonly content: string } | undefined = undefined;
  #isMember = false;
  #seen: Readonly<Record<string, string>> = {};
  /** Times at which files were looked for first, by gateway. */
  readonly #soughtAt = new Map<string, number>();
  /** Id that the folder had when this gateway was let in. Undefined: the folder has none, as in a workspace without a configured id */
  #folderId: string | undefined = undefined;
  /** Other gateways of the workspace at the last look, and whether they were let in. */
  #known = "";
  /** Time of the first mismatch, and what it was. */
  #mismatch: { readonly since: number; readonly reason: string } | undefined = undefined;
  #isRefused = false;
  /** Reason why the gateway is not let in yet, as the end of a sentence. */
  #waitsFor = "it has not looked for the other gateways of the workspace yet";
  /** True: the last look found other gateways of the workspace. */
  #isShared = false;
  #poll: Timer | undefined = undefined;
  #looking: Promise<void> | undefined = undefined;
  #isDue = false;
  #isStopped = false;
  #isAway = false;
  readonly #settled = Promise.withResolvers<void>();
  readonly #machine = machineName();

  constructor(options: WorkspaceMembershipOptions) {
    this.#options = options;
    this.id = options.workspace.id;
  }

  /** Returns the workspace whose runs this gateway may claim. Null while it has not proven that it has it */
  proven(): string | null {
    const fence = this.#options.lease.own()?.fence;
    return this.#isMember && fence !== undefined && fence === this.#own?.fence ? this.id : null;
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
    this.#poll = clock.every(POLL_MS, () => this.look());
    this.look();
    await this.#looking;
    const waiting = new AbortController();
    for (const ms of [SILENCE_MS, PROOF_WAIT_MS]) {
      if (this.proven() !== null || (ms !== SILENCE_MS && this.#mismatch === undefined)) break;
      await Promise.race([this.#settled.promise, clock.sleep(ms, waiting.signal).catch(() => {})]);
    }
    waiting.abort();
    const refusal = this.refusal();
    if (refusal !== undefined) throw new ConfigError("workspace_mismatch", `Cannot start: ${refusal}`);
  }

  /** Takes the file and the record away. Call it before the lease is given back. Never throws. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#poll?.clear();
    await this.#looking;
    const { workspace, gateway, store, lease } = this.#options;
    await workspace.files.remove(gateway);
    const own = lease.own();
    if (own === undefined) return;
    await store.batch([fenceCheck(own), { op: "delete", collection: WORKSPACE_MEMBERS, key: this.#keyOf(gateway) }])
      .catch(() => {});
  }

  /** Looks for other gateways, now or after the look that is at work. */
  look(): void {
    this.#isDue = true;
    if (!this.#isStopped) this.#looking ??= this.#look().finally(() => this.#looking = undefined);
  }

  /** Tells whether other gateways have this workspace, let in or not: changes of its files then need locks. */
  isShared(): boolean {
    return this.#isShared;
  }

  /** Tells whether a gateway is there that has proven that it has a workspace, and takes work: one that is drained claims nothing. */
  async isThere(workspace: string): Promise<boolean> {
    const { lease, leases } = this.#options;
    if (workspace === this.proven() && !lease.isDrained()) return true;
    const members = (await this.#counting(workspace)).counting.filter(({ is_member }) => is_member);
    if (members.length === 0) return false;
    const drained = new Set((await leases.list()).flatMap(({ id, drain }) => drain === undefined ? [] : [id]));
    return members.some(({ gateway }) => !drained.has(gateway));
  }

  async #look(): Promise<void> {
    const { log } = this.#options;
    while (this.#isDue && !this.#isStopped) {
      this.#isDue = false;
      try {
        await this.#lookOnce();
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.error("The other gateways of the workspace cannot be looked for", { error });
        this.#isAway = true;
        this.#waitsFor = "the database does not tell which other gateways have the workspace";
      }
    }
  }

  async #lookOnce(): Promise<void> {
    const { lease, workspace, gateway } = this.#options;
    const own = lease.own();
    if (own === undefined) return;
    if (own.fence !== this.#own?.fence || this.#isTimeForAnother()) await this.#enter(own);
    const found = this.#isMember ? undefined : await this.#find();
    const { others, isWhole } = await this.#others();
    this.#isShared = others.length > 0 || !isWhole;
    // A record that cannot be read may be that of a gateway with another folder
    if (!isWhole && !this.#isMember) {
      this.#waitsFor =
        "the record of another gateway of the workspace cannot be read: it waits until its gateway has written it again";
      return this.#put(own).then(() => {});
    }
    if (found !== undefined) await this.#prove(own, { others, found });
    if (!this.#isMember) return;
    await this.#keep(own, others);
    await this.#answer(own, others);
    await workspace.files.tidy(gateway, new Set(others.map((other) => other.gateway)));
  }

  /** Writes a new file, and says so. */
  async #enter(own: JoinedGateway): Promise<void> {
    const { workspace, gateway, random, news } = this.#options;
    this.#isMember = false;
    this.#seen = {};
    this.#soughtAt.clear();
    const content = proofContent(random);
    this.#own = { fence: own.fence, content, digest: await this.#write(gateway, content) };
    if (this.#isRefused) this.#mismatch = { since: this.#now(), reason: this.#mismatch?.reason ?? "" };
    else this.#mismatch = undefined;
    await this.#put(own);
    news.tell("workspace", workspace.id);
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
    const digest = this.#own?.digest ?? "";
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
    const other = await this.#otherThanBefore(found, { hasMembers: members.length > 0 });
    if (other !== undefined) return this.#note(other.reason, other.waitMs);
    if (!this.#isRefused) this.#mismatch = undefined;
    if (!isAnswered) return;
    if (found.body?.folder_digest === undefined) this.#folderId = await this.#nameFolder();
    // Another gateway was let in meanwhile when the version is another: its file has to be read first
    if (!await this.#put(own, { isMember: true, more: [this.#letIn(found)] })) return this.look();
    if (this.#isRefused) log.info("The workspace is that of the other gateways", { workspace: this.id });
    this.#isMember = true;
    this.#isRefused = false;
    this.#mismatch = undefined;
    this.#settled.resolve();
    news.tell("workspace", this.id);
    news.tell("queue", this.id);
  }

  /** Returns how this folder differs from the one that gateways of the workspace worked in before. Undefined: nothing says that it does */
  async #otherThanBefore(
    { version, body }: FoundWorkspace,
    { hasMembers }: { readonly hasMembers: boolean },
  ): Promise<{ readonly reason: string; readonly waitMs?: number } | undefined> {
    if (isOwnWorkspace(this.id)) return undefined;
    const { files, folder } = this.#options.workspace;
    const allow = `if "${this.id}" is to be this folder from now on: postern cluster forget-folder ${this.id}`;
    if (body === undefined) {
      // Gateways that are there tell more than the record
      if (version === 0 || hasMembers) return undefined;
      const reason =
        `the record of the workspace "${this.id}" cannot be read, so nobody knows in which folder its gateways worked`;
      return { reason: `${reason}; ${allow}` };
    }
    const known = body.folder_digest;
    if (known === undefined) return undefined;
    if (this.#folderId !== undefined && canonicalDigest(this.#folderId) === known) {
      await files.keepFolderId(this.#folderId);
    }
    const id = await files.folderId();
    if (id !== undefined && canonicalDigest(id) === known) {
      this.#folderId = id;
      return undefined;
    }
    const { last_gateway: last } = body;
    const before = last === undefined ? "" : `, in ${last.folder} on ${last.host}`;
    const found = id === undefined ? "it has no id" : "it has another id";
    const reason =
      `the folder of this gateway, ${folder}, is not the one in which gateways worked as "${this.id}" before${before} (${found})`;
    // A network file system may show a file late, and never one with another content
    const wayOut = "give it that folder, or another [cluster] workspace_id";
    return { reason: `${reason}; ${wayOut}; ${allow}`, ...id === undefined ? {} : { waitMs: 0 } };
  }

  /** Returns the id of the folder, which it gets where it has none. Undefined: it can have none */
  async #nameFolder(): Promise<string | undefined> {
    if (isOwnWorkspace(this.id)) return undefined;
    const { workspace, random, log } = this.#options;
    try {
      return await workspace.files.nameFolder(newFolderId(random));
    } catch (error) {
      log.warn("The workspace cannot be written: nothing tells it from another folder once no gateway has it", {
        error,
      });
      return undefined;
    }
  }

  /** Returns the write of the workspace's record by which this gateway is let in. */
  #letIn({ version, body }: FoundWorkspace): Write {
    const { host, workspace } = this.#options;
    const place = {
      collection: WORKSPACES,
      key: this.id,
      body: {
        ...body,
        v: 1,
        ...this.#folderId === undefined ? {} : { folder_digest: canonicalDigest(this.#folderId) },
        last_gateway: toPlace({ host, folder: workspace.folder, data_dir: workspace.dataDir }),
      } satisfies WorkspaceBody,
    };
    return version === 0 ? { op: "insert", ...place } : { op: "putIf", ...place, version };
  }

  /**
   * Keeps what says which folder the workspace is. A command in the workspace may remove the file. A gateway of an earlier version that is let in
   * writes the record without what it does not know.
   */
  async #keep(own: JoinedGateway, others: readonly OtherGateway[]): Promise<void> {
    const { workspace, store } = this.#options;
    if (this.#folderId !== undefined) await workspace.files.keepFolderId(this.#folderId);
    const known = others.map(({ gateway, is_member }) => `${gateway} ${is_member}`).join();
    if (known === this.#known) return;
    const found = await this.#find();
    const isWhole = found.body?.last_gateway !== undefined &&
      (this.#folderId === undefined || found.body.folder_digest !== undefined);
    if (isWhole || await store.batch([fenceCheck(own), this.#letIn(found)])) this.#known = known;
  }

  async #find(): Promise<FoundWorkspace> {
    const { store } = this.#options;
    const stored = await store.get(WORKSPACES, this.id);
    const [found] = readable(store, WORKSPACES, stored === undefined ? [] : [stored], parseWorkspace);
    return { version: stored?.version ?? 0, body: found?.value };
  }

  /** Looks for the files of gateways that want to come in, and says what it has seen. */
  async #answer(own: JoinedGateway, others: readonly OtherGateway[]): Promise<void> {
    const { workspace, gateway, news } = this.#options;
    const seen: Record<string, string> = {};
    for (const { gateway: other, is_member, digest } of others) {
      if (is_member) continue;
      const known = this.#seen[other];
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
    const isSame = JSON.stringify(seen) === JSON.stringify(this.#seen);
    if (isSame) return;
    // Whoever comes in has to read this gateway's file: somebody may have removed it
    if (this.#own !== undefined && await workspace.files.read(gateway) !== this.#own.digest) {
      await this.#write(gateway, this.#own.content);
    }
    this.#seen = seen;
    await this.#put(own);
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

  #isTimeForAnother(): boolean {
    return this.#isRefused && this.#now() - (this.#mismatch?.since ?? 0) > AGAIN_MS;
  }

  async #others(): Promise<{ readonly others: readonly OtherGateway[]; readonly isWhole: boolean }> {
    const machine = await this.#machine;
    const { counting, isWhole } = await this.#counting(this.id);
    const others = counting.filter(({ gateway, process: at }) =>
      gateway !== this.#options.gateway && !(at !== null && at.machine === machine && isGone(at.pid))
    );
    return { others, isWhole };
  }

  /** Returns the gateways of a workspace whose fences count, and removes the records of those that are gone. */
  async #counting(
    workspace: string,
  ): Promise<{ readonly counting: readonly OtherGateway[]; readonly isWhole: boolean }> {
    const { store, leases } = this.#options;
    const page = await store.scan(WORKSPACE_MEMBERS, { prefix: `${workspace}/`, limit: MAX_MEMBERS });
    const found = readable(store, WORKSPACE_MEMBERS, page, parseMember).map(({ key, version, value }) => (
      { ...value, key, version, gateway: key.slice(workspace.length + 1) }
    ));
    const fences = await leases.fences(found.map(({ gateway }) => gateway));
    const gone = found.filter(({ gateway, fence }) => !isOwned({ gateway, fence }, fences));
    for (const { key, version } of gone) {
      await store.batch([
        { op: "check", collection: WORKSPACE_MEMBERS, key, version },
        { op: "delete", collection: WORKSPACE_MEMBERS, key },
      ]);
    }
    const counting = found.filter((one) => !gone.includes(one));
    // The record of a member that was lost or damaged is written again: without it nobody else comes in
    const own = this.#options.lease.own();
    const isLost = workspace === this.id && !counting.some(({ gateway }) => gateway === this.#options.gateway);
    if (isLost && this.#isMember && own !== undefined && own.fence === this.#own?.fence) await this.#put(own);
    return { counting, isWhole: found.length === page.length };
  }

  async #put(
    own: JoinedGateway,
    { isMember = this.#isMember, more = [] }: { readonly isMember?: boolean; readonly more?: readonly Write[] } = {},
  ): Promise<boolean> {
    const { store, gateway, host } = this.#options;
    const machine = await this.#machine;
    const body: MemberBody = {
      v: 1,
      fence: own.fence,
      digest: this.#own?.digest ?? "",
      is_member: isMember,
      seen: { ...this.#seen },
      host,
      process: machine === undefined ? null : { machine, pid: process.pid },
    };
    return await store.batch([
      fenceCheck(own),
      { op: "put", collection: WORKSPACE_MEMBERS, key: this.#keyOf(gateway), body },
      ...more,
    ]);
  }

  #keyOf(gateway: string): string {
    return `${this.id}/${gateway}`;
  }

  #now(): number {
    return this.#options.clock.monotonic();
  }
}

/** Returns a name of this start of this machine, in whose numbers of processes one is known. Undefined where the system has none */
async function machineName(): Promise<string | undefined> {
  try {
    const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
    return `${boot.trim()} ${await readlink("/proc/self/ns/pid")}`;
  } catch {
    return undefined;
  }
}

/** Tells whether no process of this machine has a number: a gateway that was killed cannot answer any more. */
function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "ESRCH";
  }
}

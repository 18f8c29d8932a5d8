import { readFile, readlink } from "node:fs/promises";
import process from "node:process";
import { systemCodeOf } from "../base/errors.ts";
import type { Store, Write } from "../storage/store.ts";
import { type MemberBody, WORKSPACE_MEMBERS } from "./cluster_records.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";

/** Options of `WorkspaceMembers`. */
export interface WorkspaceMembersOptions {
  /** Id of this gateway's workspace. */
  readonly workspace: string;
  readonly store: Store;
  readonly leases: Leases;
  readonly lease: GatewayLease;
  /** Id of this gateway. */
  readonly gateway: string;
  readonly host: string;
}

/** Another gateway of the workspace whose fence counts. */
export interface OtherGateway extends MemberBody {
  readonly gateway: string;
}

/** Part of this gateway's record that changes. */
export type OwnMember = Readonly<Pick<MemberBody, "fence" | "digest" | "is_member" | "seen">>;

/** Most gateways of one workspace. */
const MAX_MEMBERS = 1_000;

/**
 * Records of the gateways that have a workspace or want to come into it.
 *
 * A record counts while its gateway has the fence that the record names. Each gateway writes its own record, and removes the records of
 * others that count no more.
 */
export class WorkspaceMembers {
  readonly #options: WorkspaceMembersOptions;
  readonly #machine = machineName();
  #own: OwnMember = { fence: 0, digest: "", is_member: false, seen: {} };
  /** False: the last write of the record failed, and others may not know of a change. */
  #isWritten = true;

  constructor(options: WorkspaceMembersOptions) {
    this.#options = options;
  }

  /** Returns the record of this gateway. Its fence is 0 before the first write. */
  own(): OwnMember {
    return this.#own;
  }

  /** Returns the other gateways of this gateway's workspace, see `counting`. A gateway whose process is gone from this machine is left out. */
  async others(): Promise<{ readonly others: readonly OtherGateway[]; readonly isWhole: boolean }> {
    const machine = await this.#machine;
    const { counting, isWhole } = await this.counting(this.#options.workspace);
    const others = counting.filter(({ gateway, process: at }) =>
      gateway !== this.#options.gateway && !(at !== null && at.machine === machine && isGone(at.pid))
    );
    return { others, isWhole };
  }

  /**
   * Returns the gateways of a workspace whose fences count, and removes the records of those that are gone.
   * @returns `isWhole` is false when a record cannot be read: its gateway may count too
   */
  async counting(
    workspace: string,
  ): Promise<{ readonly counting: readonly OtherGateway[]; readonly isWhole: boolean }> {
    const { store, leases, lease, gateway: ownId } = this.#options;
    const page = await store.scan(WORKSPACE_MEMBERS.name, { prefix: `${workspace}/`, limit: MAX_MEMBERS });
    const found = WORKSPACE_MEMBERS.readable(store, page).map(({ key, version, value }) => (
      { ...value, key, version, gateway: key.slice(workspace.length + 1) }
    ));
    const fences = await leases.fences(found.map(({ gateway }) => gateway));
    const gone = found.filter(({ gateway, fence }) => !isOwned({ gateway, fence }, fences));
    for (const { key, version } of gone) {
      await store.batch([WORKSPACE_MEMBERS.check(key, version), WORKSPACE_MEMBERS.remove(key)]);
    }
    const counting = found.filter((one) => !gone.includes(one));
    // The record of a member that was lost or damaged is written again: without it nobody else comes in
    const own = lease.own();
    const isLost = workspace === this.#options.workspace && !counting.some(({ gateway }) => gateway === ownId);
    if (isLost && this.#own.is_member && own?.fence === this.#own.fence) await this.write(own);
    return { counting, isWhole: found.length === page.length };
  }

  /** Changes the record of this gateway and writes it. A change whose write fails is kept for `writeAgain`. */
  async write(own: JoinedGateway, change: Partial<OwnMember> = {}): Promise<void> {
    this.#own = { ...this.#own, ...change };
    this.#isWritten = false;
    await this.#put(own, this.#own);
    this.#isWritten = true;
  }

  /** Writes the record of this gateway when the last write of it failed: without it others wait for an answer for ever. */
  async writeAgain(own: JoinedGateway): Promise<void> {
    if (!this.#isWritten && this.#own.fence === own.fence) await this.write(own);
  }

  /** Makes this gateway a member, in one batch with another write. @returns false when a precondition does not hold */
  async letIn(own: JoinedGateway, more: Write): Promise<boolean> {
    const isLetIn = await this.#put(own, { ...this.#own, is_member: true }, [more]);
    if (isLetIn) this.#own = { ...this.#own, is_member: true };
    return isLetIn;
  }

  /** Removes the record of this gateway. Never throws. */
  async remove(): Promise<void> {
    const own = this.#options.lease.own();
    if (own === undefined) return;
    await this.#options.store.batch([fenceCheck(own), WORKSPACE_MEMBERS.remove(this.#key())]).catch(() => {});
  }

  async #put(own: JoinedGateway, record: OwnMember, more: readonly Write[] = []): Promise<boolean> {
    const { store, host } = this.#options;
    const machine = await this.#machine;
    const at = machine === undefined ? null : { machine, pid: process.pid };
    const body: MemberBody = { v: 1, ...record, host, process: at };
    return await store.batch([fenceCheck(own), WORKSPACE_MEMBERS.put(this.#key(), body), ...more]);
  }

  #key(): string {
    return `${this.#options.workspace}/${this.#options.gateway}`;
  }
}

/** Returns a name of this start of this machine, within which the number of a process names one process. Undefined where the system has none */
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
    return systemCodeOf(error) === "ESRCH";
  }
}

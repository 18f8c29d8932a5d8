import type { SharedWindows } from "./access/shared_windows.ts";
import type { AccessCluster } from "./access/access_services.ts";
import type { AutomationCluster } from "./automation/automation_services.ts";
import type { Clock } from "./base/clock.ts";
import type { OpenedList } from "./base/opened_list.ts";
import type { Logger } from "./base/telemetry/log.ts";
import type { ClusterDuties } from "./cluster/cluster_duties.ts";
import type { DrainRequest } from "./cluster/cluster_records.ts";
import type { GatewayLease } from "./cluster/gateway_lease.ts";
import type { GatewayLinks } from "./cluster/gateway_links.ts";
import type { Cluster } from "./cluster/join_cluster.ts";
import type { GatewayView } from "./cluster/leases.ts";
import type { RunOwnership } from "./cluster/run_ownership.ts";
import type { NodesCluster } from "./extensions/open_extensions.ts";
import type { GuardCluster } from "./guard/guard_services.ts";
import type { TaintWorkspace } from "./guard/tainted_files.ts";
import { type ClusterMember, MEMBER_ALONE } from "./runs/supervisor/run_coordination.ts";
import type { Store } from "./storage/store.ts";
import type { FileLocks } from "./system/files/files.ts";
import type { SharedCalls } from "./tools/runtime/shared_calls.ts";

/**
 * A gateway among those of its database. A gateway alone is a cluster of one: what it asks here is answered at once, and costs no write, no
 * timer and no module of `lib/cluster`. A part that nobody needs where there are no others is undefined.
 */
export interface Coordination extends ClusterMember, AccessCluster, GuardCluster, AutomationCluster, NodesCluster {
  /** Id of this gateway, new at each start. Undefined: there are no others that it could be told from */
  readonly id: string | undefined;
  /** Clock that all gateways share. */
  readonly clock: Clock;
  readonly lease: Pick<GatewayLease, "own" | "mayAct">;
  readonly links: Pick<GatewayLinks, "accepts" | "find"> & Partial<Pick<GatewayLinks, "beatMs">>;
  /** This gateway and the others as people are shown them. Undefined: there is nothing to show */
  readonly shown: ClusterShown | undefined;
  /** Returns the place of this gateway among those of its workspace. Undefined: no other has it */
  membership(): ReturnType<RunOwnership["membership"]>;
  gateways(): Promise<readonly GatewayView[]>;
  /** Address that other gateways are told. Undefined: none */
  readonly advertiseUrl: string | undefined;
  /** Does work by its name that one gateway does at a time. False: another one does it now */
  readonly alone: ClusterDuties["alone"];
  /** Waits for somebody to drain this gateway, who asks at any gateway. */
  watchDrain(work: DrainedWork): void | Promise<void>;
  /** Has the programs that carry a marker killed when the heartbeats stop. */
  watchPrograms(marker: string): void | Promise<void>;
  readonly sharedWindows: SharedWindows | undefined;
  readonly sharedCalls: SharedCalls | undefined;
  readonly fileLocks: FileLocks | undefined;
  readonly taintWorkspace: TaintWorkspace | undefined;
  /** Aborts when the gateway closes. Undefined: nothing waits for a database then */
  readonly closing: AbortSignal | undefined;
  /** Id of this machine, by its data directory. Undefined: records of a machine need no name of it */
  readonly machine: string | undefined;
  /** Absolute paths that no tool reads or writes. */
  readonly ownPaths: readonly string[];
}

/** This gateway among others, as status and commands show it. */
export type ClusterShown = Pick<Cluster, "id" | "lease" | "notes" | "gatewaysFound" | "overview">;

/** Work of a gateway that ends when somebody drains it. */
export interface DrainedWork {
  readonly log: Logger;
  readonly opened: OpenedList;
  /** Records that the drain begins. */
  record(gateway: string, asked: DrainRequest): Promise<void>;
  /** Ends or hands on the work. @param reason why this gateway takes no new work, as the end of a sentence */
  letGo(reason: string): Promise<void>;
}

/** Returns the coordination of a gateway whose database nobody else has. */
export function createAlone({ clock, store }: { readonly clock: Clock; readonly store: Store }): Coordination {
  return {
    ...MEMBER_ALONE,
    id: undefined,
    clock,
    lease: { own: () => undefined, mayAct: () => true },
    links: { accepts: () => false, find: () => Promise.resolve(undefined) },
    shown: undefined,
    membership: () => undefined,
    gateways: () => Promise.resolve([]),
    advertiseUrl: undefined,
    async alone(_name, work) {
      await work();
      return true;
    },
    watchDrain() {},
    watchPrograms() {},
    sharedWindows: undefined,
    sharedCalls: undefined,
    fileLocks: undefined,
    taintWorkspace: undefined,
    closing: undefined,
    machine: undefined,
    ownPaths: [],
    openChain: undefined,
    openApprovalNews: () => undefined,
    watchHalts: () => () => {},
    openSharing: undefined,
    openTickets: () => undefined,
    work: undefined,
    shareSchedules: () => undefined,
    mayHaveWork: async (collection) => await store.count(collection) > 0,
    ownDocuments: (documents) => documents,
    shareNodes: () => undefined,
  };
}

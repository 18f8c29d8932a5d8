import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { type JoinedGateway, Leases } from "../../../lib/cluster/leases.ts";
import { type AuditCluster, GatewayChain } from "../../../lib/guard/audit/gateway_chain.ts";
import { type Audit, createAudit } from "../../../lib/guard/audit/audit.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store, Stored, Write } from "../../../lib/storage/store.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";

const LEASE_MS = 1_000;
const ABOUT = { host: "test", pid: 1, version: "0.0.0-test", started_at: "2026-01-01T00:00:00.000Z" };

/** Audit of one gateway of a cluster. */
export interface ClusteredAudit {
  readonly audit: Audit;
  /** Returns the gateway with its fence. */
  readonly own: () => JoinedGateway | undefined;
  /** Fences the gateway off, as another does whose lease has not run out. */
  fenceOff(): Promise<void>;
  /** Joins again, with a new fence. */
  joinAgain(): Promise<void>;
  /** Ends in order. */
  close(): Promise<void>;
}

/** A database in memory, with the audits of the gateways that share it. */
export interface AuditedCluster {
  readonly clock: FakeClock;
  readonly store: Store;
  /** Runs before each batch. Throws: the batch fails */
  beforeBatch: (writes: readonly Write[]) => void;
  /** Runs after each batch that was written. Throws: its answer is lost */
  afterBatch: () => void;
  /** Runs before each scan. */
  onScan: (collection: string) => Promise<void>;
  /** Runs before the fences of other gateways are read. */
  onFences: () => Promise<void>;
  /** Warnings and errors that were logged. */
  readonly complaints: string[];
  /** Calls of the store other than batches */
  reads: number;
  batches: number;
  /** Returns the database's time, in ms since the epoch. */
  now(): number;
  /** Moves the database's time on, without a timer that fires. */
  jump(ms: number): void;
  join(id: string, options?: { readonly retentionDays?: number }): Promise<ClusteredAudit>;
  /** Returns the records of the audit in the order of their keys. */
  records(): Promise<readonly (Stored & { readonly body: Record<string, unknown> })[]>;
}

/** Creates a database whose clock stands still until it is moved. */
export function createAuditedCluster(): AuditedCluster {
  const clock = createFakeClock();
  let jumped = 0;
  const now = () => clock.now() + jumped;
  const memory = createMemoryStore();
  const leases = new Leases({ store: memory, now: () => Promise.resolve(now()) }, {
    leaseMs: LEASE_MS,
    marginMs: LEASE_MS / 4,
  });
  const store: Store = {
    ...memory,
    async get(collection, key) {
      cluster.reads++;
      return await memory.get(collection, key);
    },
    async scan(collection, options) {
      cluster.reads++;
      await cluster.onScan(collection);
      return await memory.scan(collection, options);
    },
    async batch(writes) {
      cluster.batches++;
      cluster.beforeBatch(writes);
      const isWritten = await memory.batch(writes);
      if (isWritten) cluster.afterBatch();
      return isWritten;
    },
  };
  const complain = (message: string) => void cluster.complaints.push(message);
  const cluster: AuditedCluster = {
    clock,
    store: memory,
    beforeBatch: () => {},
    afterBatch: () => {},
    onScan: async () => {},
    onFences: async () => {},
    complaints: [],
    reads: 0,
    batches: 0,
    now,
    jump: (ms) => void (jumped += ms),
    async join(id, { retentionDays = 30 } = {}) {
      let own: JoinedGateway | undefined = { id, fence: await leases.join(id, { about: ABOUT }) };
      const gateways: AuditCluster = {
        lease: { own: () => own },
        async fences(ids) {
          await cluster.onFences();
          return await leases.fences(ids);
        },
      };
      const audit = await createAudit({
        store,
        clock: { ...clock, now },
        log: { ...SILENT, warn: complain, error: complain },
        redact: (text) => text,
        enabled: () => true,
        retentionDays: () => retentionDays,
        openChain: (parts) => Promise.resolve(new GatewayChain({ ...parts, cluster: gateways })),
      });
      return {
        audit,
        own: () => own,
        async fenceOff() {
          const gone = own;
          if (gone === undefined) return;
          own = undefined;
          await memory.batch([
            { op: "delete", collection: "gateway_leases", key: id },
            { op: "putIf", collection: "gateway_fences", key: id, version: gone.fence, body: { v: 1 } },
          ]);
        },
        async joinAgain() {
          own = { id, fence: await leases.join(id, { about: ABOUT }) };
        },
        async close() {
          await audit.close();
          if (own !== undefined) await leases.leave(own);
        },
      };
    },
    async records() {
      const found: Stored[] = [];
      for (let after: string | undefined = undefined;;) {
        const page: readonly Stored[] = await memory.scan("audit", {
          order: "key",
          limit: 1000,
          ...(after === undefined ? {} : { after }),
        });
        if (page.length === 0) return found as (Stored & { body: Record<string, unknown> })[]; // records are objects
        found.push(...page);
        after = page.at(-1)?.key;
      }
    },
  };
  return cluster;
}

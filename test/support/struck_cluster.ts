import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { type CuttingProxy, startCuttingProxy } from "./cutting_proxy.ts";
import type { CallInit } from "./gateway_call.ts";
import type { KillableGateway } from "./killable_gateway.ts";
import type { PostgresServer } from "./postgres_server.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { until } from "./until.ts";
import { withWorld } from "./world.ts";

/** Records that show what became of the work. */
const RECORDS = "SELECT collection, key, version, body FROM postern.records WHERE collection NOT LIKE 'audit%'";
/** Milliseconds of a lease, the shortest that there is. */
const LEASE_MS = 1_000;

/** Starts of a killed gateway, at most. */
const STARTS = 5;

/** Failure of a part of a cluster. */
export type ClusterFailure =
  /** A gateway is killed and started again */
  | "kill"
  /** A gateway stands still for three leases, as a machine that is suspended, and goes on */
  | "pause"
  /** A gateway does not reach the database for three leases */
  | "cut"
  /** The database is stopped and started again */
  | "restart"
  /** The database crashes, and its standby is promoted in its place */
  | "failover";

/** Options of `withStruckCluster`. */
export interface StruckClusterOptions {
  readonly server: PostgresServer;
  /** Number of gateways. Default 3 */
  readonly gateways?: number;
  readonly failures: readonly ClusterFailure[];
  /** Standby of the server, for one failover. Default: there is none */
  readonly standby?: PostgresServer;
  readonly seed: number;
  /** Receives each failure that begins. Default: nobody */
  readonly tell?: (failure: ClusterFailure, gateway: number) => void;
}

/** Gateway of a cluster in a process of its own, with its way to the database. */
export interface StruckGateway {
  readonly index: number;
  readonly gateway: KillableGateway;
  readonly proxy: CuttingProxy;
  /** Variables of its processes. */
  readonly env: Readonly<Record<string, string>>;
  /** All that its processes wrote which were killed. */
  readonly outputs: string[];
  /** False: it is dead, and being started again */
  isThere: boolean;
  /** True: something goes wrong with it now */
  isStruck: boolean;
}

/** Settings of the gateways of a cluster. */
export interface GatewaysUse {
  /** Base URL of an upstream of the chat-completions format. */
  readonly baseUrl: string;
  /** Tools that a person is asked about. Default: none */
  readonly alwaysAsk?: readonly string[];
  /** Further variables of each gateway. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs `use` with gateways in processes of their own over one PostgreSQL and one workspace, whose parts fail when they are struck. */
export function withStruckCluster(
  options: StruckClusterOptions,
  { baseUrl, alwaysAsk = [], env: further = {} }: GatewaysUse,
  use: (cluster: StruckCluster) => Promise<void>,
): Promise<void> {
  return withWorld(async (world) => {
    const workspace = join(await world.folder(), "shared");
    mkdirSync(workspace);
    const { server, gateways = 3 } = options;
    const database = await server.createDatabase();
    const members = await Promise.all(Array.from({ length: gateways }, async (_, index): Promise<StruckGateway> => {
      const proxy = await startCuttingProxy(server.port);
      world.onEnd(() => proxy.close());
      const address = new URL(server.url(database));
      address.port = String(proxy.port);
      const env = {
        POSTERN__STORAGE__DRIVER: "postgres",
        POSTERN__STORAGE__URL_ENV: "RECORDS",
        POSTERN__CLUSTER__LEASE_SECS: String(LEASE_MS / 1_000),
        POSTERN__CLUSTER__WORKSPACE_ID: "shared",
        RECORDS: address.href,
        ...further,
      };
      const gateway = await world.killableGateway({ baseUrl, alwaysAsk, env, workspace });
      return { index, gateway, proxy, env, outputs: [], isThere: true, isStruck: false };
    }));
    const cluster = new StruckCluster(members, { workspace, database, options });
    try {
      await use(cluster);
      await cluster.calm();
    } catch (error) {
      await cluster.keepTraces();
      throw error;
    }
  });
}

/** Gateways over one PostgreSQL, with failures of them and of their surroundings. */
export class StruckCluster {
  readonly members: readonly StruckGateway[];
  readonly workspace: string;
  /** Name of the database. */
  readonly database: string;
  readonly #options: StruckClusterOptions;
  readonly #random: ReturnType<typeof createSeededRandom>;
  readonly #mending = new Set<Promise<void>>();
  #failure: unknown = undefined;

  constructor(
    members: readonly StruckGateway[],
    { workspace, database, options }: {
      readonly workspace: string;
      readonly database: string;
      readonly options: StruckClusterOptions;
    },
  ) {
    this.members = members;
    this.workspace = workspace;
    this.database = database;
    this.#options = options;
    this.#random = createSeededRandom(options.seed + 1);
  }

  /** Asks a gateway that is there. @throws {TypeError} it is gone before it has answered */
  async call(path: string, init?: CallInit): Promise<Response> {
    const there = this.members.filter(({ isThere }) => isThere);
    const member = this.any(there) ?? this.any(this.members) ?? assert.fail("There is no gateway");
    return await member.gateway.call(path, init);
  }

  /** Lets something go wrong, which is mended later. */
  async strike(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    const failure = this.any(this.#options.failures) ?? "kill";
    while (this.members.every(({ isStruck }) => isStruck)) await Promise.race(this.#mending);
    const member = this.any(this.members.filter(({ isStruck }) => !isStruck)) ?? assert.fail();
    this.#options.tell?.(failure, member.index);
    member.isStruck = true;
    const mending = this.#fail(failure, member).catch((error) => void (this.#failure = error)).finally(() => {
      member.isStruck = false;
      this.#mending.delete(mending);
    });
    this.#mending.add(mending);
    if (failure === "restart" || failure === "failover") await mending;
  }

  /** Waits until everything is mended. */
  async calm(): Promise<void> {
    await Promise.all(this.#mending);
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Runs a statement in the database of the cluster. */
  run(text: string): Promise<readonly Record<string, unknown>[]> {
    return this.#options.server.run(text, this.database);
  }

  /** Writes what all processes wrote, and the records, into the folder of the variable `CHAOS_TRACES`, if there is one. */
  async keepTraces(): Promise<void> {
    const folder = process.env["CHAOS_TRACES"];
    if (folder === undefined) return;
    mkdirSync(folder, { recursive: true });
    for (const { index, outputs, gateway } of this.members) {
      writeFileSync(join(folder, `gateway-${index}.log`), [...outputs, gateway.output()].join("\n--- killed ---\n"));
    }
    const rows = await this.run(RECORDS).catch(String);
    writeFileSync(join(folder, "records.json"), JSON.stringify(rows, undefined, 1));
  }

  /** Returns one of the things by chance. */
  any<T>(things: readonly T[]): T | undefined {
    return things[Math.floor(((this.#random.bytes(1)[0] ?? 0) / 256) * things.length)];
  }

  /** Starts a killed gateway as a service manager does: again when its start fails, as while the database does not answer in time. */
  async #startAgain({ gateway, outputs }: StruckGateway): Promise<void> {
    for (let tries = 1;; tries++) {
      try {
        return await gateway.restart();
      } catch (error) {
        outputs.push(`--- start ${tries} failed ---\n${error}`);
        if (tries === STARTS) throw error;
      }
    }
  }

  async #fail(failure: ClusterFailure, member: StruckGateway): Promise<void> {
    const { gateway, proxy } = member;
    switch (failure) {
      case "kill":
        member.isThere = false;
        await gateway.kill();
        member.outputs.push(gateway.output());
        await this.#startAgain(member);
        member.isThere = true;
        return;
      case "pause":
        gateway.signal("SIGSTOP");
        await systemClock.sleep(3 * LEASE_MS);
        gateway.signal("SIGCONT");
        return;
      case "cut":
        proxy.freeze(true);
        await systemClock.sleep(3 * LEASE_MS);
        proxy.freeze(false);
        return;
      case "restart":
        await this.#options.server.stop();
        await this.#options.server.start();
        return;
      case "failover": {
        const { server, standby } = this.#options;
        assert.ok(standby, "There is no standby");
        await server.crash();
        const before = this.members.map(({ gateway }) => gateway.output().length);
        await standby.run("SELECT pg_promote()");
        for (const { proxy } of this.members) proxy.forward(standby.port);
        // A gateway that was just fenced off has dropped its runs, and only joins again
        const noticed = ["another history", "The lease is renewed again"];
        await until(
          () =>
            this.members.every(({ gateway }, index) => {
              const since = gateway.output().slice(before[index]);
              return noticed.some((line) => since.includes(line));
            }),
          () => `a gateway did not notice: ${this.members.map(({ gateway }) => gateway.output()).join("\n")}`,
        );
        return;
      }
    }
  }
}

/**
 * The world of a journey: starts gateways, upstreams and folders as the journey asks for them, and stops all of them afterwards.
 * Journeys also import their types and the small readers they share from this file, so that a journey starts without a page of imports.
 * Each member loads its modules on its first use, so that a journey does not wait for parts that it never starts.
 */
import type { ServerResponse } from "node:http";
import type { FakeServer, SeenRequest } from "../../fixtures/upstream/fake_server.ts";
import type { OpenAiUpstream, UpstreamReply } from "../../fixtures/upstream/openai_upstream.ts";
import type { GatewayProcess, ServedFolder } from "./gateway_process.ts";
import type { KillableGateway, KillableGatewayOptions } from "./killable_gateway.ts";
import type { RunningGateway, RunningGatewayOptions } from "./running_gateway.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";
import { withWorkspace, type Workspace } from "./workspace.ts";

export type { FakeServer } from "../../fixtures/upstream/fake_server.ts";
export type { OpenAiUpstream, UpstreamReply } from "../../fixtures/upstream/openai_upstream.ts";
export type { ChatClient, ReceivedFrame } from "./chat_client.ts";
export type { GatewayProcess } from "./gateway_process.ts";
export type { KillableGateway } from "./killable_gateway.ts";
export type { RunningGateway, RunningGatewayOptions } from "./running_gateway.ts";
export type { Workspace } from "./workspace.ts";
export { jsonOf } from "./json_of.ts";
export { readRefusal } from "./refusal.ts";
export { readSse } from "./sse.ts";
export { until } from "./until.ts";

/** A function of the `with...` kind: calls `use` with what it has started, and stops that when `use` has ended. */
export type Scope<T> = (use: (started: T) => Promise<void>) => Promise<void>;

/** Answers a request of a fake server. */
type Answer = (seen: SeenRequest, response: ServerResponse) => void;

/** The things of one journey, each started when it is asked for. The world stops them in reverse order when the journey ends. */
export interface World {
  /** Makes an empty folder. */
  folder(): Promise<string>;
  /** Makes a workspace with these files, and a folder outside it that nothing may read. */
  workspace(files?: Readonly<Record<string, string | Uint8Array>>): Promise<Workspace>;
  /** Starts a gateway in this process, with a workspace and a data directory of its own unless they are given. */
  gateway(options?: RunningGatewayOptions): Promise<RunningGateway>;
  /** Starts a gateway in a process of its own, which the journey kills and starts again on the same data. */
  killableGateway(options: KillableGatewayOptions): Promise<KillableGateway>;
  /** Starts `postern gateway` on a folder, in a process of its own that ends by SIGKILL. */
  gatewayProcess(served: ServedFolder): Promise<GatewayProcess>;
  /** Starts an upstream of the chat-completions format; it answers "Hello from upstream" until it gets a script. */
  upstream(...script: readonly UpstreamReply[]): Promise<OpenAiUpstream>;
  /** Starts an HTTP server on a free port that answers by a function. Default: it never answers. */
  server(answer?: Answer): Promise<FakeServer>;
  /** Enters a scope of another support file, and leaves it when the journey ends. */
  enter<T>(scope: Scope<T>): Promise<T>;
  /** Calls `stop` when the journey ends: for what the journey has started by itself. */
  onEnd(stop: () => Promise<unknown>): void;
  /** Runs `use` with one of the things, and stops that thing when `use` has ended: for a gateway that another one follows on its data. */
  during<T>(starting: Promise<T>, use: (started: T) => Promise<void>): Promise<void>;
}

/**
 * Runs a journey in a world of its own.
 *
 * Everything that the journey started is stopped, the last one first, also when the journey fails and when stopping one of them fails.
 * @throws the failure of the journey, or of stopping; an AggregateError where there are several
 */
export async function withWorld(use: (world: World) => Promise<void>): Promise<void> {
  const journey = new Journey();
  const failures: unknown[] = [];
  await use(journey).catch((error) => failures.push(error));
  failures.push(...await journey.end());
  if (failures.length > 1) throw new AggregateError(failures, failures.map(String).join("; "));
  if (failures.length === 1) throw failures[0];
}

interface Started {
  /** Undefined until it has started, and for what the journey stops by itself */
  thing: unknown;
  /** Rejects with the failure of stopping it */
  readonly stop: () => Promise<unknown>;
}

class Journey implements World {
  /** In the order in which they were asked for: what is still about to start when the journey ends is stopped too */
  readonly #started: Started[] = [];

  folder(): Promise<string> {
    return this.enter(withTemporaryFolder);
  }

  workspace(files: Readonly<Record<string, string | Uint8Array>> = {}): Promise<Workspace> {
    return this.enter((use) => withWorkspace(files, use));
  }

  gateway(options: RunningGatewayOptions = {}): Promise<RunningGateway> {
    return this.enter(async (use) => {
      const { withRunningGateway } = await import("./running_gateway.ts");
      await withRunningGateway(options, use);
    });
  }

  killableGateway(options: KillableGatewayOptions): Promise<KillableGateway> {
    return this.enter(async (use) => {
      const { withKillableGateway } = await import("./killable_gateway.ts");
      await withKillableGateway(options, use);
    });
  }

  gatewayProcess(served: ServedFolder): Promise<GatewayProcess> {
    return this.enter(async (use) => {
      const { withServedFolder } = await import("./gateway_process.ts");
      await withServedFolder(served, use);
    });
  }

  upstream(...script: readonly UpstreamReply[]): Promise<OpenAiUpstream> {
    return this.enter(async (use) => {
      const { startOpenAiUpstream } = await import("../../fixtures/upstream/openai_upstream.ts");
      await useAndClose(await startOpenAiUpstream(...script), use);
    });
  }

  server(answer: Answer = () => {}): Promise<FakeServer> {
    return this.enter(async (use) => {
      const { startFakeServer } = await import("../../fixtures/upstream/fake_server.ts");
      await useAndClose(await startFakeServer(answer), use);
    });
  }

  async enter<T>(scope: Scope<T>): Promise<T> {
    const entered = Promise.withResolvers<T>();
    const left = Promise.withResolvers<void>();
    const over = scope((thing) => {
      entered.resolve(thing);
      return left.promise;
    });
    const started: Started = {
      thing: undefined,
      stop() {
        left.resolve();
        return over;
      },
    };
    this.#started.push(started);
    over.catch((error) => {
      // No thing has started where the failure comes first; the one who asked for it is told
      if (started.thing === undefined) this.#take(started);
      entered.reject(error);
    });
    return started.thing = await entered.promise;
  }

  onEnd(stop: () => Promise<unknown>): void {
    this.#started.push({ thing: undefined, stop });
  }

  async during<T>(starting: Promise<T>, use: (started: T) => Promise<void>): Promise<void> {
    const thing = await starting;
    try {
      await use(thing);
    } finally {
      await this.#take(this.#started.findLast((started) => started.thing === thing))?.stop();
    }
  }

  /** Stops what still runs, the last one first. @returns the failures */
  async end(): Promise<readonly unknown[]> {
    const failures: unknown[] = [];
    for (let started = this.#started.pop(); started !== undefined; started = this.#started.pop()) {
      await started.stop().catch((error) => failures.push(error));
    }
    return failures;
  }

  /** Takes one out, so that it is stopped once. */
  #take(taken: Started | undefined): Started | undefined {
    const index = this.#started.findIndex((started) => started === taken);
    return index < 0 ? undefined : this.#started.splice(index, 1)[0];
  }
}

async function useAndClose<T extends { close(): Promise<void> }>(
  thing: T,
  use: (thing: T) => Promise<void>,
): Promise<void> {
  try {
    await use(thing);
  } finally {
    await thing.close();
  }
}

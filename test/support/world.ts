/**
 * The world of a journey: starts what the journey asks for and stops all of it afterwards. The small readers that journeys have in
 * common, and the types that the world gives, come from here too, so that a journey reads without a page of imports.
 * What a member needs is loaded when it is first asked for: a journey pays for nothing that it does not start.
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
  /** Runs `use` with one of the things, and stops that thing when `use` has ended: for a gateway that another one follows. */
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
  readonly thing: unknown;
  /** Leaves the scope. Rejects with the failure of stopping the thing */
  readonly stop: () => Promise<void>;
}

class Journey implements World {
  readonly #started: Started[] = [];

  folder(): Promise<string> {
    return this.enter(withTemporaryFolder);
  }

  workspace(files: Readonly<Record<string, string | Uint8Array>> = {}): Promise<Workspace> {
    return this.enter((use) => withWorkspace(files, use));
  }

  async gateway(options: RunningGatewayOptions = {}): Promise<RunningGateway> {
    const { withRunningGateway } = await import("./running_gateway.ts");
    return await this.enter((use) => withRunningGateway(options, use));
  }

  async killableGateway(options: KillableGatewayOptions): Promise<KillableGateway> {
    const { withKillableGateway } = await import("./killable_gateway.ts");
    return await this.enter((use) => withKillableGateway(options, use));
  }

  async gatewayProcess(served: ServedFolder): Promise<GatewayProcess> {
    const { withServedFolder } = await import("./gateway_process.ts");
    return await this.enter((use) => withServedFolder(served, use));
  }

  async upstream(...script: readonly UpstreamReply[]): Promise<OpenAiUpstream> {
    const { startOpenAiUpstream } = await import("../../fixtures/upstream/openai_upstream.ts");
    return this.#keep(await startOpenAiUpstream(...script), (upstream) => upstream.close());
  }

  async server(answer: Answer = () => {}): Promise<FakeServer> {
    const { startFakeServer } = await import("../../fixtures/upstream/fake_server.ts");
    return this.#keep(await startFakeServer(answer), (server) => server.close());
  }

  async enter<T>(scope: Scope<T>): Promise<T> {
    const entered = Promise.withResolvers<T>();
    const left = Promise.withResolvers<void>();
    const over = scope((thing) => {
      entered.resolve(thing);
      return left.promise;
    });
    // A scope that fails before it has started its thing
    over.catch(entered.reject);
    return this.#keep(await entered.promise, () => {
      left.resolve();
      return over;
    });
  }

  async during<T>(starting: Promise<T>, use: (started: T) => Promise<void>): Promise<void> {
    const thing = await starting;
    try {
      await use(thing);
    } finally {
      const index = this.#started.findLastIndex((started) => started.thing === thing);
      if (index >= 0) await this.#started.splice(index, 1)[0]?.stop();
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

  #keep<T>(thing: T, stop: (thing: T) => Promise<void>): T {
    this.#started.push({ thing, stop: () => stop(thing) });
    return thing;
  }
}

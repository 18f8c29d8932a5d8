import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { batchPerTick } from "../../../base/tick.ts";
import type { HostReply, HostRequest } from "./kernel.ts";
import { failureOf, ModuleFailure } from "./module_failure.ts";
import {
  type CompiledModule,
  compileModule,
  LoadedModule,
  type ModuleInstance,
  type ModuleMachine,
} from "./module_instance.ts";
import {
  type HostAnswer,
  type JobEnd,
  PLACES,
  STOPS,
  type ThreadData,
  type ThreadJob,
  type ThreadMessage,
} from "./wasm_messages.ts";

/** Bytes at the end of what a module said that are kept: twice what is shown, so that secrets are known as a whole. */
const MAX_SAID = 8192;
/** Milliseconds that a thread waits for the gateway before it looks whether its call is over. */
const LOOK_MS = 1000;

/** Module of one plugin, in its thread. */
class ModuleThread {
  readonly #data: ThreadData;
  readonly #machine: ModuleMachine;
  #module: LoadedModule | undefined;
  #next: ModuleInstance | undefined;
  #said = new Uint8Array(0);

  constructor(data: ThreadData) {
    this.#data = data;
    this.#machine = {
      check: () => this.#check(),
      ask: (request) => this.#ask(request),
      say: (bytes) => this.#say(bytes),
      sleep: (ms) => this.#sleep(ms),
    };
  }

  async run(job: ThreadJob): Promise<void> {
    this.#said = new Uint8Array(0);
    let instance: ModuleInstance | undefined;
    const facts = () => ({ said: this.#said, use: useOf(instance) });
    const end = (ended: JobEnd) => this.#post({ kind: "end", end: ended });
    try {
      const module = this.#module ??= new LoadedModule(await this.#compiled(), this.#data);
      let output = new Uint8Array(0);
      if (job.kind !== "load") instance = this.#next ?? await module.instantiate(this.#machine);
      this.#next = undefined;
      if (job.kind === "call" && instance !== undefined) {
        output = shared(await instance.call(job.entrypoint, job.input));
      }
      if (job.kind === "prepare") this.#next = instance;
      end({ kind: "done", module: job.kind === "load" ? module.module : undefined, output, ...facts() });
    } catch (error) {
      this.#next = undefined;
      end({ kind: "failed", ...failureOf(error), ...facts() });
    }
  }

  async #compiled(): Promise<CompiledModule> {
    const { module, bounds } = this.#data;
    return module instanceof Uint8Array ? await compileModule(module, bounds) : module;
  }

  #post(message: ThreadMessage): void {
    parentPort?.postMessage(message);
  }

  #check(): void {
    const stop = Atomics.load(this.#data.shared, PLACES.stop);
    if (stop === STOPS.timeout) throw new ModuleFailure("timeout", "it took too long");
    if (stop !== 0) throw new ModuleFailure("cancelled", "the call was cancelled");
  }

  /** Asks the gateway, which always answers, and at once when the call is over. */
  #ask(request: HostRequest): HostReply {
    this.#check();
    const { shared } = this.#data;
    Atomics.store(shared, PLACES.reply, 0);
    this.#post({ kind: "ask", request });
    while (Atomics.load(shared, PLACES.reply) === 0) {
      if (Atomics.load(shared, PLACES.stop) === STOPS.ended) this.#check();
      Atomics.wait(shared, PLACES.reply, 0, LOOK_MS);
    }
    // The gateway posts the answer before it says that there is one
    const { message: answer } = receiveMessageOnPort(this.#data.answers) as { readonly message: HostAnswer };
    // A request that was given up for its call has no other reason
    this.#check();
    if (answer.kind === "refusal") throw new ModuleFailure(answer.code, answer.reason);
    return answer.reply;
  }

  #say(bytes: Uint8Array): void {
    const kept = bytes.subarray(Math.max(0, bytes.length - MAX_SAID));
    const before = this.#said.subarray(Math.max(0, this.#said.length + kept.length - MAX_SAID));
    const said = new Uint8Array(before.length + kept.length);
    said.set(before);
    said.set(kept, before.length);
    this.#said = said;
  }

  #sleep(ms: number): void {
    // The gateway wakes whoever waits here when the call is over
    Atomics.wait(this.#data.shared, PLACES.stop, 0, ms);
    this.#check();
  }
}

function useOf(instance: ModuleInstance | undefined) {
  return { fuel: instance?.fuel ?? 0, memoryBytes: instance?.memoryBytes ?? 0 };
}

function shared({ output }: { readonly output: Uint8Array }): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(new SharedArrayBuffer(output.length));
  bytes.set(output);
  // The types have no view that may be of either kind of memory
  return bytes as unknown as Uint8Array<ArrayBuffer>;
}

// The gateway starts this thread with exactly this, and sends one job after the other
const thread = new ModuleThread(workerData as ThreadData);
// In a tick of its own: a thread of Deno that runs out of memory while it handles a message tells nobody
parentPort?.on("message", batchPerTick(1, (job: ThreadJob) => void thread.run(job)));

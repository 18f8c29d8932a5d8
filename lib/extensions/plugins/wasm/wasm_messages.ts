import type { MessagePort } from "node:worker_threads";
import type { HostReply, HostRequest } from "./kernel.ts";
import type { CompiledModule, ModuleBounds } from "./module_instance.ts";

/** Places in the numbers that the gateway and a thread share. */
export const PLACES = {
  /** 0 while the call may go on, else a number of STOPS */
  stop: 0,
  /** 1 once the gateway has answered the request of the thread */
  reply: 1,
  count: 2,
} as const;

/** Reasons why a call is told to stop. After `ended` nobody answers the thread any more */
export const STOPS = { cancelled: 1, timeout: 2, ended: 3 } as const;

/** Data that a thread starts with. */
export interface ThreadData {
  /** Content of the module, in shared memory, or what another thread has made of it */
  readonly module: Uint8Array | CompiledModule;
  readonly bounds: ModuleBounds;
  /** Settings that the module may ask for, none of which is a secret */
  readonly settings: Readonly<Record<string, string>>;
  /** Numbers as PLACES says */
  readonly shared: Int32Array;
  /** Port of the answers to the thread's requests */
  readonly answers: MessagePort;
}

/**
 * Work of a thread. `load` checks and compiles the module, `prepare` makes the instance for the next call, `call` calls it. Each does
 * what is needed of those before it.
 */
export type ThreadJob =
  | { readonly kind: "load" | "prepare" }
  | { readonly kind: "call"; readonly entrypoint: string; readonly input: string };

/** Resources that a job used. */
export interface JobUse {
  readonly fuel: number;
  readonly memoryBytes: number;
}

/** End of a job. `said` is the end of what the module wrote and logged */
export type JobEnd =
  | {
    readonly kind: "done";
    /** Module that was loaded by the job `load`. undefined for the others */
    readonly module: CompiledModule | undefined;
    /** Output of a call, in shared memory */
    readonly output: Uint8Array;
    readonly use: JobUse;
    readonly said: Uint8Array;
  }
  | {
    readonly kind: "failed";
    readonly code: string;
    readonly reason: string;
    readonly use: JobUse;
    readonly said: Uint8Array;
  };

/** Message of a thread. */
export type ThreadMessage =
  | { readonly kind: "ask"; readonly request: HostRequest }
  | { readonly kind: "end"; readonly end: JobEnd };

/** Answer of the gateway to a request of the thread: a value, or the refusal. */
export type HostAnswer =
  | { readonly kind: "reply"; readonly reply: HostReply }
  | { readonly kind: "refusal"; readonly code: string; readonly reason: string };

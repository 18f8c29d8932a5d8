import { systemClock } from "../../../base/clock.ts";
import { createSystemRandom } from "../../../base/random.ts";
import type { FuelMeter } from "./fuel_meter.ts";
import { ModuleFailure } from "./module_failure.ts";
import { REFUSING_WASI } from "./module_imports.ts";

/** Parts of a thread that the functions of WASI use. */
export interface WasiMachine {
  readonly fuel: FuelMeter;
  /** Returns the memory of the module. @throws {ModuleFailure} before there is one */
  readonly memory: () => ArrayBuffer;
  /** Takes what the module writes to its output and its error output. */
  readonly say: (bytes: Uint8Array) => void;
  /** Waits, and ends early when the call is over. */
  readonly sleep: (ms: number) => void;
}

const SUCCESS = 0;
const BAD_DESCRIPTOR = 8;
const INVALID = 28;
const NO_SEEK = 70;
const NOT_CAPABLE = 76;

const NS_OF_MS = 1_000_000n;
const MAX_RANDOM = 65_536;
const SUBSCRIPTION_BYTES = 48;
const EVENT_BYTES = 32;

type WasiFunctions = Readonly<Record<string, (...args: never[]) => unknown>>;

/**
 * Creates the functions of WASI that a plugin gets: clocks, randomness, an empty environment, an input at its end and two outputs. There
 * are no files: the workspace is reached by functions of the host. What reaches further answers "not capable".
 * Source: WASI snapshot preview 1, `wasi_snapshot_preview1.witx`
 */
export function createWasi(machine: WasiMachine): WasiFunctions {
  const { fuel, say } = machine;
  const random = createSystemRandom();
  const view = () => new DataView(machine.memory());
  const bytes = (at: number, length: number) => new Uint8Array(machine.memory(), at >>> 0, length >>> 0);
  const writeSizes = (count: number, size: number) => {
    view().setUint32(count >>> 0, 0, true);
    view().setUint32(size >>> 0, 0, true);
    return SUCCESS;
  };
  return {
    ...Object.fromEntries(REFUSING_WASI.map((name) => [name, () => NOT_CAPABLE])),
    args_get: () => SUCCESS,
    args_sizes_get: writeSizes,
    environ_get: () => SUCCESS,
    environ_sizes_get: writeSizes,
    clock_res_get(clock: number, at: number) {
      if (timeOf(clock) === undefined) return INVALID;
      view().setBigUint64(at >>> 0, NS_OF_MS, true);
      return SUCCESS;
    },
    clock_time_get(clock: number, _precision: bigint, at: number) {
      const time = timeOf(clock);
      if (time === undefined) return INVALID;
      view().setBigUint64(at >>> 0, time, true);
      return SUCCESS;
    },
    random_get(at: number, length: number) {
      const part = bytes(at, length);
      fuel.charge(part.length >>> 6);
      for (let from = 0; from < part.length; from += MAX_RANDOM) {
        const rest = part.subarray(from, from + MAX_RANDOM);
        rest.set(random.bytes(rest.length));
      }
      return SUCCESS;
    },
    sched_yield: () => SUCCESS,
    poll_oneoff: (from: number, to: number, count: number, written: number) =>
      poll(machine, { from: from >>> 0, to: to >>> 0, count: count >>> 0, written: written >>> 0 }),
    proc_exit(code: number) {
      throw new ModuleFailure(code === 0 ? "exited" : "failed", `it ended itself with the code ${code}`);
    },
    fd_write(descriptor: number, list: number, count: number, written: number) {
      if (descriptor !== 1 && descriptor !== 2) return BAD_DESCRIPTOR;
      let total = 0;
      for (let index = 0; index < count >>> 0; index++) {
        const place = (list >>> 0) + index * 8;
        const part = bytes(view().getUint32(place, true), view().getUint32(place + 4, true));
        fuel.charge(1 + (part.length >>> 6));
        say(part);
        total += part.length;
      }
      view().setUint32(written >>> 0, total, true);
      return SUCCESS;
    },
    fd_read(descriptor: number, _list: number, _count: number, read: number) {
      if (descriptor !== 0) return BAD_DESCRIPTOR;
      view().setUint32(read >>> 0, 0, true);
      return SUCCESS;
    },
    fd_close: (descriptor: number) => isOpen(descriptor) ? SUCCESS : BAD_DESCRIPTOR,
    fd_seek: (descriptor: number) => isOpen(descriptor) ? NO_SEEK : BAD_DESCRIPTOR,
    fd_fdstat_get(descriptor: number, at: number) {
      if (!isOpen(descriptor)) return BAD_DESCRIPTOR;
      bytes(at, 24).fill(0);
      // A character device
      view().setUint8(at >>> 0, 2);
      return SUCCESS;
    },
    fd_fdstat_set_flags: (descriptor: number) => isOpen(descriptor) ? SUCCESS : BAD_DESCRIPTOR,
    // There are no folders: the first look finds the end of their list
    fd_prestat_get: () => BAD_DESCRIPTOR,
    fd_prestat_dir_name: () => BAD_DESCRIPTOR,
  };
}

function isOpen(descriptor: number): boolean {
  return descriptor >= 0 && descriptor <= 2;
}

/** Returns the time of a clock in nanoseconds: 0 is the date, 1 counts from an arbitrary start. undefined: there is no such clock */
function timeOf(clock: number): bigint | undefined {
  if (clock === 0) return BigInt(systemClock.now()) * NS_OF_MS;
  return clock === 1 ? BigInt(Math.floor(systemClock.monotonic() * 1e6)) : undefined;
}

/** Waits for the first of several clocks. Descriptors are always ready. */
function poll(
  { memory, fuel, sleep }: WasiMachine,
  { from, to, count, written }: {
    readonly from: number;
    readonly to: number;
    readonly count: number;
    readonly written: number;
  },
): number {
  if (count === 0) return INVALID;
  fuel.charge(count);
  const view = new DataView(memory());
  const waits: bigint[] = [];
  for (let index = 0; index < count; index++) waits.push(waitOf(view, from + index * SUBSCRIPTION_BYTES));
  const shortest = waits.reduce((least, wait) => wait < least ? wait : least);
  if (shortest > 0n) sleep(Number(shortest / NS_OF_MS) + 1);
  let events = 0;
  for (const [index, wait] of waits.entries()) {
    if (wait > shortest) continue;
    const subscription = from + index * SUBSCRIPTION_BYTES;
    const event = to + events++ * EVENT_BYTES;
    const [userdata, kind] = [view.getBigUint64(subscription, true), view.getUint8(subscription + 8)];
    new Uint8Array(memory(), event, EVENT_BYTES).fill(0);
    view.setBigUint64(event, userdata, true);
    view.setUint8(event + 10, kind);
  }
  view.setUint32(written, events, true);
  return SUCCESS;
}

/** Returns the nanoseconds that a subscription waits. */
function waitOf(view: DataView, at: number): bigint {
  if (view.getUint8(at + 8) !== 0) return 0n;
  const timeout = view.getBigUint64(at + 24, true);
  const isAbsolute = (view.getUint16(at + 40, true) & 1) === 1;
  const wait = isAbsolute ? timeout - (timeOf(view.getUint32(at + 16, true)) ?? 0n) : timeout;
  return wait < 0n ? 0n : wait;
}

import type { MemoryRegion } from "./memory_map.ts";
import type { TargetDescription } from "./target_description.ts";

/** The program that speaks for a target. */
export interface GdbStub {
  /** Told by what it answers; `other`: OpenOCD, probe-rs, a monitor in the firmware and the like */
  readonly kind: "qemu" | "gdbserver" | "other";
  /** What it says it can, as `qXfer:features:read`, at most 256 */
  readonly features: readonly string[];
  /** Bytes of the largest packet it takes */
  readonly packetBytes: number;
  readonly acknowledges: boolean;
  /** Whether the target stood still before; undefined: it cannot be told */
  readonly haltedBefore: boolean | undefined;
  /** Why the target stands still now, as `signal 5`; undefined when the stub does not say */
  readonly stopped: string | undefined;
}

/** A target that somebody is attached to. Every call throws what GdbSession does, and `board_refused` with the stub's own error. */
export interface GdbTarget {
  readonly stub: GdbStub;
  /** What the target says about itself; undefined when its stub offers nothing */
  description(): Promise<TargetDescription | undefined>;
  /** undefined when its stub offers none */
  memoryMap(): Promise<readonly MemoryRegion[] | undefined>;
  /** All registers as the stub has them, hexadecimal, `x` for unknown digits; undefined when it gives none */
  registers(): Promise<string | undefined>;
  /** The whole of `length` bytes, or an error that names the first address which cannot be read */
  readMemory(address: bigint, length: number): Promise<Uint8Array>;
}

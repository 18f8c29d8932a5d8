import { ToolError } from "../../base/errors.ts";
import { type BoardContext, configuredBoard } from "../../hardware/boards.ts";
import { coreRegisters } from "../../hardware/target_description.ts";
import type { GdbTarget } from "../../hardware/gdb_target.ts";
import { describeMap, firstOutside, rangeOf, toHex, usableMap } from "../../hardware/memory_map.ts";
import type { HostBoard } from "../../system/read_host_board.ts";
import type { ToolResult } from "../runtime/tool_call.ts";

const STUB_NAMES = { qemu: "QEMU", gdbserver: "gdbserver", other: "a GDB stub" } as const;

/**
 * Describes a board.
 * @param board undefined: the only configured one, the names where there are several, the machine itself where there is none
 * @throws {ToolError} those of Boards
 */
export async function describeBoard(
  board: string | undefined,
  { boards, config, signal }: BoardContext,
): Promise<ToolResult> {
  const configured = config.hardware.boards;
  const names = Object.keys(configured);
  const name = board ?? (names.length === 1 ? names[0] : undefined);
  if (name !== undefined) {
    return await boards.attach(name, signal, (target) => describe(name, configured[name]?.gdb_remote ?? "", target));
  }
  if (names.length === 0) return describeHost(await boards.host());
  const list = names.map((known) => ({ board: known, gdb_remote: configured[known]?.gdb_remote }));
  const lines = list.map((one) => `${one.board} at ${one.gdb_remote}`);
  return {
    output: ["Several boards are configured, give one:", ...lines].join("\n"),
    isError: false,
    data: { boards: list },
  };
}

async function describe(board: string, address: string, target: GdbTarget): Promise<ToolResult> {
  const { stub } = target;
  const description = await target.description();
  const raw = description === undefined ? undefined : await target.registers();
  const registers = description === undefined || raw === undefined ? [] : coreRegisters(description, raw);
  const features = (description?.features ?? []).map(({ name, registers: { length } }) => ({
    name,
    registers: length,
  }));
  const data = {
    board,
    gdb_remote: address,
    architecture: description?.architecture ?? null,
    features,
    stub: { kind: stub.kind, packet_bytes: stub.packetBytes, acknowledges: stub.acknowledges, features: stub.features },
    stopped: stub.stopped ?? null,
    afterwards: stub.haltedBefore === true ? "left halted, as it was" : "detached, so that it runs on",
    registers: registers.map(({ name, value }) => ({ name, value: value ?? null })),
  };
  const groups = features.map(({ name, registers: count }) => `${name} (${count} registers)`);
  const lines = {
    board: `${board} at ${address}`,
    architecture: data.architecture ?? "not said",
    features: groups.join(", ") || "none described",
    stub: `${STUB_NAMES[stub.kind]}, packets of ${stub.packetBytes} bytes, ${
      stub.features.join(", ") || "no features"
    }`,
    stopped: stub.stopped ?? "not said",
    afterwards: data.afterwards,
    registers: registers.map(({ name, value }) => `${name}=${value ?? "unknown"}`).join(" ") || "not shown",
  };
  return { output: listed(lines), isError: false, data };
}

function describeHost(host: HostBoard): ToolResult {
  const data = {
    board: null,
    model: host.model ?? null,
    vendor: host.vendor ?? null,
    compatible: host.compatible,
    firmware: host.firmware ?? null,
    platform: host.platform,
    architecture: host.architecture,
    cpu: { model: host.cpu.model ?? null, cores: host.cpu.cores },
    memory_bytes: host.memoryBytes,
  };
  const lines = {
    board: "none is configured; this is the machine that the tool runs on",
    model: host.model ?? "not said",
    vendor: host.vendor ?? "not said",
    compatible: host.compatible.join(", ") || "not said",
    firmware: host.firmware ?? "not said",
    platform: `${host.platform} ${host.architecture}`,
    cpu: `${host.cpu.model ?? "not said"}, ${host.cpu.cores} cores`,
    memory: `${Math.round(host.memoryBytes / 1_048_576)} MiB`,
  };
  return { output: listed(lines), isError: false, data };
}

function listed(lines: Readonly<Record<string, string>>): string {
  return Object.entries(lines).map(([name, value]) => `${name}: ${value}`).join("\n");
}

/** Shows the memory map of a board. @throws {ToolError} those of usableMap and Boards */
export async function showMemoryMap(board: string, { boards, config, signal }: BoardContext): Promise<ToolResult> {
  const map = await boards.attach(board, signal, (target) => mapOf(target, { board, config }));
  const lines = map.regions.map((region) => `${rangeOf(region)}  ${region.length} bytes  ${region.name}`);
  const regions = map.regions.map(({ name, start, length }) => ({ name, start: toHex(start), length: toHex(length) }));
  const nothing = "Nothing is in both the target's map and the configured one";
  return {
    output: [`Memory map of "${board}", from the ${map.source}:`, ...lines.length === 0 ? [nothing] : lines].join("\n"),
    isError: false,
    data: { board, source: map.source, regions },
  };
}

function mapOf(target: GdbTarget, { board, config }: Pick<BoardContext, "config"> & { readonly board: string }) {
  return usableMap(target, { board, configured: configuredBoard(config, board).memory_map });
}

/** Range of a board's memory. */
export interface MemoryRange {
  readonly board: string;
  readonly start: bigint;
  /** Bytes */
  readonly length: number;
}

/** Reads a range of a board's memory. @throws {ToolError} `address_outside_map` with the map's ranges, and those of usableMap and Boards */
export async function readBoardMemory(
  { board, start, length }: MemoryRange,
  { boards, config, signal }: BoardContext,
): Promise<ToolResult> {
  const bytes = await boards.attach(board, signal, async (target) => {
    const { regions, source } = await mapOf(target, { board, config });
    const outside = firstOutside(regions, start, length);
    if (outside === undefined) return await target.readMemory(start, length);
    const range = rangeOf({ start, length: BigInt(length) });
    throw new ToolError(
      "address_outside_map",
      `Cannot read ${range} of board "${board}": ${toHex(outside)} is outside its memory map (${source}), which has ${
        describeMap(regions) || "nothing"
      }`,
    );
  });
  return {
    output: hexDump(bytes, start),
    isError: false,
    data: { board, address: toHex(start), length, hex: Buffer.from(bytes).toString("hex") },
  };
}

const WIDTH = 16;

/** Returns lines of 16 bytes: the address, the bytes in hexadecimal, and as ASCII with `.` for characters that are not printable. */
export function hexDump(bytes: Uint8Array, start: bigint): string {
  const last = start + BigInt(bytes.length);
  const digits = Math.max(8, last.toString(16).length);
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += WIDTH) {
    const line = bytes.subarray(at, at + WIDTH);
    const hex = [...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(start + BigInt(at)).toString(16).padStart(digits, "0")}  ${hex.padEnd(WIDTH * 3 - 1)}  |${text}|`);
  }
  return lines.join("\n");
}

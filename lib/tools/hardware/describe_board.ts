import type { HostBoard } from "../../system/machine/read_host_board.ts";
import type { ToolResult } from "../runtime/tool.ts";
import type { BoardContext } from "./boards.ts";
import type { GdbTarget } from "./gdb_target.ts";
import { coreRegisters } from "./core_registers.ts";

const STUB_NAMES = { qemu: "QEMU", gdbserver: "gdbserver", other: "a GDB stub" } as const;

/**
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

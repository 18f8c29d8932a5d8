import assert from "node:assert/strict";
import { test } from "node:test";
import { callFilter } from "../../../lib/system/process/call_filter.ts";

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const [EPERM, ENOSYS, EAFNOSUPPORT] = [0x50001, 0x50026, 0x50061];

/** System call that the kernel asks a filter about. */
interface Call {
  readonly arch: number;
  readonly nr: number;
  readonly args?: readonly bigint[];
}

/** Runs a filter as the kernel does. Every other instruction than these is an error, and so is a jump out of the program. */
function judge(filter: Uint8Array, { arch, nr, args = [] }: Call): number {
  const data = new DataView(new ArrayBuffer(64));
  data.setUint32(0, nr, true);
  data.setUint32(4, arch, true);
  for (const [index, arg] of args.entries()) data.setBigUint64(16 + 8 * index, arg, true);
  const program = new DataView(filter.buffer, filter.byteOffset, filter.byteLength);
  let loaded = 0;
  for (let at = 0; at < filter.byteLength; at += 8) {
    const code = program.getUint16(at, true);
    const value = program.getUint32(at + 4, true);
    const jump = (is: boolean) => void (at += 8 * program.getUint8(at + (is ? 2 : 3)));
    if (code === 0x20) loaded = data.getUint32(value, true);
    else if (code === 0x54) loaded = (loaded & value) >>> 0;
    else if (code === 0x15) jump(loaded === value);
    else if (code === 0x25) jump(loaded > value);
    else if (code === 0x35) jump(loaded >= value);
    else if (code === 0x45) jump((loaded & value) !== 0);
    else if (code === 0x06) return value;
    else throw new Error(`No instruction ${code}`);
  }
  throw new Error("The filter has no end");
}

/** Numbers of calls, and the architecture, from the headers of Linux. */
const MACHINES = {
  x64: {
    arch: 0xc000003e,
    other: 0x40000003,
    refused: { ptrace: 101, add_key: 248, request_key: 249, keyctl: 250, perf: 298, bpf: 321, userfaultfd: 323 },
    ...{ read: 0, ioctl: 16, socket: 41, socketpair: 53, clone: 56, unshare: 272 },
    modes: { chmod: [90, 1], fchmod: [91, 1], fchmodat: [268, 2], fchmodat2: [452, 2], creat: [85, 1] },
    nodes: { mknod: [133, 1], mknodat: [259, 2] },
    opens: { open: [2, 1], openat: [257, 2] },
  },
  arm64: {
    arch: 0xc00000b7,
    other: 0x40000028,
    refused: { ptrace: 117, add_key: 217, request_key: 218, keyctl: 219, perf: 241, bpf: 280, userfaultfd: 282 },
    ...{ read: 63, ioctl: 29, socket: 198, socketpair: 199, clone: 220, unshare: 97 },
    modes: { fchmod: [52, 1], fchmodat: [53, 2], fchmodat2: [452, 2] },
    nodes: { mknodat: [33, 2] },
    opens: { openat: [56, 2] },
  },
} as const;

for (const machine of ["x64", "arm64"] as const) {
  const calls = MACHINES[machine];
  const judged = (localSockets: boolean, nr: number, ...args: readonly bigint[]) => {
    const filter = callFilter({ localSockets, machine });
    assert.ok(filter);
    return judge(filter, { arch: calls.arch, nr, args });
  };

  test(`on ${machine} the filter refuses calls by number, and ends programs of other architectures`, () => {
    const filter = callFilter({ localSockets: false, machine });
    assert.ok(filter);
    for (const arch of [calls.other, MACHINES[machine === "x64" ? "arm64" : "x64"].arch]) {
      assert.equal(judge(filter, { arch, nr: calls.read }), KILL);
    }
    for (const [name, nr] of Object.entries(calls.refused)) assert.equal(judged(true, nr), EPERM, name);
    for (const nr of [425, 426, 427, 435, 437]) assert.equal(judged(true, nr), ENOSYS);
    assert.equal(judged(false, calls.read, 1n, 1n), ALLOW);
  });

  test(`on ${machine} the filter looks at the half of an argument that the kernel looks at`, () => {
    const high = 1n << 32n;
    for (const way of [0x5412n, 0x541cn]) assert.equal(judged(true, calls.ioctl, 0n, way + high), EPERM);
    assert.equal(judged(true, calls.ioctl, 0n, 0x5413n), ALLOW);
    for (const call of [calls.clone, calls.unshare]) {
      assert.equal(judged(true, call, 0x10000000n | 0x11n | high), EPERM);
      assert.equal(judged(true, call, 0x11n), ALLOW);
    }
    for (const family of [0n, 3n, 17n, 38n, 40n, 44n]) assert.equal(judged(true, calls.socket, family), EAFNOSUPPORT);
    for (const family of [2n, 10n, 16n]) assert.equal(judged(false, calls.socket, family), ALLOW);
    assert.equal(judged(false, calls.socket, 1n + high), EAFNOSUPPORT);
    assert.equal(judged(true, calls.socket, 1n), ALLOW);
  });

  test(`on ${machine} no file gets the rights of its owner or group for whoever starts it`, () => {
    const at = (place: number, value: bigint) => [...Array<bigint>(place).fill(0o7777n), value];
    const changes = { ...calls.modes, ...calls.nodes };
    for (const [name, [nr, mode]] of Object.entries<readonly [number, number]>(changes)) {
      for (const bits of [0o4755n, 0o2755n, 0o2000n, 0o104755n, 0o7777n | (1n << 32n)]) {
        assert.equal(judged(true, nr, ...at(mode, bits)), EPERM, name);
      }
      for (const bits of [0o755n, 0o1777n, 0o100644n]) {
        assert.equal(judged(true, nr, ...at(mode, bits)), ALLOW, name);
      }
    }
    for (const [name, [nr, flags]] of Object.entries<readonly [number, number]>(calls.opens)) {
      const open = (how: bigint, mode: bigint) => judged(true, nr, ...at(flags, how), mode);
      for (const makes of [0o100n, 0o101n, 0o20200000n]) {
        const judgements = [open(makes, 0o4755n), open(makes, 0o2755n), open(makes, 0o755n)];
        assert.deepEqual(judgements, [EPERM, EPERM, ALLOW], name);
      }
      // A mode that nobody gave is whatever lies there
      for (const opens of [0n, 0o1n, 0o200000n]) assert.equal(open(opens, 0o6755n), ALLOW, name);
    }
  });

  test(`on ${machine} git gives folders of a shared repository their group, and makes no file with it`, () => {
    const filter = callFilter({ localSockets: false, sharesFolders: true, machine });
    assert.ok(filter);
    const of = (nr: number, ...args: readonly bigint[]) => judge(filter, { arch: calls.arch, nr, args });
    for (const [name, [nr, mode]] of Object.entries<readonly [number, number]>(calls.modes)) {
      const none = Array<bigint>(mode).fill(0n);
      const isMade = name === "creat";
      assert.equal(of(nr, ...none, 0o2775n), isMade ? EPERM : ALLOW, name);
      assert.equal(of(nr, ...none, 0o4775n), EPERM, name);
    }
    for (const [nr, flags] of Object.values<readonly [number, number]>(calls.opens)) {
      assert.equal(of(nr, ...Array<bigint>(flags).fill(0n), 0o100n, 0o2755n), EPERM);
    }
  });

  test(`on ${machine} pairs of Unix sockets are streams, which lead nowhere else`, () => {
    const [stream, datagram, raw, packets, closing] = [1n, 2n, 3n, 5n, 0x80000n];
    for (const type of [stream, packets, stream | closing]) {
      assert.equal(judged(false, calls.socketpair, 1n, type), ALLOW);
    }
    for (const type of [datagram, raw, datagram | closing]) {
      assert.equal(judged(false, calls.socketpair, 1n, type), EAFNOSUPPORT);
      assert.equal(judged(true, calls.socketpair, 1n, type), ALLOW);
    }
    assert.equal(judged(true, calls.socketpair, 30n, stream), EAFNOSUPPORT);
  });
}

test("x32 is refused, with its bit and without", () => {
  const filter = callFilter({ localSockets: true, machine: "x64" });
  assert.ok(filter);
  const { arch } = MACHINES.x64;
  for (const nr of [0x40000000, 0x40000000 + 41, 0xffffffff, 512, 521, 547]) {
    assert.equal(judge(filter, { arch, nr }), ENOSYS);
  }
  assert.deepEqual([511, 548].map((nr) => judge(filter, { arch, nr })), [ALLOW, ALLOW]);
});

test("there is no filter for other machines", () =>
  assert.equal(callFilter({ localSockets: false, machine: "riscv64" }), undefined));

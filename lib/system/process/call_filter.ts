import process from "node:process";

/**
 * Rules that the kernel applies to the system calls of a contained program: seccomp, as a program of classic BPF. They cannot see
 * memory, so that they know a call's number and its plain arguments, and no path.
 * Source: linux/seccomp.h, linux/filter.h, linux/audit.h, asm/unistd.h
 */

/** Numbers of the calls that the filter names, on one kind of machine. */
interface Machine {
  /** AUDIT_ARCH_*: a 32-bit program numbers its calls differently, and is ended */
  readonly architecture: number;
  /** Ranges of numbers, both ends included, that mean calls of another table: x32 */
  readonly foreign: readonly (readonly [number, number])[];
  readonly refused: readonly number[];
  readonly ioctl: number;
  readonly socket: number;
  readonly socketpair: number;
  readonly clone: number;
  readonly unshare: number;
  /** Calls that change a mode, of folders too, each with the place of the mode among its arguments */
  readonly modes: readonly (readonly [call: number, mode: number])[];
  /** Calls that make a file, and no folder */
  readonly makes: readonly (readonly [call: number, mode: number])[];
  /** Calls that make a file where their flags say so. The mode stands behind the flags */
  readonly opens: readonly (readonly [call: number, flags: number])[];
}

/** io_uring_setup, io_uring_enter, io_uring_register: the same everywhere */
const IO_URING = [425, 426, 427];
const CLONE3 = 435;
/** Has its arguments in memory */
const OPENAT2 = 437;
const FCHMODAT2 = 452;

const MACHINES: Readonly<Record<string, Machine>> = {
  x64: {
    architecture: 0xc000003e,
    // Kernels before 5.4 take the second range without the bit of the first
    foreign: [[0x40000000, 0xffffffff], [512, 547]],
    // ptrace, add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd
    refused: [101, 248, 249, 250, 298, 321, 323],
    ...{ ioctl: 16, socket: 41, socketpair: 53, clone: 56, unshare: 272 },
    // chmod, fchmod, fchmodat, fchmodat2; creat, mknod, mknodat; open, openat
    modes: [[90, 1], [91, 1], [268, 2], [FCHMODAT2, 2]],
    makes: [[85, 1], [133, 1], [259, 2]],
    opens: [[2, 1], [257, 2]],
  },
  arm64: {
    architecture: 0xc00000b7,
    foreign: [],
    refused: [117, 217, 218, 219, 241, 280, 282],
    ...{ ioctl: 29, socket: 198, socketpair: 199, clone: 220, unshare: 97 },
    modes: [[52, 1], [53, 2], [FCHMODAT2, 2]],
    makes: [[33, 2]],
    opens: [[56, 2]],
  },
};

const AF_UNIX = 1;
/** AF_INET, AF_INET6, AF_NETLINK (the list of network interfaces): no other family is let in, as AF_VSOCK, AF_ALG or AF_PACKET */
const FAMILIES = [2, 10, 16];
/** SOCK_STREAM, SOCK_SEQPACKET. An end of a pair of datagrams sends to any Unix socket that has a path */
const PAIR_TYPES = [1, 5];
const SOCK_TYPE_MASK = 0xf;
/** TIOCSTI, TIOCLINUX: they type on the terminal that the gateway was started at */
const TYPING = [0x5412, 0x541c];
const CLONE_NEWUSER = 0x10000000;
/** O_CREAT, and the own bit of O_TMPFILE */
const MAKES_FILE = 0x400040;
/** Bits of a program that runs with the rights of its owner, or its group: anybody on the machine would start it with those of the user */
const S_ISUID = 0o4000;
const S_ISGID = 0o2000;

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;

/** Places in struct seccomp_data. Of an argument, the lower half: the kernel cuts the ones that are looked at to 32 bits, or has its flags there */
const NUMBER = 0;
const ARCHITECTURE = 4;
const argument = (index: number) => 16 + 8 * index;

/** Instruction of BPF: code, steps to skip when true, when false, value. */
type Step = readonly [code: number, whenTrue: number, whenFalse: number, value: number];

const load = (place: number): Step => [0x20, 0, 0, place];
const keepBits = (bits: number): Step => [0x54, 0, 0, bits];
const end = (action: number): Step => [0x06, 0, 0, action];
const ALLOW = end(0x7fff0000);
const KILL = end(0x80000000);
const refuse = (errno: number) => end(0x00050000 | errno);
/** Steps that are done when the loaded value is that one. */
const whenIs = (value: number, steps: readonly Step[]): readonly Step[] => [[0x15, 0, steps.length, value], ...steps];
const whenIn = ([first, last]: readonly [number, number], steps: readonly Step[]): readonly Step[] => [
  [0x35, 0, steps.length + 1, first],
  [0x25, steps.length, 0, last],
  ...steps,
];
const whenAny = (bits: number, steps: readonly Step[]): readonly Step[] => [[0x45, 0, steps.length, bits], ...steps];
const withoutBits = (mode: number, bits: number) => [load(argument(mode)), ...whenAny(bits, [refuse(EPERM)]), ALLOW];

/**
 * Returns the filter for contained programs on this kind of machine, as bytes for `bwrap --seccomp`; undefined where none is known.
 * @param options.localSockets true: the program may make Unix sockets
 * @param options.sharesFolders true for git, which gives each folder of a shared repository that of its group, and so may change modes to
 * setgid. No program could tell a folder from a file by the call. Default false
 * @param options.machine as `process.arch`. Default: this machine's
 */
export function callFilter(
  { localSockets, sharesFolders = false, machine = process.arch }: {
    readonly localSockets: boolean;
    readonly sharesFolders?: boolean;
    readonly machine?: string;
  },
): Uint8Array | undefined {
  const calls = MACHINES[machine];
  return calls === undefined ? undefined : toBytes(stepsFor(calls, { localSockets, sharesFolders }));
}

function stepsFor(
  calls: Machine,
  { localSockets, sharesFolders }: { readonly localSockets: boolean; readonly sharesFolders: boolean },
): readonly Step[] {
  const changed = sharesFolders ? S_ISUID : S_ISUID | S_ISGID;
  const families = localSockets ? [AF_UNIX, ...FAMILIES] : FAMILIES;
  const noNamespace = [load(argument(0)), ...whenAny(CLONE_NEWUSER, [refuse(EPERM)]), ALLOW];
  const onlyStreams = [
    load(argument(1)),
    keepBits(SOCK_TYPE_MASK),
    ...PAIR_TYPES.flatMap((type) => whenIs(type, [ALLOW])),
    refuse(EAFNOSUPPORT),
  ];
  return [
    load(ARCHITECTURE),
    [0x15, 1, 0, calls.architecture],
    KILL,
    load(NUMBER),
    ...calls.foreign.flatMap((range) => whenIn(range, [refuse(ENOSYS)])),
    ...calls.refused.flatMap((call) => whenIs(call, [refuse(EPERM)])),
    // As on a kernel without them: programs then use the older calls, whose arguments can be looked at
    ...[...IO_URING, CLONE3, OPENAT2].flatMap((call) => whenIs(call, [refuse(ENOSYS)])),
    ...calls.modes.flatMap(([call, mode]) => whenIs(call, withoutBits(mode, changed))),
    ...calls.makes.flatMap(([call, mode]) => whenIs(call, withoutBits(mode, S_ISUID | S_ISGID))),
    ...calls.opens.flatMap(([call, flags]) =>
      whenIs(call, [load(argument(flags)), ...whenAny(MAKES_FILE, withoutBits(flags + 1, S_ISUID | S_ISGID)), ALLOW])
    ),
    ...[calls.clone, calls.unshare].flatMap((call) => whenIs(call, noNamespace)),
    ...whenIs(calls.ioctl, [load(argument(1)), ...TYPING.flatMap((way) => whenIs(way, [refuse(EPERM)])), ALLOW]),
    ...whenIs(calls.socket, [
      load(argument(0)),
      ...families.flatMap((family) => whenIs(family, [ALLOW])),
      refuse(EAFNOSUPPORT),
    ]),
    ...whenIs(calls.socketpair, [
      load(argument(0)),
      ...whenIs(AF_UNIX, localSockets ? [ALLOW] : onlyStreams),
      refuse(EAFNOSUPPORT),
    ]),
    ALLOW,
  ];
}

/** Returns the steps as an array of struct sock_filter. Both machines are little-endian. */
function toBytes(steps: readonly Step[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(8 * steps.length));
  for (const [index, [code, whenTrue, whenFalse, value]] of steps.entries()) {
    view.setUint16(8 * index, code, true);
    view.setUint8(8 * index + 2, whenTrue);
    view.setUint8(8 * index + 3, whenFalse);
    view.setUint32(8 * index + 4, value, true);
  }
  return new Uint8Array(view.buffer);
}

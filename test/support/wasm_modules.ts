import type { ModuleLimits } from "../../lib/extensions/plugins/wasm/meter_module.ts";
import { ModuleWriter } from "../../lib/extensions/plugins/wasm/module_bytes.ts";

/** Function that a module imports: its module and name, and its parameters and results as letters: `i` is i32, `I` is i64. */
export interface ImportedFunction {
  readonly module: string;
  readonly name: string;
  readonly type: `${string}:${string}`;
}

/** Part of a module that is not written as the rest: section id and content. */
export type Section = readonly [id: number, content: readonly number[] | Uint8Array];

/** Module of a test. Everything has a default but the code. */
export interface ModulePlan {
  /** Functions of Extism by their names, or others. Default: none */
  readonly imports?: readonly (ExtismName | ImportedFunction)[];
  /** Returns the code of `execute`, without its end. It must leave one i32. The locals 0 to 3 are i64, 4 to 7 are i32 */
  readonly execute: (call: (name: string) => readonly number[]) => readonly number[];
  /** Name that `execute` is exported under. Default: `execute` */
  readonly entrypoint?: string;
  /** Type of `execute`. Default: `:i` */
  readonly type?: ImportedFunction["type"];
  /** Function that runs when the module is instantiated, as code that leaves nothing. Default: none */
  readonly start?: readonly number[];
  /** Exported function that runs first, as `_initialize` of a reactor, as code that leaves nothing. Default: none */
  readonly initialize?: readonly number[];
  /** Limits of the memory in pages, such as `[min, max]` or `[min]`. Default: `[1]` */
  readonly memory?: readonly number[];
  /** Text at the address 0 of the memory. Default: none */
  readonly data?: string;
  /** Sections put behind all others, as custom ones. Default: none */
  readonly tail?: readonly Section[];
}

/** Functions of Extism's host, by their types. */
const EXTISM = {
  ...{ alloc: "I:I", free: "I:", length: "I:I", load_u8: "I:i", load_u64: "I:I", store_u8: "Ii:", store_u64: "II:" },
  ...{ input_length: ":I", input_load_u8: "I:i", input_load_u64: "I:I", output_set: "II:", error_set: "I:" },
  ...{ var_get: "I:I", var_set: "II:", config_get: "I:I", http_request: "II:I", http_status_code: ":i" },
} as const;
/** Name of a function of Extism's host. */
export type ExtismName = keyof typeof EXTISM;

/** Limits of a module without capabilities: it may import the functions above, and no others. */
export const PLAIN_LIMITS: ModuleLimits = {
  memoryMb: 64,
  moduleMb: 50,
  isGranted: (module, name) => module === "extism:host/env" && Object.hasOwn(EXTISM, name),
};

const HEADER = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];

/** Writes a constant of the type i32. */
export const i32 = (value: number): readonly number[] => [0x41, ...signed(BigInt(value))];
/** Writes a constant of the type i64. */
export const i64 = (value: number | bigint): readonly number[] => [0x42, ...signed(BigInt(value))];
/** Writes a loop that has no end but a branch out of it. */
export const forever = (body: readonly number[]): readonly number[] => [0x03, 0x40, ...body, 0x0c, 0, 0x0b];

/** Writes a module of sections as they are given: nothing is checked. */
export function moduleOf(...sections: readonly Section[]): Uint8Array<ArrayBuffer> {
  const module = new ModuleWriter().bytes(HEADER);
  for (const [id, content] of sections) module.byte(id).u32(content.length).bytes(content);
  return module.view().slice();
}

/** Writes a WASM module by Extism's interface. */
export function wasmModule(plan: ModulePlan): Uint8Array<ArrayBuffer> {
  const imports = (plan.imports ?? []).map((wanted) =>
    typeof wanted === "string" ? { module: "extism:host/env", name: wanted, type: EXTISM[wanted] } : wanted
  );
  const call = (name: string) => [0x10, ...unsigned(imports.findIndex((each) => each.name === name))];
  const bodies: { readonly code: readonly number[]; readonly type: string; readonly name?: string }[] = [{
    code: plan.execute(call),
    type: plan.type ?? ":i",
    name: plan.entrypoint ?? "execute",
  }];
  if (plan.initialize !== undefined) bodies.push({ code: plan.initialize, type: ":", name: "_initialize" });
  if (plan.start !== undefined) bodies.push({ code: plan.start, type: ":" });
  const types = [...new Set([...imports, ...bodies].map(({ type }) => type))];
  const exported = bodies.flatMap(({ name }, index) => name === undefined ? [] : [{ name, index }]);
  const data = new TextEncoder().encode(plan.data ?? "");
  return moduleOf(
    [1, list(types.map(typeOf))],
    [2, list(imports.map(({ module, name, type }) => [...text(module), ...text(name), 0, types.indexOf(type)]))],
    [3, list(bodies.map(({ type }) => [types.indexOf(type)]))],
    [4, [1, 0x70, 0, 1]],
    [5, list([limits(plan.memory ?? [1])])],
    [
      7,
      list([...exported.map(({ name, index }) => [...text(name), 0, ...unsigned(imports.length + index)]), [
        ...[...text("memory"), 2, 0],
      ]]),
    ],
    ...(plan.start === undefined ? [] : [[8, unsigned(imports.length + bodies.length - 1)] as const]),
    [10, list(bodies.map(({ code }) => sized([2, 4, 0x7e, 4, 0x7f, ...code, 0x0b])))],
    ...(data.length === 0 ? [] : [[11, list([[0, 0x41, 0, 0x0b, ...unsigned(data.length), ...data]])] as const]),
    ...(plan.tail ?? []),
  );
}

/** Returns the code that makes the text at address 0 the output of the call. It needs `alloc`, `store_u8` and `output_set`, and locals 0 and 4. */
export function outputText(content: string, call: (name: string) => readonly number[]): readonly number[] {
  const { length } = new TextEncoder().encode(content);
  return [
    ...[...i64(length), ...call("alloc"), 0x21, 0, 0x03, 0x40],
    ...[0x20, 0, 0x20, 4, 0xad, 0x7c, 0x20, 4, 0x2d, 0, 0, ...call("store_u8")],
    ...[0x20, 4, ...i32(1), 0x6a, 0x22, 4, ...i32(length), 0x49, 0x0d, 0, 0x0b],
    ...[0x20, 0, ...i64(length), ...call("output_set")],
  ];
}

/**
 * Returns a module that answers every call with a text, which is an answer when it is JSON.
 * @param options.first code that runs before, as a number of turns of a loop. It may use the locals 1 to 3 and 5 to 7
 */
export function answering(
  content = '{"output":"ready"}',
  { first = [], ...plan }: Partial<ModulePlan> & { readonly first?: readonly number[] } = {},
): Uint8Array<ArrayBuffer> {
  return wasmModule({
    ...plan,
    imports: ["alloc", "store_u8", "output_set", ...plan.imports ?? []],
    data: content,
    execute: (call) => [...first, ...outputText(content, call), ...i32(0)],
  });
}

/** Writes a loop of a number of turns, counted in the local 5. */
export const turns = (count: number): readonly number[] => [
  ...[...i32(count), 0x21, 5, 0x03, 0x40, 0x20, 5, ...i32(1), 0x6b, 0x22, 5, 0x0d, 0, 0x0b],
];

/** Fate of a hostile module: refused when it is loaded, or the call of it fails, within its limits. */
export type Fate = "refused" | "fails";

/** Hostile module with what must become of it. The bytes are made on demand: some are large. */
export interface HostileModule {
  readonly name: string;
  readonly fate: Fate;
  readonly make: () => Uint8Array<ArrayBuffer>;
}

const ready = '{"output":"ready"}';
const imported = (module: string, name: string, type: ImportedFunction["type"] = ":"): HostileModule["make"] => () =>
  answering(ready, { imports: [{ module, name, type }] });
const importedOther = (kind: readonly number[]) => () =>
  moduleOf([2, list([[...text("env"), ...text("it"), ...kind]])]);
const doing = (code: readonly number[]) => () => wasmModule({ execute: () => [...code, ...i32(0)] });
const calling =
  (imports: readonly ExtismName[], code: (call: (name: string) => readonly number[]) => readonly number[]) => () =>
    wasmModule({ imports, execute: (call) => [...code(call), ...i32(0)] });
const lying = (...content: readonly number[]) => () => Uint8Array.from([...answering(), 0, ...content]);

/** Modules that a gateway must survive. */
export const HOSTILE_MODULES: readonly HostileModule[] = [
  ...refused({
    "the import of a function that nobody grants": imported("env", "exec"),
    "the import of a function that Extism does not have": imported("extism:host/env", "spawn"),
    "the import of a function whose name has a zero byte": imported("extism:host/env", "alloc\0", "I:I"),
    "the import of a function of the user's host": imported("extism:host/user", "run_command"),
    "the import of an operation of files of WASI": imported("wasi_snapshot_preview1", "path_open", "iiiiiIIii:i"),
    "the import of a function of sockets of WASI": imported("wasi_snapshot_preview1", "sock_send", "iiiii:i"),
    "the import of what metering adds": imported("postern:meter", "tick", "i:i"),
    "an imported table": importedOther([1, 0x70, 0, 1]),
    "an imported memory": importedOther([2, 0, 1]),
    "an imported global": importedOther([3, 0x7f, 1]),
    "60 MB of custom section": () => answering(ready, { tail: [[0, new Uint8Array(60_000_000)]] }),
    "a truncated module": () => answering().slice(0, -7),
    "a custom section longer than the module": lying(0xff, 0xff, 0xff, 0x7f, 1, 65),
    "a custom section whose name is longer than it": lying(2, 9, 65),
    "a custom section whose size never ends": lying(0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
    "a memory that begins with 4 GB": () => answering(ready, { memory: [65_536] }),
    "a table that begins with 4,000,000,000 entries": () => moduleOf([4, [1, 0x70, 0, ...unsigned(4_000_000_000)]]),
    "4,000,000,000 locals": () =>
      moduleOf([1, list([typeOf(":")])], [3, [1, 0]], [10, list([sized([1, ...unsigned(4_000_000_000), 0x7f, 0x0b])])]),
    "a component": () => Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0),
    "a script": () => new TextEncoder().encode("#!/bin/sh\necho hello\n"),
  }),
  ...failing({
    "no function execute": () => answering(ready, { entrypoint: "run" }),
    "a function execute that wants a value": () => wasmModule({ type: "i:i", execute: () => i32(0) }),
    "a loop without end": doing(forever([])),
    "a start function without end": () => answering(ready, { start: forever([]) }),
    "a start function that traps": () => answering(ready, { start: [0x00] }),
    "an initialisation without end": () => answering(ready, { initialize: forever([]) }),
    "memory that grows without end": doing(forever([...i32(16), 0x40, 0, 0x1a])),
    "memory that is written without end": doing(
      forever([...i32(0), ...i32(1), ...i32(65_536), 0xfc, 11, 0]),
    ),
    "a table that grows without end": doing(forever([0xd0, 0x70, ...i32(1_000_000), 0xfc, 15, 0, 0x1a])),
    "memory of the host that grows without end": calling(
      ["alloc"],
      (call) => forever([...i64(1_000_000), ...call("alloc"), 0x1a]),
    ),
    "a block of the host of 4,000,000,000,000 bytes": calling(
      ["alloc", "store_u8"],
      (
        call,
      ) => [
        ...i64(4_000_000_000_000),
        ...call("alloc"),
        ...i64(3_999_999_999_999),
        0x7c,
        ...i32(1),
        ...call("store_u8"),
      ],
    ),
    "an output outside of the host's memory": calling(
      ["output_set"],
      (call) => [...i64(1n << 40n), ...i64(1n << 40n), ...call("output_set")],
    ),
    "an output of negative length": calling(["output_set"], (call) => [...i64(8), ...i64(-8), ...call("output_set")]),
    "an output of 60 MB": calling(
      ["alloc", "output_set"],
      (call) => [...i64(60_000_000), ...call("alloc"), ...i64(60_000_000), ...call("output_set")],
    ),
    "an error outside of the host's memory": () =>
      wasmModule({
        imports: ["error_set"],
        execute: (call) => [...i64(1n << 40n), ...call("error_set"), ...i32(1)],
      }),
    "a request without a request": calling(
      ["http_request"],
      (call) => [...i64(1n << 40n), ...i64(0), ...call("http_request"), 0x1a],
    ),
    "a variable outside of the host's memory": calling(
      ["var_set"],
      (call) => [...i64(1n << 40n), ...i64(1n << 41n), ...call("var_set")],
    ),
    "calls without end": () => wasmModule({ execute: () => [0x10, 0] }),
    "a trap": doing([0x00]),
    "a division by zero": doing([...i32(1), ...i32(0), 0x6d, 0x1a]),
    "a read outside of its memory": doing([...i32(-4), 0x28, 2, 0, 0x1a]),
    "a call of an empty entry": () => wasmModule({ execute: () => [...i32(0), 0x11, 0, 0] }),
    "a failure without a reason": () => wasmModule({ execute: () => i32(1) }),
    "no answer": doing([]),
    "an answer that is no JSON": () => answering("ready"),
    "an answer with a field that no answer has": () => answering('{"output":"ready","sudo":true}'),
    "an answer that nests deep": () => answering(`{"output":"ready","data":${"[".repeat(5000)}${"]".repeat(5000)}}`),
  }),
];

function refused(modules: Readonly<Record<string, HostileModule["make"]>>): readonly HostileModule[] {
  return Object.entries(modules).map(([name, make]) => ({ name, fate: "refused", make }));
}

function failing(modules: Readonly<Record<string, HostileModule["make"]>>): readonly HostileModule[] {
  return Object.entries(modules).map(([name, make]) => ({ name, fate: "fails", make }));
}

function typeOf(type: string): readonly number[] {
  const values = (letters = "") => list([...letters].map((letter) => [letter === "I" ? 0x7e : 0x7f]));
  const [parameters, results] = type.split(":");
  return [0x60, ...values(parameters), ...values(results)];
}

const limits = ([min = 0, max]: readonly number[]) =>
  max === undefined ? [0, ...unsigned(min)] : [1, ...unsigned(min), ...unsigned(max)];
const list = (items: readonly (readonly number[])[]) => [...unsigned(items.length), ...items.flat()];
const sized = (content: readonly number[]) => [...unsigned(content.length), ...content];
const unsigned = (value: number) => [...new ModuleWriter().u32(value).view()];
const text = (content: string) => sized([...new TextEncoder().encode(content)]);

function signed(value: bigint): readonly number[] {
  const bytes: number[] = [];
  for (let rest = value;; rest >>= 7n) {
    const low = Number(rest & 0x7fn);
    const isLast = (rest >> 6n) === 0n || (rest >> 6n) === -1n;
    bytes.push(isLast ? low : low | 0x80);
    if (isLast) return bytes;
  }
}

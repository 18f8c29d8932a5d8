/** Compares metered programs with plain ones, and their fuel with a count that knows nothing of metering: one by one, in a global. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LEFT, METER, meterModule, TICK } from "../../../../lib/extensions/plugins/wasm/meter_module.ts";
import { ModuleWriter } from "../../../../lib/extensions/plugins/wasm/module_bytes.ts";
import { triesOf } from "../../../support/seeded_random.ts";

/** The runtime's WASM, of which neither Node's types nor the project's speak. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: {
    readonly Module: new (bytes: Uint8Array) => object;
    readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
  };
};

/** Instruction as bytes. The label `OUTMOST` is that of the function, and `OUTMOST_BLOCK` that of the block around all of its code. */
type Code = readonly (readonly number[])[];
const OUTMOST = -1;
const OUTMOST_BLOCK = -2;
const LOCALS = 4;

/** Types by index: `run`, a pair of results, the pair's function, nothing to nothing. */
const TYPES = [[0x60, 1, 0x7f, 1, 0x7f], [0x60, 0, 2, 0x7f, 0x7f], [0x60, 2, 0x7f, 0x7f, 2, 0x7f, 0x7f], [0x60, 0, 0]];
const OPERATORS = [0x6a, 0x6b, 0x6c, 0x6d, 0x71, 0x73, 0x48, 0x70].map((opcode) => [opcode]);
const COUNTED = [[0x20, 3], [0x41, 1], [0x6a], [0x22, 3], [0x41, 30], [0x48]];
const END = [0x0b];
const MASK = [[0x41, 0x3f], [0x71]];

/** Code that leaves one number, over the locals 0 to 3. Each loop ends by local 3, which counts over the whole function. */
const { value: expression } = fc.letrec<{ value: Code; statement: Code }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.integer({ min: 0, max: 63 }).map((value) => [[0x41, value]]),
    fc.constantFrom([[0x20, 0]], [[0x20, 1]], [[0x20, 2]], [[0x23, 0]]),
    fc.tuple(tie("value"), tie("value"), fc.constantFrom(...OPERATORS)).map((
      [a, b, operator],
    ) => [...a, ...b, operator]),
    fc.tuple(tie("statement"), tie("value")).map(([first, value]) => [...first, ...value]),
    fc.tuple(tie("value"), tie("value"), tie("value"))
      .map(([condition, yes, no]) => [...condition, [0x04, 0x7f], ...yes, [0x05], ...no, END]),
    fc.tuple(tie("value"), tie("value"), tie("value"))
      .map(([value, condition, other]) => [[0x02, 0x7f], ...value, ...condition, [0x0d, 0], [0x1a], ...other, END]),
    // A loop with a parameter, and a block with two results
    fc.tuple(tie("value"), tie("statement"))
      .map(([value, body]) => [...value, [0x03, 0], [0x21, 1], ...body, [0x20, 1], ...COUNTED, [0x0d, 0], END]),
    fc.tuple(tie("value"), tie("value"), tie("value"))
      .map(([a, b, condition]) => [[0x02, 1], ...a, ...b, ...condition, [0x0d, 0], END, [0x6b]]),
    tie("value").map((value) => [...value, ...MASK, [0x2d, 0, 0]]),
    fc.tuple(tie("value"), tie("value")).map(([a, b]) => [...a, ...b, [0x10, 2], [0x73]]),
    fc.tuple(tie("value"), tie("value")).map(([a, b]) => [...a, ...b, [0x41, 0], [0x11, 2, 0], [0x6a]]),
    tie("value").map((value) => [...value, [0x10, 0]]),
    tie("value").map((value) => [...value, [0x28, 2, 0]]),
    fc.constant([[0x41, 1], [0x40, 0]]),
  ),
  statement: fc.oneof(
    { maxDepth: 4 },
    fc.tuple(tie("value"), fc.constantFrom([0x21, 1], [0x21, 2], [0x24, 0], [0x1a])).map((
      [value, set],
    ) => [...value, set]),
    fc.tuple(tie("value"), tie("statement")).map(([condition, body]) => [...condition, [0x04, 0x40], ...body, END]),
    tie("statement").map((body) => [
      ...[[0x02, 0x40], [0x03, 0x40], ...COUNTED, [0x45], [0x0d, 1], ...body, [0x0c, 0], END, END],
    ]),
    // A way out of two loops, and the next round of the outer one
    fc.tuple(tie("statement"), tie("value")).map(([body, choice]) => [
      ...[[0x02, 0x40], [0x03, 0x40], ...COUNTED, [0x45], [0x0d, 1], [0x03, 0x40], ...COUNTED, [0x45], [0x0d, 2]],
      ...[...body, ...choice, [0x0e, 3, 0, 1, 2, 0], END, END, END],
    ]),
    fc.tuple(tie("value"), tie("value")).map(([at, value]) => [...at, ...MASK, ...value, [0x36, 2, 0]]),
    fc.tuple(tie("value"), tie("statement"), tie("statement"))
      .map(([at, one, two]) => [[0x02, 0x40], [0x02, 0x40], ...at, [0x0e, 1, 0, 1], END, ...one, END, ...two]),
    // Ways out of the function: a branch, a return and a trap
    fc.tuple(tie("value"), tie("value")).map(([value, condition]) => [...value, ...condition, [0x0d, OUTMOST], [0x1a]]),
    fc.tuple(tie("value"), tie("value")).map((
      [value, condition],
    ) => [...condition, [0x04, 0x40], ...value, [0x0f], END]),
    fc.tuple(tie("value"), tie("value")).map(([value, choice]) => [
      ...[[0x02, 0x7f], ...value, ...choice, [0x0e, 2, 0, OUTMOST, 0], END, [0x1a]],
    ]),
    tie("value").map((condition) => [...condition, [0x04, 0x40], [0x00], END]),
    tie("value").map((length) => [[0x41, 0], [0x41, 9], ...length, [0x41, 0xff, 0x07], [0x71], [0xfc, 11, 0]]),
    fc.constant([[0x41, 0], [0x41, 0x80, 0x02], [0x41, 0x80, 0x03], [0xfc, 10, 0, 0]]),
    fc.constant(Array<readonly number[]>(230).fill([0x01])),
  ),
}));

/** Code that adds the number on the stack, or a constant, to the count in the global 1. */
const addCount = (units: Code): Code => [[0x23, 1], ...units, [0x6a], [0x24, 1]];
/** Units of lengths by the first two bytes of the instruction. The number is in the local 4 */
const LENGTHS: Readonly<Record<string, Code>> = {
  "252,11": [[0x20, 4], [0x41, 6], [0x76]],
  "252,10": [[0x20, 4], [0x41, 6], [0x76]],
  "64,0": [[0x20, 4], [0x41, 6], [0x74]],
};

/** Returns the bytes of code, with a count in the global 1 if `counts`. The rule is written here again, over whole instructions. */
function bytesOf(code: Code, counts: boolean): readonly number[] {
  const one = counts ? addCount([[0x41, 1]]).flat() : [];
  const written = [...one];
  let depth = 0;
  let starts = false;
  let instructions = LOCALS;
  for (const [opcode = 0, ...operands] of [...code, END]) {
    const isJoin = opcode === 0x0b || opcode === 0x05;
    if (!isJoin && (starts || instructions >= 100)) {
      written.push(...one);
      instructions = 0;
      starts = false;
    }
    instructions++;
    const length = LENGTHS[`${opcode},${operands[0]}`];
    if (counts && length !== undefined) written.push(0x22, 4, ...addCount(length).flat());
    written.push(opcode, ...operands.map((operand) => operand < 0 ? depth + 1 + operand : operand));
    if (opcode >= 0x02 && opcode <= 0x04) depth++;
    if (opcode === 0x0b) depth--;
    starts ||= [0x00, 0x03, 0x04, 0x05, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f].includes(opcode);
  }
  return written;
}

/** Returns the code of `pair`: it calls no function of the module, and its ways out leave a block around all of it. */
function pairOf(code: Code): Code {
  const inner = code.map(([opcode = 0, ...operands]) => {
    if (opcode === 0x0f) return [0x0c, OUTMOST_BLOCK];
    if (opcode === 0x11) return [0x1a];
    if (opcode === 0x10 && operands[0] === 2) return [0x01];
    return [opcode, ...operands.map((operand) => operand === OUTMOST ? OUTMOST_BLOCK : operand)];
  });
  return [[0x02, 0x7f], ...inner, END, [0x21, 1], [0x20, 1], [0x20, 0]];
}

/** Returns a module with `run` (1), of which `pair` (2) is called by name and by table, and an imported function (0). */
function moduleOf(run: Code, pair: Code, counts = false): Uint8Array {
  const body = (code: Code) => new ModuleWriter().bytes([1, LOCALS, 0x7f, ...bytesOf(code, counts)]);
  const exported = new ModuleWriter().text("run").bytes([0, 1]).text("memory").bytes([2, 0]).text("count").bytes([3, 1])
    .text("global").bytes([3, 0]).view();
  const sections: readonly (readonly [id: number, bytes: ModuleWriter])[] = [
    [1, new ModuleWriter().byte(TYPES.length).bytes(TYPES.flat())],
    [2, new ModuleWriter().byte(1).text("env").text("host").bytes([0, 0])],
    [3, new ModuleWriter().bytes([2, 0, 2])],
    [4, new ModuleWriter().bytes([1, 0x70, 0, 1])],
    [5, new ModuleWriter().bytes([1, 1, 1, 4])],
    [6, new ModuleWriter().bytes([2, 0x7f, 1, 0x41, 7, 0x0b, 0x7f, 1, 0x41, 0, 0x0b])],
    [7, new ModuleWriter().byte(4).bytes(exported)],
    [9, new ModuleWriter().bytes([1, 0, 0x41, 0, 0x0b, 1, 2])],
    [10, new ModuleWriter().byte(2).sized(body(run)).sized(body(pairOf(pair)))],
  ];
  const module = new ModuleWriter().bytes([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
  for (const [id, bytes] of sections) module.byte(id).sized(bytes);
  return module.view();
}

interface Outcome {
  /** Result of `run`, or its error */
  readonly value: number | string;
  readonly used: number;
  /** Numbers that the module left behind */
  readonly left: readonly number[];
}

/** Runs a module that is plain, counts by itself, or is metered with slices of some size. */
function run(bytes: Uint8Array, input: number, slice = 0): Outcome {
  let given = 0;
  const tick = (left: number) => {
    assert.ok(left < 0);
    given += slice - left;
    return slice;
  };
  const host = (value: number) => {
    if (value % 50 === 49) throw new Error("of the host");
    (exports[LEFT] ?? { value: 0 }).value -= 3;
    exports.count.value += 3;
    return value ^ 1;
  };
  const module = slice === 0
    ? bytes
    : meterModule(bytes, { memoryMb: 1, moduleMb: 1, isGranted: (module) => module === "env" }).bytes;
  const instance = new WebAssembly.Instance(new WebAssembly.Module(module), {
    env: { host },
    [METER]: { [TICK]: tick },
  });
  // The programs export exactly this
  const exports = instance.exports as {
    readonly run: (input: number) => number;
    readonly memory: { readonly buffer: ArrayBuffer };
    readonly count: { value: number };
    readonly global: { value: number };
    readonly [LEFT]?: { value: number };
  };
  const call = (): number | string => {
    try {
      return exports.run(input);
    } catch (error) {
      return String(error);
    }
  };
  const value = call();
  const used = slice === 0 ? exports.count.value : given - (exports[LEFT]?.value ?? 0);
  return {
    value,
    used,
    left: [exports.global.value, exports.memory.buffer.byteLength, ...new Uint8Array(exports.memory.buffer, 0, 1024)],
  };
}

/** Errors that an instruction does not raise: the count is exact then, as it is without an error. */
const EXACT = /unreachable|of the host/;

test("a metered program does what the plain one does, and uses what a count one by one finds, whatever the slices", () => {
  const tries = triesOf(200);
  const ends = { exact: 0, trapped: 0 };
  fc.assert(
    fc.property(expression, expression, fc.integer({ min: -9, max: 99 }), (main, pair, input) => {
      const bytes = moduleOf(main, pair);
      const { used: _, ...plain } = run(bytes, input);
      const { used: counted } = run(moduleOf(main, pair, true), input);
      const isExact = typeof plain.value === "number" || EXACT.test(plain.value);
      ends[isExact ? "exact" : "trapped"]++;
      for (const slice of [1, 7, 100_000]) {
        const { used, ...metered } = run(bytes, input, slice);
        assert.deepEqual(metered, plain);
        if (isExact) assert.equal(used, counted);
        else {assert.ok(
            used <= counted && counted - used <= slice + 1000,
            `${used} of ${counted} by slices of ${slice}`,
          );}
      }
    }),
    { numRuns: tries },
  );
  assert.ok(ends.exact > tries / 10, JSON.stringify(ends));
  // Two of a hundred end so
  assert.ok(tries < 1000 || ends.trapped > 3, JSON.stringify(ends));
});

import { type ModuleReader, ModuleWriter, WasmRefusal } from "./module_bytes.ts";

/** Indices of the parts that metering adds to a module, and of the module's own. */
export interface MeterPlaces {
  /** Imports of the module itself. The function `tick` is imported behind them, so every later function moves by one */
  readonly importedFunctions: number;
  /** Functions of the module itself, imported ones included */
  readonly functions: number;
  /** Globals of the module itself. The global with the units that are left stands behind them */
  readonly globals: number;
}

/** Instructions that one unit of fuel pays for at most: a longer basic block costs more units. */
const UNIT_INSTRUCTIONS = 100;
const MAX_LOCALS = 50_000;
const MAX_DEPTH = 1000;

/** Returns the new index of a function. @throws {WasmRefusal} for one that the module does not have, as metering's own */
export function movedFunction(index: number, { importedFunctions, functions }: MeterPlaces): number {
  if (index >= functions) {
    throw new WasmRefusal("module_invalid", `it names the function ${index}, which it does not have`);
  }
  return index < importedFunctions ? index : index + 1;
}

/** Helper functions behind the module's own: each charges for a length and returns it. */
const HELPERS = { bytes: 0, pages: 1, entries: 2 } as const;

/** Writes a call of a helper. */
function chargeLength(helper: keyof typeof HELPERS, writer: ModuleWriter, { functions }: MeterPlaces): void {
  writer.byte(0x10).u32(functions + 1 + HELPERS[helper]);
}

/** Returns the bodies of the helpers, in the order of their indices: a unit for 64 bytes, 64 for a page, one for 4 entries. */
export function helperBodies(places: MeterPlaces): readonly ModuleWriter[] {
  const perBytes = new ModuleWriter().bytes([0x20, 0]).i32Const(6).byte(0x76);
  const perPages = new ModuleWriter().bytes([0x20, 0]).i32Const(65_536).bytes([0x20, 0]).i32Const(65_536)
    .bytes([0x49, 0x1b]).i32Const(6).byte(0x74);
  const perEntries = new ModuleWriter().bytes([0x20, 0]).i32Const(2).byte(0x76);
  return [perBytes, perPages, perEntries].map((units) => {
    const body = new ModuleWriter().byte(0);
    writeCharge(body, units.view(), places);
    return body.bytes([0x20, 0, 0x0b]);
  });
}

/** Writes `left -= units; if (left < 0) left = tick(left)`. */
function writeCharge(writer: ModuleWriter, units: Uint8Array, { globals, importedFunctions }: MeterPlaces): void {
  writer.byte(0x23).u32(globals).bytes(units).byte(0x6b).byte(0x24).u32(globals);
  writer.byte(0x23).u32(globals).bytes([0x41, 0, 0x48, 0x04, 0x40]);
  writer.byte(0x23).u32(globals).byte(0x10).u32(importedFunctions).byte(0x24).u32(globals).byte(0x0b);
}

/** Basic block: where its charge goes, and how many instructions it has. */
interface Block {
  readonly at: number;
  instructions: number;
}

/**
 * Returns the body of a function with a charge at the start of each basic block. A block begins with the function, behind a label, and
 * behind each branch. Bulk operations and growth charge for their length.
 * @throws {WasmRefusal} for damaged code, and for instructions that are not on the list
 */
export function meterBody(reader: ModuleReader, places: MeterPlaces): ModuleWriter {
  const start = reader.position;
  const locals = countLocals(reader);
  const header = reader.since(start);
  const code = new ModuleWriter();
  const blocks: Block[] = [{ at: 0, instructions: locals }];
  let depth = 1;
  let startsBlock = false;
  while (depth > 0) {
    const opcode = reader.byte();
    if (startsBlock && opcode !== 0x0b && opcode !== 0x05) {
      blocks.push({ at: code.length, instructions: 0 });
      startsBlock = false;
    }
    const current = blocks.at(-1);
    if (current !== undefined) current.instructions++;
    if (opcode >= 0x02 && opcode <= 0x04 && ++depth > MAX_DEPTH) {
      throw new WasmRefusal("module_too_large", `its code nests deeper than ${MAX_DEPTH} levels`);
    }
    if (opcode === 0x0b) depth--;
    copyInstruction(opcode, reader, { code, places });
    startsBlock ||= ENDS_BLOCK.has(opcode);
  }
  reader.finish("function");
  return withCharges(header, { code, blocks, places });
}

/** Instructions behind which another basic block begins: loop, if, else, end, branches, return and unreachable. */
const ENDS_BLOCK = new Set([0x00, 0x03, 0x04, 0x05, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f]);

function withCharges(
  header: Uint8Array,
  { code, blocks, places }: {
    readonly code: ModuleWriter;
    readonly blocks: readonly Block[];
    readonly places: MeterPlaces;
  },
): ModuleWriter {
  const body = new ModuleWriter().bytes(header);
  blocks.forEach(({ at, instructions }, index) => {
    const units = new ModuleWriter().i32Const(1 + Math.floor(instructions / UNIT_INSTRUCTIONS));
    writeCharge(body, units.view(), places);
    body.bytes(code.view(at, blocks[index + 1]?.at ?? code.length));
  });
  return body;
}

function countLocals(reader: ModuleReader): number {
  let locals = 0;
  for (let groups = reader.count(MAX_LOCALS, "groups of locals"); groups > 0; groups--) {
    locals += reader.u32();
    if (locals > MAX_LOCALS) throw new WasmRefusal("module_too_large", `a function has more than ${MAX_LOCALS} locals`);
    readValueType(reader);
  }
  return locals;
}

/** Reads a type of values: numbers, vectors and references, and none of the garbage collector. */
export function readValueType(reader: ModuleReader): void {
  const type = reader.byte();
  if ((type < 0x7b || type > 0x7f) && type !== 0x70 && type !== 0x6f) {
    throw new WasmRefusal("module_feature", `it uses the type 0x${type.toString(16)}, as of garbage collection`);
  }
}

/** Features by the first byte of their instructions. */
const REFUSED: Readonly<Record<number, string>> = {
  ...Object.fromEntries([0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f].map((opcode) => [opcode, "exceptions"])),
  ...Object.fromEntries([0x12, 0x13, 0x15].map((opcode) => [opcode, "tail calls"])),
  0x14: "typed function references",
  0xfb: "garbage collection",
  0xfe: "threads",
};

interface CodeCopy {
  readonly code: ModuleWriter;
  readonly places: MeterPlaces;
}

/** Copies one instruction whose first byte was read. Indices of functions move; a charge for a length goes in front. */
export function copyInstruction(opcode: number, reader: ModuleReader, copy: CodeCopy): void {
  const { code, places } = copy;
  const start = reader.position - 1;
  switch (opcode) {
    case 0x10:
    case 0xd2:
      code.byte(opcode).u32(movedFunction(reader.u32(), places));
      return;
    case 0x40:
      chargeLength("pages", code, places);
      break;
    case 0xfc:
      return copyBulk(reader, copy);
    case 0x23:
    case 0x24:
      if (reader.u32() >= places.globals) {
        throw new WasmRefusal("module_invalid", "it names a global that it does not have");
      }
      code.bytes(reader.since(start));
      return;
    case 0xfd:
      skipVector(reader);
      code.bytes(reader.since(start));
      return;
  }
  skipOperands(opcode, reader);
  code.bytes(reader.since(start));
}

function skipOperands(opcode: number, reader: ModuleReader): void {
  if (opcode <= 0x01 || opcode === 0x05 || opcode === 0x0b || opcode === 0x0f || opcode === 0x1a || opcode === 0x1b) {
    return;
  }
  if (opcode >= 0x45 && opcode <= 0xc4 || opcode === 0xd1) return;
  if (opcode >= 0x02 && opcode <= 0x04 || opcode === 0x41) return reader.skipNumber(5);
  if (opcode === 0x0c || opcode === 0x0d || opcode >= 0x20 && opcode <= 0x22 || opcode === 0x25 || opcode === 0x26) {
    return void reader.u32();
  }
  if (opcode >= 0x28 && opcode <= 0x3e) return skipPlace(reader);
  switch (opcode) {
    case 0x0e:
      for (let labels = reader.u32() + 1; labels > 0; labels--) reader.u32();
      return;
    case 0x11:
      reader.u32();
      reader.u32();
      return;
    case 0x1c:
      for (let types = reader.u32(); types > 0; types--) readValueType(reader);
      return;
    case 0x3f:
    case 0x40:
      return onlyMemory(reader.byte());
    case 0x42:
      return reader.skipNumber(10);
    case 0x43:
      return void reader.take(4);
    case 0x44:
      return void reader.take(8);
    case 0xd0:
      return readValueType(reader);
  }
  throw new WasmRefusal(
    "module_feature",
    `it uses ${REFUSED[opcode] ?? `the unknown instruction 0x${opcode.toString(16)}`}`,
  );
}

/** Skips alignment and offset of an access to memory. */
function skipPlace(reader: ModuleReader): void {
  if (reader.u32() >= 0x40) throw new WasmRefusal("module_feature", "it uses several memories");
  reader.u32();
}

function onlyMemory(index: number): void {
  if (index !== 0) throw new WasmRefusal("module_feature", "it uses several memories");
}

/** Operations on ranges of memory and tables, by number: how many indices follow, and what their length is charged as. */
const BULK: Readonly<Record<number, readonly [indices: number, charge?: keyof typeof HELPERS]>> = {
  ...Object.fromEntries([0, 1, 2, 3, 4, 5, 6, 7].map((number) => [number, [0]])),
  ...{ 8: [2, "bytes"], 9: [1], 10: [2, "bytes"], 11: [1, "bytes"] },
  ...{ 12: [2, "entries"], 13: [1], 14: [2, "entries"], 15: [1, "entries"], 16: [1], 17: [1, "entries"] },
};

function copyBulk(reader: ModuleReader, { code, places }: CodeCopy): void {
  const start = reader.position - 1;
  const number = reader.u32();
  const known = BULK[number];
  if (known === undefined) throw new WasmRefusal("module_feature", `it uses the unknown instruction 0xfc ${number}`);
  const [indices, charge] = known;
  for (let index = 0; index < indices; index++) reader.u32();
  if (charge !== undefined) chargeLength(charge, code, places);
  code.bytes(reader.since(start));
}

/** Skips a vector instruction. The relaxed ones are refused: their results differ between machines. */
function skipVector(reader: ModuleReader): void {
  const number = reader.u32();
  if (number > 0xff) throw new WasmRefusal("module_feature", "it uses relaxed vector instructions");
  if (number === 12 || number === 13) return void reader.take(16);
  const isAccess = number <= 11 || number >= 84 && number <= 93;
  if (isAccess) skipPlace(reader);
  if (number >= 21 && number <= 34 || number >= 84 && number <= 91) reader.byte();
}

import { type ChargedLength, checkGlobal, type MeterPlaces } from "./charges.ts";
import { type ModuleReader, WasmRefusal } from "./module_bytes.ts";

/** Kinds of instructions by what follows their first byte, and by what metering does with them. */
export const KIND = {
  /** Nothing follows */
  plain: 1,
  /** A number in LEB128 follows */
  number: 2,
  /** Alignment and offset of an access to memory follow */
  place: 3,
  /** `block`, `loop` and `if` */
  opening: 4,
  /** The index of a local follows, in most cases in one byte */
  local: 8,
  /** `else` */
  otherwise: 5,
  end: 6,
  /** Instruction that `rewrite` reads and writes */
  other: 7,
} as const;

/** Kind of each instruction by its first byte. */
export const KINDS = kindsOfInstructions();

function kindsOfInstructions(): Uint8Array {
  const kinds = new Uint8Array(256).fill(KIND.other);
  const ranges = [
    ...[[KIND.plain, 0x01, 0x01], [KIND.plain, 0x1a, 0x1b], [KIND.plain, 0x45, 0xc4], [KIND.plain, 0xd1, 0xd1]],
    ...[[KIND.local, 0x20, 0x22], [KIND.number, 0x25, 0x26], [KIND.number, 0x41, 0x42], [KIND.place, 0x28, 0x3e]],
    ...[[KIND.opening, 0x02, 0x04], [KIND.otherwise, 0x05, 0x05], [KIND.end, 0x0b, 0x0b]],
  ];
  for (const [kind = 0, from = 0, to = 0] of ranges) kinds.fill(kind, from, to + 1);
  return kinds;
}

/** Reads a type of values: numbers, vectors and references, and none of the garbage collector. */
export function readValueType(reader: ModuleReader): void {
  const type = reader.byte();
  if ((type < 0x7b || type > 0x7f) && type !== 0x70 && type !== 0x6f) {
    throw new WasmRefusal("module_feature", `it uses the type 0x${type.toString(16)}, as of garbage collection`);
  }
}

/** Reads the type of a block: none, one value, or the index of a type. */
export function readBlockType(reader: ModuleReader, { types }: MeterPlaces): void {
  const start = reader.position;
  const type = reader.byte();
  if (type >= 0x40 && type < 0x80) {
    reader.position = start;
    return type === 0x40 ? void reader.byte() : readValueType(reader);
  }
  reader.position = start;
  if (reader.u32() >= types) throw noType();
}

function noType(): WasmRefusal {
  return new WasmRefusal("module_invalid", "it names a type that it does not have");
}

/** Returns the refusal of a module with several memories. */
export function severalMemories(): WasmRefusal {
  return new WasmRefusal("module_feature", "it uses several memories");
}

/** Features by the first byte of their instructions. */
const REFUSED: Readonly<Record<number, string>> = {
  ...Object.fromEntries([0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f].map((opcode) => [opcode, "exceptions"])),
  ...Object.fromEntries([0x12, 0x13, 0x15].map((opcode) => [opcode, "tail calls"])),
  0x14: "typed function references",
  0xfb: "garbage collection",
  0xfe: "threads",
};

/**
 * Skips what follows the first byte of an instruction that names no function and no label.
 * @returns the length that it charges for, or `call`; undefined for an instruction without either
 * @throws {WasmRefusal} for an instruction that is not on the list
 */
export function skipOperands(
  opcode: number,
  reader: ModuleReader,
  places: MeterPlaces,
): ChargedLength | "call" | undefined {
  if (KINDS[opcode] === KIND.plain) return undefined;
  switch (opcode) {
    case 0x11:
      if (reader.u32() >= places.types) throw noType();
      reader.u32();
      return "call";
    case 0x1c:
      for (let types = reader.u32(); types > 0; types--) readValueType(reader);
      return undefined;
    case 0x23:
    case 0x24:
      checkGlobal(reader.u32(), places);
      return undefined;
    case 0x3f:
    case 0x40:
      if (reader.byte() !== 0) throw severalMemories();
      return opcode === 0x40 ? "pages" : undefined;
    case 0x41:
    case 0x42:
      reader.skipNumber(10);
      return undefined;
    case 0x43:
    case 0x44:
      reader.take(opcode === 0x43 ? 4 : 8);
      return undefined;
    case 0xd0:
      readValueType(reader);
      return undefined;
    case 0xfc:
      return skipBulk(reader);
    case 0xfd:
      skipVector(reader);
      return undefined;
  }
  const what = REFUSED[opcode] ?? `the unknown instruction 0x${opcode.toString(16)}`;
  throw new WasmRefusal("module_feature", `it uses ${what}`);
}

/** Operations on ranges of memory and tables, by number: how many indices follow, and what their length is charged as. */
const BULK: Readonly<Record<number, readonly [indices: number, charge?: ChargedLength]>> = {
  ...Object.fromEntries([0, 1, 2, 3, 4, 5, 6, 7].map((number) => [number, [0]])),
  ...{ 8: [2, "bytes"], 9: [1], 10: [2, "bytes"], 11: [1, "bytes"] },
  ...{ 12: [2, "entries"], 13: [1], 14: [2, "entries"], 15: [1, "entries"], 16: [1], 17: [1, "entries"] },
};

function skipBulk(reader: ModuleReader): ChargedLength | undefined {
  const number = reader.u32();
  const known = BULK[number];
  if (known === undefined) throw new WasmRefusal("module_feature", `it uses the unknown instruction 0xfc ${number}`);
  const [indices, charge] = known;
  for (let index = 0; index < indices; index++) reader.u32();
  return charge;
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

/** Skips alignment and offset of an access to memory. */
function skipPlace(reader: ModuleReader): void {
  if (reader.u32() >= 0x40) throw severalMemories();
  reader.u32();
}

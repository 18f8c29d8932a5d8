import { callHelper, type Charges, type ChargesOf, createCharges, type MeterPlaces, movedFunction } from "./charges.ts";
import { KIND, KINDS, readBlockType, readValueType, severalMemories, skipOperands } from "./instructions.ts";
import { type ModuleReader, WasmRefusal } from "./module_bytes.ts";

/** Instructions that one unit of fuel pays for at most: a longer basic block costs more units. */
const UNIT_INSTRUCTIONS = 100;
const MAX_LOCALS = 49_999;
const MAX_DEPTH = 10_000;
/** Levels times locals of a function at most: an engine may keep the state of every local for every level while it compiles */
const MAX_STATES = 5_000_000;
/** Bytes of the size of a body, which is written when the body is */
const SIZE_BYTES = 5;
/** Bytes that one insertion has at most */
const MAX_INSERTION = 80;
/** Bytes up to which a loop copies faster than the runtime */
const MAX_LOOPED = 64;
const END = Uint8Array.of(0x0b);
/** Group with one local of the type i32 */
const COUNTER = Uint8Array.of(1, 0x7f);

/**
 * Meters the bodies of a module's functions, one after the other.
 *
 * A charge of one unit stands at the start of each basic block: a block begins with the function, behind a label, behind each branch, and
 * after 100 instructions. A function counts in a local of its own and writes the count back before each call and each way out. A single
 * instruction that traps loses what its function counted since: less than one slice of fuel, and the same on every runtime.
 *
 * A loop becomes two, one inside the other: the inner one counts, and the outer one asks for more. A call in the inner one would make the
 * engine spill registers in each round, which takes longer than the count itself.
 */
export class CodeMeter {
  readonly #bytes: Uint8Array;
  readonly #places: MeterPlaces;
  readonly #chargesOf: ChargesOf;
  #written: Uint8Array<ArrayBuffer>;
  #length = 0;
  /** Every byte of the module before this position is written, or left out */
  #copied = 0;
  #charges: Charges;
  /** Number of the function's own locals, parameters included. Metering's own local stands behind them */
  #locals = 0;
  #depth = 0;
  /** Number of the loops among the labels of the function up to each level: each loop is two labels in what is written */
  readonly #loops = new Uint16Array(MAX_DEPTH + 1);
  /** True once the function calls another outside of its loops: the rounds of loops ask for more anyway */
  #calls = false;

  /** @param size bytes of all bodies, from which the first guess at the room comes */
  constructor(bytes: Uint8Array, { places, size }: { readonly places: MeterPlaces; readonly size: number }) {
    this.#bytes = bytes;
    this.#places = places;
    this.#written = new Uint8Array(size * 2 + 4096);
    this.#chargesOf = createCharges(places);
    this.#charges = this.#chargesOf(1, 0);
  }

  /** Returns the bodies that were written, each behind its size. */
  view(): Uint8Array<ArrayBuffer> {
    return this.#written.subarray(0, this.#length);
  }

  /**
   * Writes the body of the next function.
   * @param reader of exactly this body
   * @param parameters number of the function's parameters
   * @throws {WasmRefusal} for damaged code, and for instructions that are not on the list
   */
  body(reader: ModuleReader, parameters: number): void {
    const start = this.#length;
    const groups = reader.count(MAX_LOCALS, "groups of locals");
    const first = reader.position;
    const locals = countLocals(reader, groups);
    this.#locals = parameters + locals;
    this.#charges = this.#chargesOf(1 + Math.floor(locals / UNIT_INSTRUCTIONS), this.#locals);
    this.#depth = 1;
    this.#loops[1] = 0;
    this.#calls = false;
    this.#length += SIZE_BYTES;
    this.#copied = first;
    this.#copyTo(first);
    this.#number(groups + 1);
    this.#insertAt(reader.position, COUNTER);
    this.#insert(this.#charges.entry);
    const refill = this.#length;
    this.#insert(this.#charges.refill);
    this.#instructions(reader, locals % UNIT_INSTRUCTIONS);
    reader.finish("function");
    if (!this.#calls) this.#remove(refill, this.#charges.refill.length);
    this.#writeSize(start);
  }

  /** Writes all instructions of a body, as one loop over plain numbers: the time that loading a module takes is spent here. */
  #instructions(reader: ModuleReader, counted: number): void {
    const bytes = this.#bytes;
    const shortLocals = Math.min(this.#locals, 0x80);
    let at = reader.position;
    let instructions = counted;
    let startsBlock = false;
    let startsRound = false;
    while (at < reader.end) {
      const opcode = bytes[at] ?? 0;
      if ((startsBlock || instructions >= UNIT_INSTRUCTIONS) && opcode !== 0x0b && opcode !== 0x05) {
        this.#insertAt(at, startsRound ? this.#charges.round : this.#charges.block);
        instructions = 0;
        startsBlock = false;
        startsRound = false;
      }
      instructions++;
      switch (KINDS[opcode]) {
        case KIND.plain:
          at++;
          break;
        case KIND.number:
          at++;
          while ((bytes[at++] ?? 0) > 0x7f);
          break;
        case KIND.place:
          if ((bytes[at + 1] ?? 0) > 0x3f) throw severalMemories();
          at += 2;
          while ((bytes[at++] ?? 0) > 0x7f);
          break;
        case KIND.local:
          at = (bytes[at + 1] ?? 0xff) < shortLocals ? at + 2 : this.#longLocal(reader, at + 1);
          break;
        case KIND.opening:
          startsRound = opcode === 0x03;
          startsBlock = opcode !== 0x02;
          at = this.#open(reader, at, startsRound);
          break;
        case KIND.end:
          this.#depth--;
          if (this.#depth === 0) {
            this.#insertAt(at, this.#charges.save);
            this.#copyTo(reader.position = at + 1);
            return;
          }
          at++;
          if (this.#loops[this.#depth + 1] !== this.#loops[this.#depth]) this.#insertAt(at, END);
          startsBlock = true;
          break;
        case KIND.otherwise:
          at++;
          startsBlock = true;
          break;
        default:
          reader.position = at + 1;
          startsBlock = this.#rewrite(opcode, reader);
          at = reader.position;
      }
    }
    throw reader.tooShort();
  }

  /** Reads the index of a local that may have several bytes, and returns the position behind it. The local with the count is not the module's. */
  #longLocal(reader: ModuleReader, at: number): number {
    reader.position = at;
    if (reader.u32() >= this.#locals) {
      throw new WasmRefusal("module_invalid", "it names a local that it does not have");
    }
    return reader.position;
  }

  /** Goes one level deeper, and returns the position behind the type of the block. The head of a loop is written twice. */
  #open(reader: ModuleReader, at: number, isLoop: boolean): number {
    this.#depth++;
    if (this.#depth > MAX_DEPTH || this.#depth * this.#locals > MAX_STATES) {
      throw new WasmRefusal(
        "module_too_large",
        `its code nests deeper than ${this.#depth - 1} levels with ${this.#locals} locals`,
      );
    }
    this.#loops[this.#depth] = (this.#loops[this.#depth - 1] ?? 0) + (isLoop ? 1 : 0);
    reader.position = at + 1;
    readBlockType(reader, this.#places);
    if (isLoop) {
      this.#insertAt(reader.position, this.#charges.refill);
      this.#insert(this.#bytes.subarray(at, reader.position));
    }
    return reader.position;
  }

  /** Reads one instruction whose first byte was read, and puts what metering needs around it. Returns whether a block ends with it. */
  #rewrite(opcode: number, reader: ModuleReader): boolean {
    const start = reader.position - 1;
    const { save, load } = this.#charges;
    switch (opcode) {
      case 0x0c:
      case 0x0d:
        this.#branch(reader, { start, count: 1 });
        return true;
      case 0x0e:
        this.#branch(reader, { start, count: reader.u32() + 1 });
        return true;
      case 0x00:
      case 0x0f:
        this.#insertAt(start, save);
        return true;
      case 0x10:
        this.#calls ||= this.#loops[this.#depth] === 0;
        this.#insertAt(start, save);
        this.#moveFunction(reader);
        this.#insert(load);
        return false;
      case 0xd2:
        this.#moveFunction(reader);
        return false;
    }
    const charge = skipOperands(opcode, reader, this.#places);
    if (charge === undefined) return false;
    this.#insertAt(start, save);
    if (charge === "call") this.#calls ||= this.#loops[this.#depth] === 0;
    else this.#insertAt(start, callHelper(charge, this.#places));
    this.#insertAt(reader.position, load);
    return false;
  }

  /** Writes a branch whose labels come next, with their levels in what is written. */
  #branch(reader: ModuleReader, { start, count }: { readonly start: number; readonly count: number }): void {
    const labels = reader.position;
    const loops = this.#loops[this.#depth] ?? 0;
    let leaves = false;
    let moves = false;
    for (let label = 0; label < count; label++) {
      const level = this.#depth - reader.u32();
      if (level < 1) throw new WasmRefusal("module_invalid", "a branch of it has no label");
      leaves ||= level === 1;
      moves ||= this.#loops[level] !== loops;
    }
    if (leaves) this.#insertAt(start, this.#charges.save);
    if (!moves) return;
    reader.position = labels;
    for (let label = 0; label < count; label++) {
      this.#copyTo(reader.position);
      const target = reader.u32();
      this.#number(target + loops - (this.#loops[this.#depth - target] ?? 0));
      this.#copied = reader.position;
    }
  }

  /** Writes the instruction whose first byte was read with the new index of the function that it names. */
  #moveFunction(reader: ModuleReader): void {
    this.#copyTo(reader.position);
    this.#number(movedFunction(reader.u32(), this.#places));
    this.#copied = reader.position;
  }

  /** Writes a number for which `copyTo` has made room. */
  #number(value: number): void {
    let rest = value;
    for (; rest > 0x7f; rest = Math.floor(rest / 128)) this.#written[this.#length++] = (rest % 128) | 0x80;
    this.#written[this.#length++] = rest;
  }

  /** Takes bytes that were written away again. */
  #remove(start: number, length: number): void {
    this.#written.copyWithin(start, start + length, this.#length);
    this.#length -= length;
  }

  /** Writes what was read up to `at` and not yet written, and then code of metering. */
  #insertAt(at: number, code: Uint8Array): void {
    this.#copyTo(at);
    this.#insert(code);
  }

  /** Writes code for which `copyTo` has made room. */
  #insert(code: Uint8Array): void {
    const written = this.#written;
    let length = this.#length;
    for (const byte of code) written[length++] = byte;
    this.#length = length;
  }

  /** Writes what was read up to `at` and not yet written, and makes room for one insertion. Most pieces have a few bytes: a loop is faster than `set`. */
  #copyTo(at: number): void {
    const from = this.#copied;
    this.#copied = at;
    let length = this.#length;
    this.#length += at - from;
    if (this.#length + MAX_INSERTION > this.#written.length) this.#grow(length);
    const bytes = this.#bytes;
    const written = this.#written;
    if (at - from > MAX_LOOPED) written.set(bytes.subarray(from, at), length);
    else for (let next = from; next < at; next++) written[length++] = bytes[next] ?? 0;
  }

  /** Makes room for twice as much and more. `written` bytes count until now. */
  #grow(written: number): void {
    const grown = new Uint8Array((this.#length + MAX_INSERTION) * 2);
    grown.set(this.#written.subarray(0, written));
    this.#written = grown;
  }

  /** Writes the size of the body that begins at `start`, in LEB128 with a fixed number of bytes. */
  #writeSize(start: number): void {
    let rest = this.#length - start - SIZE_BYTES;
    for (let at = 0; at < SIZE_BYTES; at++) {
      this.#written[start + at] = (rest % 128) | (at < SIZE_BYTES - 1 ? 0x80 : 0);
      rest = Math.floor(rest / 128);
    }
  }
}

function countLocals(reader: ModuleReader, groups: number): number {
  let locals = 0;
  for (let group = 0; group < groups; group++) {
    locals += reader.u32();
    if (locals > MAX_LOCALS) throw new WasmRefusal("module_too_large", `a function has more than ${MAX_LOCALS} locals`);
    readValueType(reader);
  }
  return locals;
}

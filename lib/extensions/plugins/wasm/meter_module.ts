import { listSome } from "../../../base/text.ts";
import { checkGlobal, HELPER_COUNT, helperBodies, type MeterPlaces, movedFunction } from "./charges.ts";
import { readValueType, skipOperands } from "./instructions.ts";
import { CodeMeter } from "./meter_body.ts";
import { ModuleReader, ModuleWriter, WasmRefusal } from "./module_bytes.ts";

/** Bounds of a module, and what it may import. */
export interface ModuleLimits {
  /** `[runtime.wasm] memory_limit_mb` */
  readonly memoryMb: number;
  /** `[runtime.wasm] max_module_size_mb` */
  readonly moduleMb: number;
  /** Tells whether the module may import a function. */
  readonly isGranted: (module: string, name: string) => boolean;
  /** Function that it must export. Default: none */
  readonly entrypoint?: string | undefined;
}

/** Module that counts its fuel and has bounds of memory and tables. */
export interface MeteredModule {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Functions that the module itself imports, such as `extism:host/env input_length` */
  readonly imports: readonly string[];
  /** Names of its exported functions */
  readonly exports: readonly string[];
}

/** Module of the names that metering adds. A module with names of its own that begin so is refused. */
export const METER = "postern:meter";
/** Imported function `(left: i32) => i32`: gets the units that are left, below 0, and returns how many may be used before the next call. */
export const TICK = "tick";
/** Exported global of the type i32 with the units that are left until the next tick. The host charges for its own functions here. */
export const LEFT = `${METER}/left`;

const PAGES_OF_MB = 16;
const MAX_ENTRIES = 100_000;
const MAX_TABLES = 16;
const MAX_ITEMS = 100_000;
const MAX_IMPORTS = 1000;

/** Sections in the order that they have in a module, by their ids. Others are refused, but for custom sections, which are left out. */
const ORDER = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11];

type Sections = ReadonlyMap<number, ModuleReader>;

/**
 * Checks a module strictly and returns it with metering, a bound of its memory and a bound of each table.
 *
 * A unit of fuel is a basic block, so that a call uses the same fuel on every runtime. The engine still validates what is returned.
 * @throws {WasmRefusal}
 * Source: WebAssembly core specification 2.0, "Binary Format"
 */
export function meterModule(bytes: Uint8Array, limits: ModuleLimits): MeteredModule {
  if (bytes.length > limits.moduleMb * 1_048_576) {
    const why = `it has ${bytes.length} bytes, and [runtime.wasm] max_module_size_mb is ${limits.moduleMb}`;
    throw new WasmRefusal("module_too_large", why);
  }
  const sections = readSections(bytes);
  const types = copyTypes(sections.get(1));
  const imports = copyImports(sections.get(2), types.count, limits);
  const functions = readFunctions(sections.get(3), types.count);
  const importedFunctions = imports.names.length;
  const globals = sections.get(6)?.count(MAX_ITEMS, "globals") ?? 0;
  const places = {
    ...{ types: types.count, importedFunctions, functions: importedFunctions + functions.length },
    globals,
  };
  const exports = copyExports(sections.get(7), places);
  const parameters = functions.map((type) => types.parameters[type] ?? 0);
  const code = copyCode(sections.get(10), { bytes, parameters, places });
  const written: Readonly<Record<number, ModuleWriter | undefined>> = {
    ...{ 1: types.written, 2: imports.written, 3: writeFunctions(functions, types.count) },
    4: copyTables(sections.get(4)),
    5: copyMemory(sections.get(5), limits.memoryMb),
    ...{ 6: copyGlobals(sections.get(6), places), 7: exports.written, 8: copyStart(sections.get(8), places) },
    ...{ 9: copyElements(sections.get(9), places), 10: code, 11: copyData(sections.get(11), places) },
    12: copyDataCount(sections.get(12)),
  };
  const { entrypoint } = limits;
  if (entrypoint !== undefined && !exports.names.includes(entrypoint)) {
    throw new WasmRefusal("module_invalid", `it exports no function ${JSON.stringify(entrypoint)}`);
  }
  const module = new ModuleWriter().bytes(HEADER);
  for (const id of ORDER) {
    const section = written[id];
    if (section !== undefined) module.byte(id).sized(section);
  }
  return { bytes: module.view(), imports: imports.names, exports: exports.names };
}

const HEADER = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];

function readSections(bytes: Uint8Array): Sections {
  const isWasm = HEADER.slice(0, 4).every((byte, at) => bytes[at] === byte);
  if (!isWasm) throw new WasmRefusal("module_invalid", "it is no WASM");
  if (bytes[6] === 1 && bytes[7] === 0) {
    throw new WasmRefusal(
      "module_feature",
      "it is a component of the component model; build a plain module for Extism",
    );
  }
  if (!HEADER.every((byte, at) => bytes[at] === byte)) throw new WasmRefusal("module_invalid", "its version is not 1");
  const reader = new ModuleReader(bytes, HEADER.length);
  const sections = new Map<number, ModuleReader>();
  let last = -1;
  while (!reader.isAtEnd) {
    const id = reader.byte();
    const section = reader.part(reader.u32());
    if (id === 0) section.name();
    if (id === 0) continue;
    if (id === 13) throw new WasmRefusal("module_feature", "it uses exceptions");
    const at = ORDER.indexOf(id);
    if (at === -1) throw new WasmRefusal("module_feature", `it has a section of the unknown kind ${id}`);
    if (at <= last) throw new WasmRefusal("module_invalid", "its sections are not in order");
    last = at;
    sections.set(id, section);
  }
  return sections;
}

/** Copies the types of functions, and adds that of the tick and of the helpers: i32 to i32. */
function copyTypes(reader: ModuleReader | undefined) {
  const count = reader?.count(MAX_ITEMS, "types") ?? 0;
  const written = new ModuleWriter().u32(count + 1);
  const start = reader?.position ?? 0;
  const parameters: number[] = [];
  for (let index = 0; index < count && reader !== undefined; index++) {
    if (reader.byte() !== 0x60) throw new WasmRefusal("module_feature", "it has types of garbage collection");
    parameters.push(readValueTypes(reader, "parameters"));
    readValueTypes(reader, "results");
  }
  reader?.finish("list of types");
  if (reader !== undefined) written.bytes(reader.since(start));
  return { count, parameters, written: written.bytes([0x60, 1, 0x7f, 1, 0x7f]) };
}

function readValueTypes(reader: ModuleReader, what: string): number {
  const count = reader.count(1000, what);
  for (let values = count; values > 0; values--) readValueType(reader);
  return count;
}

const IMPORT_KINDS = ["function", "table", "memory", "global", "tag"];

function copyImports(reader: ModuleReader | undefined, types: number, { isGranted }: ModuleLimits) {
  const count = reader?.count(MAX_IMPORTS, "imports") ?? 0;
  const written = new ModuleWriter().u32(count + 1);
  const start = reader?.position ?? 0;
  const names: string[] = [];
  const refused: string[] = [];
  for (let index = 0; index < count && reader !== undefined; index++) {
    const module = reader.name();
    const name = reader.name();
    const kind = reader.byte();
    const shown = JSON.stringify(`${module} ${name}`.slice(0, 100));
    if (kind !== 0) {
      throw new WasmRefusal("module_import", `it imports the ${IMPORT_KINDS[kind] ?? "unknown"} ${shown}`);
    }
    if (reader.u32() >= types) throw new WasmRefusal("module_invalid", `its import ${shown} has no type`);
    if (module.startsWith(METER) || !isGranted(module, name)) refused.push(shown);
    names.push(`${module} ${name}`);
  }
  reader?.finish("list of imports");
  if (refused.length > 0) {
    throw new WasmRefusal("module_import", `it imports what it was not granted: ${listSome(refused, 10)}`);
  }
  if (reader !== undefined) written.bytes(reader.since(start));
  return { names, written: written.text(METER).text(TICK).byte(0).u32(types) };
}

function readFunctions(reader: ModuleReader | undefined, types: number): readonly number[] {
  const count = reader?.count(MAX_ITEMS, "functions") ?? 0;
  const functions: number[] = [];
  for (let index = 0; index < count && reader !== undefined; index++) {
    const type = reader.u32();
    if (type >= types) throw new WasmRefusal("module_invalid", `a function has the type ${type}, which there is not`);
    functions.push(type);
  }
  reader?.finish("list of functions");
  return functions;
}

function writeFunctions(functions: readonly number[], helperType: number): ModuleWriter {
  const all = [...functions, ...Array<number>(HELPER_COUNT).fill(helperType)];
  return all.reduce((written, type) => written.u32(type), new ModuleWriter().u32(all.length));
}

/** Reads the least and the greatest size of a memory or a table. */
function readSizes(reader: ModuleReader, what: string) {
  const flags = reader.byte();
  if (flags === 2 || flags === 3) throw new WasmRefusal("module_feature", `its ${what} is shared, as of threads`);
  if (flags > 3) throw new WasmRefusal("module_feature", `its ${what} has addresses of 64 bits (memory64)`);
  const min = reader.u32();
  return { min, max: flags === 1 ? reader.u32() : undefined };
}

function copyTables(reader: ModuleReader | undefined): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const count = reader.count(MAX_TABLES, "tables");
  const written = new ModuleWriter().u32(count);
  for (let index = 0; index < count; index++) {
    const type = reader.byte();
    if (type !== 0x70 && type !== 0x6f) throw new WasmRefusal("module_feature", "it has a table of typed references");
    const { min, max = MAX_ENTRIES } = readSizes(reader, "table");
    if (min > MAX_ENTRIES) {
      throw new WasmRefusal("module_too_large", `a table of it has ${min} entries, and ${MAX_ENTRIES} are allowed`);
    }
    // A table that grows without a bound ends the whole process on Node
    written.byte(type).byte(1).u32(min).u32(Math.max(min, Math.min(max, MAX_ENTRIES)));
  }
  reader.finish("list of tables");
  return written;
}

function copyMemory(reader: ModuleReader | undefined, memoryMb: number): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const count = reader.u32();
  if (count > 1) throw new WasmRefusal("module_feature", "it uses several memories");
  const written = new ModuleWriter().u32(count);
  if (count === 1) {
    const cap = memoryMb * PAGES_OF_MB;
    const { min, max = cap } = readSizes(reader, "memory");
    if (min > cap) {
      const why = `it begins with ${min / PAGES_OF_MB} MB of memory, and [runtime.wasm] memory_limit_mb is ${memoryMb}`;
      throw new WasmRefusal("module_too_large", why);
    }
    written.byte(1).u32(min).u32(Math.max(min, Math.min(max, cap)));
  }
  reader.finish("list of memories");
  return written;
}

/** Instructions of constant expressions: constants, references, globals, and sums and products of them. */
const CONSTANT = new Set([0x23, 0x41, 0x42, 0x43, 0x44, 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e, 0xd0, 0xd2, 0xfd]);

function copyConstant(reader: ModuleReader, code: ModuleWriter, places: MeterPlaces): void {
  for (let opcode = reader.byte(); opcode !== 0x0b; opcode = reader.byte()) {
    if (!CONSTANT.has(opcode)) throw new WasmRefusal("module_invalid", "a constant of it is no constant");
    const start = reader.position;
    code.byte(opcode);
    if (opcode === 0xd2) {
      code.u32(movedFunction(reader.u32(), places));
    } else {
      skipOperands(opcode, reader, places);
      code.bytes(reader.since(start));
    }
  }
  code.byte(0x0b);
}

/** Copies the globals, whose number was read, and adds the units that are left. */
function copyGlobals(reader: ModuleReader | undefined, places: MeterPlaces): ModuleWriter {
  const written = new ModuleWriter().u32(places.globals + 1);
  for (let index = 0; index < places.globals && reader !== undefined; index++) {
    const start = reader.position;
    readValueType(reader);
    if (reader.byte() > 1) throw new WasmRefusal("module_invalid", "a global of it has an unknown kind");
    copyConstant(reader, written.bytes(reader.since(start)), places);
  }
  reader?.finish("list of globals");
  return written.bytes([0x7f, 1, 0x41, 0, 0x0b]);
}

function copyExports(reader: ModuleReader | undefined, places: MeterPlaces) {
  const count = reader?.count(MAX_ITEMS, "exports") ?? 0;
  const written = new ModuleWriter().u32(count + 1);
  const names: string[] = [];
  for (let index = 0; index < count && reader !== undefined; index++) {
    const name = reader.name();
    const kind = reader.byte();
    const given = reader.u32();
    if (name.startsWith(METER)) {
      throw new WasmRefusal("module_invalid", `it exports ${JSON.stringify(name)}, which is Postern's`);
    }
    if (kind > 3) throw new WasmRefusal("module_feature", "it exports a tag of exceptions");
    if (kind === 3) checkGlobal(given, places);
    if (kind === 0) names.push(name);
    written.text(name).byte(kind).u32(kind === 0 ? movedFunction(given, places) : given);
  }
  reader?.finish("list of exports");
  return { names, written: written.text(LEFT).byte(3).u32(places.globals) };
}

function copyStart(reader: ModuleReader | undefined, places: MeterPlaces): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const written = new ModuleWriter().u32(movedFunction(reader.u32(), places));
  reader.finish("start");
  return written;
}

/** Copies the lists of functions that tables begin with. */
function copyElements(reader: ModuleReader | undefined, places: MeterPlaces): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const count = reader.count(MAX_ITEMS, "lists of entries");
  const written = new ModuleWriter().u32(count);
  for (let index = 0; index < count; index++) {
    const flags = reader.byte();
    if (flags > 7) throw new WasmRefusal("module_invalid", "a list of entries has an unknown kind");
    written.byte(flags);
    const isActive = (flags & 1) === 0;
    if (isActive && (flags & 2) !== 0) written.u32(reader.u32());
    if (isActive) copyConstant(reader, written, places);
    if ((flags & 3) !== 0) written.byte(reader.byte());
    const items = reader.count(MAX_ENTRIES, "entries of one list");
    written.u32(items);
    for (let item = 0; item < items; item++) {
      if ((flags & 4) === 0) written.u32(movedFunction(reader.u32(), places));
      else copyConstant(reader, written, places);
    }
  }
  reader.finish("lists of entries");
  return written;
}

function copyDataCount(reader: ModuleReader | undefined): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const written = new ModuleWriter().u32(reader.count(MAX_ITEMS, "pieces of data"));
  reader.finish("number of pieces of data");
  return written;
}

interface CodeParts {
  readonly bytes: Uint8Array;
  /** Number of parameters of each function */
  readonly parameters: readonly number[];
  readonly places: MeterPlaces;
}

function copyCode(reader: ModuleReader | undefined, { bytes, parameters, places }: CodeParts): ModuleWriter {
  const count = reader?.u32() ?? 0;
  if (count !== parameters.length) {
    throw new WasmRefusal("module_invalid", `it has ${parameters.length} functions and ${count} bodies`);
  }
  const meter = new CodeMeter(bytes, { places, size: reader === undefined ? 0 : reader.end - reader.position });
  if (reader !== undefined) { for (const of of parameters) meter.body(reader.part(reader.u32()), of); }
  reader?.finish("code");
  const written = new ModuleWriter().u32(count + HELPER_COUNT).bytes(meter.view());
  for (const helper of helperBodies(places)) written.sized(helper);
  return written;
}

function copyData(reader: ModuleReader | undefined, places: MeterPlaces): ModuleWriter | undefined {
  if (reader === undefined) return undefined;
  const count = reader.count(MAX_ITEMS, "pieces of data");
  const written = new ModuleWriter().u32(count);
  for (let index = 0; index < count; index++) {
    const kind = reader.byte();
    if (kind > 2) throw new WasmRefusal("module_invalid", "a piece of data has an unknown kind");
    written.byte(kind);
    if (kind === 2) written.u32(reader.u32());
    if (kind !== 1) copyConstant(reader, written, places);
    const length = reader.u32();
    written.u32(length).bytes(reader.take(length));
  }
  reader.finish("data");
  return written;
}

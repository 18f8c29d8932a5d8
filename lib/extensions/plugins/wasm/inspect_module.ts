import { exactLine } from "../../../base/text.ts";
import { meterModule, type ModuleLimits } from "./meter_module.ts";
import type { PluginCapabilities } from "../manifest.ts";
import { ModuleReader, WasmRefusal } from "./module_bytes.ts";
import { grantsImport } from "./module_imports.ts";

/** Module to look at, and what it is loaded with. */
export interface InspectJob extends Omit<ModuleLimits, "isGranted"> {
  readonly bytes: SharedArrayBuffer;
  /** Rights that it has */
  readonly capabilities: PluginCapabilities;
}

/** Looks at a module. See `inspectModule` */
export function inspectJob({ bytes, capabilities, ...limits }: InspectJob): ModuleReport {
  return inspectModule(new Uint8Array(bytes), { ...limits, isGranted: grantsImport(capabilities) });
}

/** Facts about a WASM module that were read without running it. Every list is cut at `MAX_LISTED` items. */
export interface ModuleReport {
  readonly imports: readonly ModuleImport[];
  readonly exports: readonly ModuleExport[];
  /** Pages of 64 KiB. `max` is null where the module names none. null: it has no memory of its own */
  readonly memory: ModuleSizes | null;
  readonly tables: readonly ModuleSizes[];
  /** Number of functions of its own */
  readonly functions: number;
  /** True when a function runs as soon as the module is instantiated */
  readonly has_start: boolean;
  /** Names of its custom sections, such as `producers` */
  readonly custom_sections: readonly string[];
  /** Features that its compiler used, by its section `target_features` */
  readonly features: readonly string[];
  /** Reason why it cannot be loaded. null: it can */
  readonly refusal: ModuleRefusal | null;
}

/** Import of a module. `type` is that of a function, such as `(i64) -> i64`. */
export interface ModuleImport {
  readonly module: string;
  readonly name: string;
  readonly kind: string;
  readonly type: string | null;
  /** True when the module may import it */
  readonly granted: boolean;
}

/** Export of a module. `type` is that of a function of its own. */
export interface ModuleExport {
  readonly name: string;
  readonly kind: string;
  readonly type: string | null;
}

/** Least and greatest size of a memory or a table. */
export interface ModuleSizes {
  readonly min: number;
  readonly max: number | null;
}

/** Refusal of a module, with the code of a `WasmRefusal`. */
export interface ModuleRefusal {
  readonly code: string;
  readonly reason: string;
}

const MAX_LISTED = 1000;
const MAX_NAME = 100;
const KINDS = ["function", "table", "memory", "global", "tag"];
const VALUES: Readonly<Record<number, string>> = {
  ...{ 0x7f: "i32", 0x7e: "i64", 0x7d: "f32", 0x7c: "f64", 0x7b: "v128", 0x70: "funcref", 0x6f: "externref" },
};

type Found = { -readonly [K in keyof ModuleReport]: ModuleReport[K] };

/**
 * Reads what a module is, and whether it would be loaded, without running any of it. Never throws for what the bytes are: of a damaged
 * module the report has what stands before the damage.
 */
export function inspectModule(bytes: Uint8Array, limits: ModuleLimits): ModuleReport {
  const found: Found = {
    ...{ imports: [], exports: [], memory: null, tables: [], functions: 0, has_start: false },
    ...{ custom_sections: [], features: [], refusal: refusalOf(bytes, limits) },
  };
  try {
    readSections(bytes, { found, limits });
  } catch (error) {
    if (!(error instanceof WasmRefusal)) throw error;
  }
  return found;
}

/** Returns why a module is not loaded, as a sentence of its reason alone. */
function refusalOf(bytes: Uint8Array, limits: ModuleLimits): ModuleRefusal | null {
  try {
    const { bytes: metered } = meterModule(bytes, limits);
    // Every runtime has it; the types that are compiled with do not
    const { WebAssembly } = globalThis as unknown as {
      readonly WebAssembly: { validate(module: Uint8Array): boolean };
    };
    return WebAssembly.validate(metered) ? null : { code: "module_invalid", reason: "the runtime refuses it" };
  } catch (error) {
    if (!(error instanceof WasmRefusal)) throw error;
    return { code: error.code, reason: error.message.replace("Cannot load the WASM module: ", "") };
  }
}

/** Parts of a module that later parts name. */
interface Reading {
  readonly found: Found;
  readonly limits: ModuleLimits;
  readonly types: string[];
  /** Type of each function, imported ones first */
  readonly functions: (string | null)[];
}

function readSections(bytes: Uint8Array, { found, limits }: Pick<Reading, "found" | "limits">): void {
  const reader = new ModuleReader(bytes);
  const magic = reader.take(8);
  if (magic[0] !== 0 || magic[1] !== 0x61 || magic[2] !== 0x73 || magic[3] !== 0x6d || magic[6] !== 0) return;
  const reading: Reading = { found, limits, types: [], functions: [] };
  while (!reader.isAtEnd) {
    const id = reader.byte();
    readSection(id, reader.part(reader.u32()), reading);
  }
}

function readSection(id: number, section: ModuleReader, reading: Reading): void {
  const { found } = reading;
  switch (id) {
    case 0:
      return readCustom(section, found);
    case 1:
      return readTypes(section, reading);
    case 2:
      return readImports(section, reading);
    case 3:
      for (let left = found.functions = section.count(1_000_000, "functions"); left > 0; left--) {
        reading.functions.push(reading.types[section.u32()] ?? null);
      }
      return;
    case 4:
      found.tables = listOf(section, "tables", () => {
        readReference(section);
        return readSizes(section);
      });
      return;
    case 5:
      found.memory = listOf(section, "memories", () => readSizes(section))[0] ?? null;
      return;
    case 7:
      found.exports = listOf(section, "exports", () => readExport(section, reading));
      return;
    case 8:
      found.has_start = true;
  }
}

function readCustom(section: ModuleReader, found: Found): void {
  const name = section.name();
  if (found.custom_sections.length < MAX_LISTED) found.custom_sections = [...found.custom_sections, shownName(name)];
  if (name !== "target_features") return;
  found.features = listOf(section, "features", () => (section.byte() === 0x2b ? "" : "-") + shownName(section.name()));
}

function readTypes(section: ModuleReader, { types }: Reading): void {
  for (let left = section.count(100_000, "types"); left > 0; left--) {
    if (section.byte() !== 0x60) throw new WasmRefusal("module_feature", "it has types of garbage collection");
    const values = () => listOf(section, "values", () => VALUES[section.byte()] ?? "?").join(", ");
    const [parameters, results] = [values(), values()];
    types.push(`(${parameters}) -> ${results === "" ? "nothing" : results}`);
  }
}

function readImports(section: ModuleReader, { found, limits, types, functions }: Reading): void {
  found.imports = listOf(section, "imports", () => {
    const [module, name, kind] = [section.name(), section.name(), section.byte()];
    const type = kind === 0 ? types[section.u32()] ?? null : null;
    if (kind === 0) functions.push(type);
    if (kind === 1) readReference(section);
    if (kind === 1 || kind === 2) readSizes(section);
    if (kind === 3) section.take(2);
    if (kind === 4) section.take(1) && section.u32();
    const granted = kind === 0 && limits.isGranted(module, name);
    return { module: shownName(module), name: shownName(name), kind: KINDS[kind] ?? "unknown", type, granted };
  });
}

function readExport(section: ModuleReader, { functions }: Reading): ModuleExport {
  const [name, kind, index] = [section.name(), section.byte(), section.u32()];
  return {
    name: shownName(name),
    kind: KINDS[kind] ?? "unknown",
    type: kind === 0 ? functions[index] ?? null : null,
  };
}

/** Skips the type of a table's entries. */
function readReference(section: ModuleReader): void {
  const type = section.byte();
  if (type !== 0x70 && type !== 0x6f) throw new WasmRefusal("module_feature", "it has a table of typed references");
}

function readSizes(section: ModuleReader): ModuleSizes {
  const flags = section.byte();
  if (flags > 3) throw new WasmRefusal("module_feature", "it has addresses of 64 bits (memory64)");
  const min = section.u32();
  return { min, max: (flags & 1) === 1 ? section.u32() : null };
}

/** Reads a list of a section. @throws {WasmRefusal} for more items than a module has */
function listOf<T>(section: ModuleReader, what: string, read: () => T): readonly T[] {
  const items: T[] = [];
  for (let left = section.count(100_000, what); left > 0; left--) {
    const item = read();
    if (items.length < MAX_LISTED) items.push(item);
  }
  return items;
}

const shownName = (name: string) => exactLine(name.slice(0, MAX_NAME));

import { ModuleWriter, WasmRefusal } from "./module_bytes.ts";

/** Indices of the parts that metering adds to a module, and of the module's own. */
export interface MeterPlaces {
  /** Types of the module itself. The type of metering's functions stands behind them */
  readonly types: number;
  /** Imports of the module itself. The function `tick` is imported behind them, so every later function moves by one */
  readonly importedFunctions: number;
  /** Functions of the module itself, imported ones included */
  readonly functions: number;
  /** Globals of the module itself. The global with the units that are left stands behind them */
  readonly globals: number;
}

/** Returns the new index of a function. @throws {WasmRefusal} for one that the module does not have, as metering's own */
export function movedFunction(index: number, { importedFunctions, functions }: MeterPlaces): number {
  if (index >= functions) {
    throw new WasmRefusal("module_invalid", `it names the function ${index}, which it does not have`);
  }
  return index < importedFunctions ? index : index + 1;
}

/** Refuses a global that the module does not have, as metering's own. @throws {WasmRefusal} */
export function checkGlobal(index: number, { globals }: MeterPlaces): void {
  if (index >= globals) throw new WasmRefusal("module_invalid", "it names a global that it does not have");
}

/**
 * Helper functions behind the module's own, all of the type i32 to i32. Three of them charge for a length and return it: a unit for
 * 64 bytes, 64 for a page, one for 4 entries of a table. `refill` gets the units that are left, asks the tick, and returns those that
 * are left then.
 */
const HELPERS = { bytes: 0, pages: 1, entries: 2, refill: 3 } as const;

/** Thing whose number a bulk operation charges for. */
export type ChargedLength = Exclude<keyof typeof HELPERS, "refill">;

/** Number of the helper functions that metering adds. */
export const HELPER_COUNT = Object.keys(HELPERS).length;

/** Returns the call of a helper. */
export function callHelper(name: keyof typeof HELPERS, { functions }: MeterPlaces): Uint8Array {
  return new ModuleWriter().byte(0x10).u32(functions + 1 + HELPERS[name]).view();
}

/** Returns the bodies of the helpers, in the order of their indices. */
export function helperBodies(places: MeterPlaces): readonly ModuleWriter[] {
  const left = places.globals;
  const perBytes = new ModuleWriter().bytes([0x20, 0]).i32Const(6).byte(0x76);
  const perPages = new ModuleWriter().bytes([0x20, 0]).i32Const(65_536).bytes([0x20, 0]).i32Const(65_536)
    .bytes([0x49, 0x1b]).i32Const(6).byte(0x74);
  const perEntries = new ModuleWriter().bytes([0x20, 0]).i32Const(2).byte(0x76);
  const charges = [perBytes, perPages, perEntries].map((units) => {
    const body = new ModuleWriter().bytes([0, 0x23]).u32(left).bytes(units.view()).byte(0x6b).byte(0x24).u32(left);
    body.byte(0x23).u32(left).bytes([0x41, 0, 0x48, 0x04, 0x40, 0x23]).u32(left);
    return body.bytes(callHelper("refill", places)).bytes([0x1a, 0x0b, 0x20, 0, 0x0b]);
  });
  const refill = new ModuleWriter().bytes([0, 0x20, 0, 0x24]).u32(left).bytes([0x20, 0, 0x10])
    .u32(places.importedFunctions).byte(0x24).u32(left).byte(0x23).u32(left).byte(0x0b);
  return [...charges, refill];
}

/** Code that metering puts into a function, which counts in a local of its own. */
export interface Charges {
  /** Loads the count and takes the units of the first block */
  readonly entry: Uint8Array;
  /** Asks for more when none are left. Stands behind `entry`, and between the two loops that stand for one of the module */
  readonly refill: Uint8Array;
  /** Begins each round of a loop: leaves to the outer one of the two loops when none are left, and takes a unit */
  readonly round: Uint8Array;
  /** Takes a unit at the start of any other block */
  readonly block: Uint8Array;
  /** Stands before each instruction that leaves the function or calls another */
  readonly save: Uint8Array;
  /** Stands behind each call */
  readonly load: Uint8Array;
}

/** Charges of a function by the units of its first block and the index of its local for the count. */
export type ChargesOf = (units: number, local: number) => Charges;

/** Returns the charges of a module's functions. Most functions share theirs with others, which loads a module faster. */
export function createCharges(places: MeterPlaces): ChargesOf {
  const shared: Charges[] = [];
  return (units, local) =>
    units === 1 ? shared[local] ??= chargesOf({ units, local, places }) : chargesOf({ units, local, places });
}

function chargesOf({ units, local, places }: { units: number; local: number; places: MeterPlaces }): Charges {
  const left = places.globals;
  const take = () => new ModuleWriter().byte(0x20).u32(local).i32Const(1).byte(0x6b).byte(0x21).u32(local).view();
  const isUsed = () => new ModuleWriter().byte(0x20).u32(local).bytes([0x41, 0, 0x48]);
  return {
    entry: new ModuleWriter().byte(0x23).u32(left).i32Const(units).byte(0x6b).byte(0x21).u32(local).view(),
    refill: isUsed().bytes([0x04, 0x40, 0x20]).u32(local).bytes(callHelper("refill", places))
      .byte(0x21).u32(local).byte(0x0b).view(),
    round: isUsed().bytes([0x0d, 1]).bytes(take()).view(),
    block: take(),
    save: new ModuleWriter().byte(0x20).u32(local).byte(0x24).u32(left).view(),
    load: new ModuleWriter().byte(0x23).u32(left).byte(0x21).u32(local).view(),
  };
}

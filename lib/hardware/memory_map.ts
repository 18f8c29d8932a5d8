import { ToolError } from "../base/errors.ts";
import { listSome } from "../base/text.ts";
import { attribute, readMarkup } from "../documents/parse_xml.ts";

/** A part of a target's address space. */
export interface MemoryRegion {
  /** `ram`, `rom` or `flash` from a target; any name from the configuration */
  readonly name: string;
  readonly start: bigint;
  /** Bytes, at least 1 */
  readonly length: bigint;
}

const ADDRESS_SPACE = 1n << 64n;
const MAX_REGIONS = 256;
/** Most regions that one error message lists */
const MAX_SHOWN = 20;

/**
 * Returns the regions of a `memory-map` document, by address.
 * @throws {Error} a document that is no such map
 * Source: GDB manual, appendix E.16 "Memory map format"
 */
export function parseMemoryMap(xml: string): readonly MemoryRegion[] {
  const regions: MemoryRegion[] = [];
  for (let at = xml.indexOf("<"); at !== -1;) {
    const markup = readMarkup(xml, at);
    at = xml.indexOf("<", markup.end);
    if (markup.kind !== "open" || markup.name !== "memory") continue;
    const [name, start, length] = ["type", "start", "length"].map((key) => attribute(markup, key));
    const region = { name: name ?? "", start: toNumber(start), length: toNumber(length) };
    if (
      !/^[a-z][a-z0-9_-]{0,31}$/i.test(region.name) || region.start < 0n || region.length < 1n ||
      endOf(region) > ADDRESS_SPACE
    ) {
      throw new Error("a region of its memory map has no type, start or length that makes sense");
    }
    if (regions.push(region) > MAX_REGIONS) throw new Error(`its memory map has more than ${MAX_REGIONS} regions`);
  }
  return inOrder(regions);
}

/** Entry of `hardware.boards.<name>.memory_map`. */
export interface ConfiguredRegion {
  readonly name: string;
  readonly start: number;
  /** Bytes. */
  readonly length: number;
}

/** Returns a configured map, by address. */
export function configuredMap(
  regions: readonly ConfiguredRegion[],
): readonly MemoryRegion[] {
  return inOrder(regions.map(({ name, start, length }) => ({ name, start: BigInt(start), length: BigInt(length) })));
}

/** Returns the intersection of two maps. Where the names differ, the target's name comes first. */
export function inBoth(target: readonly MemoryRegion[], configured: readonly MemoryRegion[]): readonly MemoryRegion[] {
  const shared: MemoryRegion[] = [];
  for (const one of target) {
    for (const other of configured) {
      const start = one.start > other.start ? one.start : other.start;
      const end = endOf(one) < endOf(other) ? endOf(one) : endOf(other);
      if (start >= end) continue;
      const name = one.name === other.name ? one.name : `${one.name}/${other.name}`;
      shared.push({ name, start, length: end - start });
    }
  }
  return inOrder(shared);
}

/** Returns the first address of the range that no region has; undefined when the regions cover it. @param regions by address */
export function firstOutside(regions: readonly MemoryRegion[], start: bigint, length: number): bigint | undefined {
  const end = start + BigInt(length);
  let covered = start;
  for (const region of regions) {
    if (region.start <= covered && covered < endOf(region)) covered = endOf(region);
    if (covered >= end) return undefined;
  }
  return covered;
}

/** Writes regions as `flash 0x0-0x3ffff, ram 0x20000000-0x2000ffff`. */
export function describeMap(regions: readonly MemoryRegion[]): string {
  return listSome(regions.map((region) => `${region.name} ${rangeOf(region)}`), MAX_SHOWN);
}

/** Writes the first and last address of a region as `0x20000000-0x2000ffff`. */
export function rangeOf(region: Pick<MemoryRegion, "start" | "length">): string {
  return `${toHex(region.start)}-${toHex(endOf(region) - 1n)}`;
}

/** Writes an address as `0x20000000`. */
export function toHex(address: bigint): string {
  return `0x${address.toString(16)}`;
}

function endOf({ start, length }: Pick<MemoryRegion, "start" | "length">): bigint {
  return start + length;
}

function inOrder(regions: readonly MemoryRegion[]): readonly MemoryRegion[] {
  return regions.toSorted((a, b) => (a.start < b.start ? -1 : a.start > b.start ? 1 : 0));
}

/** -1 for what is no number. */
function toNumber(text: string | undefined): bigint {
  return text !== undefined && /^(0x[0-9a-f]{1,16}|\d{1,20})$/i.test(text.trim()) ? BigInt(text.trim()) : -1n;
}

/** The memory of a board that may be read, and the source that says so. */
export interface UsableMap {
  readonly source: "target" | "configuration" | "target and configuration";
  readonly regions: readonly MemoryRegion[];
}

/**
 * Returns the map that reads are checked against: the target's own map, or the configured one when the target has none. When there are
 * both, the map is their intersection: a stub may offer the whole address space, and the operator leaves out addresses that must not be
 * touched, such as registers that change when they are read.
 * @throws {ToolError} `no_memory_map`
 */
export async function usableMap(
  target: { readonly memoryMap: () => Promise<readonly MemoryRegion[] | undefined> },
  { board, configured: regions }: { readonly board: string; readonly configured: readonly ConfiguredRegion[] },
): Promise<UsableMap> {
  const configured = configuredMap(regions);
  const own = await target.memoryMap() ?? [];
  if (own.length > 0 && configured.length > 0) {
    return { source: "target and configuration", regions: inBoth(own, configured) };
  }
  if (own.length > 0) return { source: "target", regions: own };
  if (configured.length > 0) return { source: "configuration", regions: configured };
  throw new ToolError(
    "no_memory_map",
    `Cannot tell the memory map of board "${board}": its GDB stub has none; a person adds hardware.boards.${board}.memory_map`,
  );
}

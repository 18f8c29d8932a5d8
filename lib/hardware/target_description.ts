import { attribute, readMarkup } from "../documents/parse_xml.ts";

/** A target's description of itself: architecture and registers. */
export interface TargetDescription {
  /** In GDB's words, such as `arm` or `riscv:rv32` */
  readonly architecture: string | undefined;
  readonly features: readonly TargetFeature[];
}

/** A group of registers, such as `org.gnu.gdb.arm.m-profile`. */
export interface TargetFeature {
  readonly name: string;
  readonly registers: readonly TargetRegister[];
}

/** A register as the target describes it. */
export interface TargetRegister {
  readonly name: string;
  readonly bits: number;
  /** Place in the reply to `g` */
  readonly number: number;
}

const MAX_INCLUDES = 32;
const MAX_FEATURES = 64;
const MAX_REGISTERS = 4096;
const MAX_BITS = 65_536;
const NAME = /^[A-Za-z0-9_.:+/-]{1,64}$/;
/** Never a path */
const ANNEX = /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/;

/**
 * Reads a description with the files it includes, each once.
 * @param read the text of a file of the description
 * @throws {Error} a description that is none, or is too large
 * Source: GDB manual, appendix G "Target descriptions"
 */
export async function readTargetDescription(read: (annex: string) => Promise<string>): Promise<TargetDescription> {
  let architecture: string | undefined;
  let next = 0;
  let registers = 0;
  const features: { name: string; registers: TargetRegister[] }[] = [];
  const seen = new Set<string>();
  const visit = async (annex: string): Promise<void> => {
    if (seen.has(annex)) return;
    if (seen.size === MAX_INCLUDES) throw new Error(`its description includes more than ${MAX_INCLUDES} files`);
    seen.add(annex);
    const xml = await read(annex);
    for (let at = xml.indexOf("<"); at !== -1;) {
      const markup = readMarkup(xml, at);
      at = xml.indexOf("<", markup.end);
      if (markup.kind !== "open") continue;
      switch (markup.name) {
        case "architecture": {
          const text = xml.slice(markup.end, at === -1 ? xml.length : at).trim();
          if (NAME.test(text)) architecture ??= text;
          break;
        }
        case "xi:include": {
          const href = attribute(markup, "href") ?? "";
          if (!ANNEX.test(href)) throw new Error("its description includes a file without a proper name");
          await visit(href);
          break;
        }
        case "feature":
          if (features.length === MAX_FEATURES) {
            throw new Error(`its description has more than ${MAX_FEATURES} features`);
          }
          features.push({ name: named(attribute(markup, "name")), registers: [] });
          break;
        case "reg": {
          if (++registers > MAX_REGISTERS) throw new Error(`its description has more than ${MAX_REGISTERS} registers`);
          const number = toCount(attribute(markup, "regnum")) ?? next;
          const bits = toCount(attribute(markup, "bitsize")) ?? 0;
          if (bits > MAX_BITS) throw new Error(`its description has a register of more than ${MAX_BITS} bits`);
          next = number + 1;
          features.at(-1)?.registers.push({ name: named(attribute(markup, "name")), bits, number });
        }
      }
    }
  };
  await visit("target.xml");
  return { architecture, features };
}

function named(name: string | undefined): string {
  return name !== undefined && NAME.test(name) ? name : "unnamed";
}

function toCount(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,9}$/.test(text.trim()) ? Number(text) : undefined;
}

/** A core register and its value. */
export interface RegisterValue {
  readonly name: string;
  /** As `0x2000ffe8`; undefined: the stub does not know it */
  readonly value: string | undefined;
}

const MAX_SHOWN = 40;
const MAX_REGISTER_BITS = 64;
/** Architectures whose stubs send the lowest byte first. The order of others is unknown, so their values are not shown */
const LITTLE_ENDIAN = /^(arm|aarch64|i386|riscv|xtensa|avr|msp430)/;

/**
 * Returns the values of the first group of registers, which is a target's core.
 * @param raw the reply to `g`: all registers by number, hexadecimal
 */
export function coreRegisters(description: TargetDescription, raw: string): readonly RegisterValue[] {
  if (!LITTLE_ENDIAN.test(description.architecture ?? "")) return [];
  const all = description.features.flatMap(({ registers }) => registers).toSorted((a, b) => a.number - b.number);
  const core = new Set(
    description.features.find(({ registers }) => registers.length > 0)?.registers.slice(0, MAX_SHOWN),
  );
  const values: RegisterValue[] = [];
  let at = 0;
  for (const register of all) {
    // Numbers that no register has take no place, but a width that is no whole bytes tells none
    if (register.bits % 8 !== 0) break;
    const digits = raw.slice(at, at += register.bits / 4);
    if (digits.length < register.bits / 4) break;
    if (!core.has(register) || register.bits > MAX_REGISTER_BITS || register.bits === 0) continue;
    const bytes = digits.includes("x") ? undefined : Buffer.from(digits, "hex").reverse().toString("hex");
    values.push({
      name: register.name,
      value: bytes === undefined ? undefined : `0x${BigInt(`0x${bytes}`).toString(16)}`,
    });
  }
  return values;
}

import type { TargetDescription } from "./target_description.ts";

/** One value of the core registers. */
export interface RegisterValue {
  readonly name: string;
  /** As `0x2000ffe8`; undefined: the stub does not know it */
  readonly value: string | undefined;
}

const MAX_SHOWN = 40;
const MAX_BITS = 64;
/** Whose stubs send the lowest byte first; elsewhere the order cannot be told, and no value is shown */
const LITTLE_ENDIAN = /^(arm|aarch64|i386|riscv|xtensa|avr|msp430)/;

/**
 * The values of the first group of registers, which is a target's core.
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
    if (!core.has(register) || register.bits > MAX_BITS || register.bits === 0) continue;
    const bytes = digits.includes("x") ? undefined : Buffer.from(digits, "hex").reverse().toString("hex");
    values.push({
      name: register.name,
      value: bytes === undefined ? undefined : `0x${BigInt(`0x${bytes}`).toString(16)}`,
    });
  }
  return values;
}

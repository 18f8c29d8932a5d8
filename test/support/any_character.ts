import fc from "fast-check";

/** Number of surrogates: code units that are no character by themselves */
const SURROGATES = 0x800;
const FIRST_SURROGATE = 0xd800;

/**
 * Arbitrary of one character of Unicode, for `fc.string({ unit: anyCharacter })`. Gives the same as `unit: "binary"`, which lists all
 * characters first: that takes more than a second of each process.
 */
export const anyCharacter: fc.Arbitrary<string> = fc.integer({ min: 0, max: 0x10_ffff - SURROGATES })
  .map(toCharacter, toNumber);

function toCharacter(number: number): string {
  return String.fromCodePoint(number < FIRST_SURROGATE ? number : number + SURROGATES);
}

/** Undoes `toCharacter`. @throws {TypeError} for what is no character, by which fast-check knows that it did not make it */
function toNumber(character: unknown): number {
  const point = typeof character === "string" ? character.codePointAt(0) ?? -1 : -1;
  const number = point < FIRST_SURROGATE ? point : point - SURROGATES;
  if (point < 0 || toCharacter(number) !== character) throw new TypeError("Not one character");
  return number;
}

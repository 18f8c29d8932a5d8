import assert from "node:assert/strict";
import { test } from "node:test";

const skip = "Deno" in globalThis ? "Deno has no stripTypeScriptTypes: mutants are made on Node" : false;
const { applyMutant, describeMutant, findMutants } = skip === false
  ? await import("./find_mutants.ts")
  : {} as typeof import("./find_mutants.ts");

/** The changed sources, in the order of their places. */
const mutated = (source: string) =>
  findMutants("lib/a.ts", source).map((mutant) => applyMutant(source, mutant).replaceAll(/\s+/g, " ").trim());

test("operators, conditions, numbers and booleans are changed, and types never are", { skip }, () => {
  const source = "export const f = (a: number | 7, b = 1): a is 7 => (a < 2 && !b ? a >= b : true);";
  assert.deepEqual(mutated(source), [
    "export const f = (a: number | 7, b = 2): a is 7 => (a < 2 && !b ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => ((a) <= (2) && !b ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (true ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (false ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => ((a < 2) || (!b) ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (a < 3 && !b ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (a < 2 && b ? a >= b : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (a < 2 && !b ? (a) > (b) : true);",
    "export const f = (a: number | 7, b = 1): a is 7 => (a < 2 && !b ? a >= b : false);",
  ]);
});

test("statements are left out, an await is dropped, and a default is lost", { skip }, () => {
  const source = "async function f(a?: string) { await g(); if (a) throw a; return a ?? list.some(h); }";
  assert.deepEqual(mutated(source), [
    "async function f(a?: string) { g(); if (a) throw a; return a ?? list.some(h); }",
    "async function f(a?: string) { ; if (a) throw a; return a ?? list.some(h); }",
    "async function f(a?: string) { await g(); if (true) throw a; return a ?? list.some(h); }",
    "async function f(a?: string) { await g(); if (false) throw a; return a ?? list.some(h); }",
    "async function f(a?: string) { await g(); if (a) ; return a ?? list.some(h); }",
    "async function f(a?: string) { await g(); if (a) throw a; return (a) && (list.some(h)); }",
    "async function f(a?: string) { await g(); if (a) throw a; return a ?? list.every(h); }",
  ]);
});

test("what is said in the log and how texts are joined is nobody's rule", { skip }, () => {
  assert.deepEqual(mutated('log.warn("a" + b); const c = `x` + d + e; console.log(c);'), []);
});

test("a mutant names its place, counted from 1, and what it changes", { skip }, () => {
  const source = "type A = 1;\n  const ä = b === c;\n";
  const [mutant] = findMutants("lib/a.ts", source);
  assert.ok(mutant !== undefined);
  assert.deepEqual([mutant.file, mutant.line, mutant.column], ["lib/a.ts", 2, 13]);
  assert.equal(describeMutant(source, mutant), "`b === c` to `(b) !== (c)`");
  assert.throws(() => applyMutant(source, { start: 0, end: 4, replacement: "const (" }));
});

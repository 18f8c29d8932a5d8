import createWabt from "wabt";

const wabt = await createWabt();

/** Compiles WebAssembly text to a module. Features that Postern refuses are let through. */
export function compileWat(source: string): Uint8Array {
  const parsed = wabt.parseWat("test.wat", source, { threads: true, exceptions: true });
  try {
    return new Uint8Array(parsed.toBinary({}).buffer);
  } finally {
    parsed.destroy();
  }
}

/** Imports of Extism that the programs of tests use, and a memory. */
export const EXTISM_WAT = `
  (import "extism:host/env" "input_length" (func $input_length (result i64)))
  (import "extism:host/env" "input_load_u8" (func $input_load (param i64) (result i32)))
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "length" (func $length (param i64) (result i64)))
  (import "extism:host/env" "load_u8" (func $load (param i64) (result i32)))
  (import "extism:host/env" "store_u8" (func $store (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
  (import "extism:host/env" "error_set" (func $error_set (param i64)))
  (memory (export "memory") 2)
  ;; Copies bytes of the memory into Extism's
  (func $keep (param $from i32) (param $length i32) (result i64)
    (local $to i64) (local $at i32)
    (local.set $to (call $alloc (i64.extend_i32_u (local.get $length))))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $length)))
      (call $store (i64.add (local.get $to) (i64.extend_i32_u (local.get $at)))
        (i32.load8_u (i32.add (local.get $from) (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))
    (local.get $to))
  ;; Copies Extism's memory into the memory, and returns its length
  (func $take (param $from i64) (param $to i32) (result i32)
    (local $at i32) (local $length i32)
    (local.set $length (i32.wrap_i64 (call $length (local.get $from))))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $length)))
      (i32.store8 (i32.add (local.get $to) (local.get $at))
        (call $load (i64.add (local.get $from) (i64.extend_i32_u (local.get $at)))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))
    (local.get $length))
  (func $answer (param $from i32) (param $length i32)
    (call $output_set (call $keep (local.get $from) (local.get $length)) (i64.extend_i32_u (local.get $length))))
`;

/** Returns a program that answers each call with a text. @param more WAT beside it */
export function answeringWat(output: string, more = ""): string {
  const text = JSON.stringify({ output });
  const hex = [...Buffer.from(text)].map((byte) => `\\${byte.toString(16).padStart(2, "0")}`).join("");
  return `(module ${EXTISM_WAT}
    (data (i32.const 0) "${hex}")
    ${more}
    (func (export "execute") (result i32) (call $answer (i32.const 0) (i32.const ${
    Buffer.byteLength(text)
  })) (i32.const 0)))`;
}

/** Returns a program whose function `execute` has this code and answers nothing by itself. @param more WAT beside it */
export function programWat(code: string, more = ""): string {
  return `(module ${EXTISM_WAT} ${more} (func (export "execute") (result i32) ${code}))`;
}

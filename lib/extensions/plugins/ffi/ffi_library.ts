/**
 * Library of machine code that answers calls in JSON: `char *<symbol>(const char *json)`, and `void <symbol>_free(char *)` for its answer.
 * This module runs in the gateway or in a process in the sandbox, where nothing else of Postern is: it imports nothing of Postern.
 */
import { writeSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";

/** Place of a library, and of what loads it. */
export interface FfiPlace {
  /** Absolute path */
  readonly library: string;
  /** Name of the C function */
  readonly symbol: string;
  /** Module that loads libraries on Node, such as `koffi` or a `file:` URL of it; Deno needs none */
  readonly koffi: string;
}

/** Library that is loaded. */
export interface FfiLibrary {
  /** Calls the function, and waits for it. @returns undefined for an answer that is NULL */
  call(json: string): string | undefined;
  /** Calls the function in a thread of its own. @returns undefined for an answer that is NULL */
  callAside(json: string): Promise<string | undefined>;
  /** Writes to a descriptor. */
  write(descriptor: number, text: string): void;
}

/** Loads a library. @throws {Error} as the runtime has it when there is no such library, function or module */
export async function openFfiLibrary(place: FfiPlace): Promise<FfiLibrary> {
  return "Deno" in globalThis ? openOnDeno(place) : await openOnNode(place);
}

/** Function of C as koffi makes it. */
type CFunction<Arg, Result> = ((arg: Arg) => Result) & {
  async(arg: Arg, done: (error: unknown, result: Result) => void): void;
};

/** The part of koffi that is used. A pointer is a number, or null. */
interface Koffi {
  load(path: string): { func(name: string, result: string, parameters: readonly string[]): unknown };
  readonly decode: { string(pointer: unknown): string };
}

async function openOnNode({ library, symbol, koffi }: FfiPlace): Promise<FfiLibrary> {
  const { default: { load, decode } }: { readonly default: Koffi } = await import(koffi);
  const loaded = load(library);
  // The types are those that the functions are declared with
  const call = loaded.func(symbol, "void *", ["str"]) as CFunction<string, unknown>;
  const free = loaded.func(`${symbol}_free`, "void", ["void *"]) as (pointer: unknown) => void; // as it is declared here
  const take = (pointer: unknown) => {
    if (pointer === null) return undefined;
    const text = decode.string(pointer);
    free(pointer);
    return text;
  };
  return {
    call: (json) => take(call(json)),
    callAside: (json) =>
      new Promise((resolve, reject) =>
        call.async(json, (error, pointer) => error === null ? resolve(take(pointer)) : reject(error))
      ),
    write: (descriptor, text) => void writeAll(descriptor, text),
  };
}

function writeAll(descriptor: number, text: string): void {
  const bytes = new TextEncoder().encode(text);
  for (let from = 0; from < bytes.length;) from += writeSync(descriptor, bytes, from);
}

/** The part of Deno that is used. A pointer is an object, or null. */
interface DenoFfi {
  dlopen(path: string, symbols: Readonly<Record<string, unknown>>): { readonly symbols: DenoSymbols };
  readonly UnsafePointerView: new (pointer: object) => { getCString(): string };
}

interface DenoSymbols {
  call(json: Uint8Array): object | null;
  callAside(json: Uint8Array): Promise<object | null>;
  free(pointer: object): void;
  write(descriptor: number, bytes: Uint8Array, length: bigint): bigint;
}

function openOnDeno({ library, symbol }: FfiPlace): FfiLibrary {
  // Deno alone comes here, and the types of Node do not know it
  const { dlopen, UnsafePointerView } = (globalThis as unknown as { readonly Deno: DenoFfi }).Deno;
  const entry = { name: symbol, parameters: ["buffer"], result: "pointer" };
  const { symbols } = dlopen(library, {
    call: entry,
    callAside: { ...entry, nonblocking: true },
    free: { name: `${symbol}_free`, parameters: ["pointer"], result: "void" },
    // The function comes from the C library that the plugin is linked with: Deno writes to no descriptor that it did not open
    write: { name: "write", parameters: ["i32", "buffer", "usize"], result: "isize" },
  });
  const encode = (text: string) => new TextEncoder().encode(`${text}\0`);
  const take = (pointer: object | null) => {
    if (pointer === null) return undefined;
    const text = new UnsafePointerView(pointer).getCString();
    symbols.free(pointer);
    return text;
  };
  return {
    call: (json) => take(symbols.call(encode(json))),
    callAside: async (json) => take(await symbols.callAside(encode(json))),
    write(descriptor, text) {
      let bytes = new TextEncoder().encode(text);
      while (bytes.length > 0) {
        const written = Number(symbols.write(descriptor, bytes, BigInt(bytes.length)));
        if (written < 0) throw new Error("The answer could not be written");
        bytes = bytes.slice(written);
      }
    },
  };
}

/** Descriptor that the answers are written to: what the library prints goes to the error output. */
const ANSWERS = 3;

/**
 * Answers each line of the input with a line: the whole work of the process that a library has for itself. The last three arguments of
 * the process are the fields of its FfiPlace.
 */
export async function serveFfiLibrary(): Promise<void> {
  const [library = "", symbol = "", koffi = ""] = process.argv.slice(-3);
  const opened = await openFfiLibrary({ library, symbol, koffi });
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, ...call }: { readonly id?: number } = JSON.parse(line);
    const answer = opened.call(JSON.stringify(call));
    if (answer === undefined) throw new Error(`${symbol}() returned NULL`);
    opened.write(ANSWERS, `${withId(answer, id)}\n`);
  }
}

/** Returns an answer in one line, with the id of its call. What is no answer stays what it is, for the gateway to refuse. */
function withId(answer: string, id: number | undefined): string {
  // A newline in JSON is no part of a value
  const line = answer.replaceAll("\n", " ");
  if (id === undefined) return line;
  try {
    const value: unknown = JSON.parse(line);
    if (value === null || typeof value !== "object" || Array.isArray(value) || "id" in value) return line;
    return JSON.stringify({ id, ...value });
  } catch {
    return line;
  }
}

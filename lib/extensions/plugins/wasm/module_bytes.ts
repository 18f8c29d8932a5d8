/** Reason why a module is refused: damaged bytes, a feature that is not allowed, an import that was not granted, or too much of something. */
export type WasmRefusalCode = "module_invalid" | "module_feature" | "module_import" | "module_too_large";

/** Refusal of a WASM module, before any of its code runs. The message names the reason and, for a limit, its key. */
export class WasmRefusal extends Error {
  override readonly name = "WasmRefusal";
  readonly code: WasmRefusalCode;
  /** The message's end, such as `it is no WASM` */
  readonly reason: string;
  constructor(code: WasmRefusalCode, reason: string) {
    super(`Cannot load the WASM module: ${reason}`);
    this.code = code;
    this.reason = reason;
  }
}

const MAX_NAME_BYTES = 10_000;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reader of the WASM binary format that never reads past its part. @throws {WasmRefusal} `module_invalid` at the first wrong byte */
export class ModuleReader {
  readonly #bytes: Uint8Array;
  readonly end: number;
  position: number;

  constructor(bytes: Uint8Array, start = 0, end: number = bytes.length) {
    this.#bytes = bytes;
    this.position = start;
    this.end = end;
  }

  get isAtEnd(): boolean {
    return this.position >= this.end;
  }

  byte(): number {
    const byte = this.position < this.end ? this.#bytes[this.position] : undefined;
    if (byte === undefined) throw this.tooShort();
    this.position++;
    return byte;
  }

  /** Returns the refusal of a part that ends before what it holds. */
  tooShort(): WasmRefusal {
    return new WasmRefusal("module_invalid", `it ends too early, at byte ${this.end}`);
  }

  /** Reads an unsigned LEB128 number of 32 bits. */
  u32(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      if (shift === 28 && byte > 0x0f) break;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new WasmRefusal("module_invalid", `a number at byte ${this.position} is too large`);
  }

  /** Skips a LEB128 number of at most `maxBytes` bytes. */
  skipNumber(maxBytes: number): void {
    for (let count = 0; count < maxBytes; count++) if (this.byte() < 0x80) return;
    throw new WasmRefusal("module_invalid", `a number at byte ${this.position} is too long`);
  }

  /** Returns the next bytes, not copied. */
  take(length: number): Uint8Array {
    if (length > this.end - this.position) {
      throw new WasmRefusal("module_invalid", `a size at byte ${this.position} is larger than what is left`);
    }
    this.position += length;
    return this.#bytes.subarray(this.position - length, this.position);
  }

  /** Returns the bytes that were read since a position. */
  since(start: number): Uint8Array {
    return this.#bytes.subarray(start, this.position);
  }

  /** Returns a reader of the next bytes, and goes on behind them. */
  part(length: number): ModuleReader {
    this.take(length);
    return new ModuleReader(this.#bytes, this.position - length, this.position);
  }

  name(): string {
    const length = this.u32();
    if (length > MAX_NAME_BYTES) {
      throw new WasmRefusal("module_invalid", `a name is longer than ${MAX_NAME_BYTES} bytes`);
    }
    try {
      return UTF8.decode(this.take(length).slice());
    } catch (error) {
      if (error instanceof WasmRefusal) throw error;
      throw new WasmRefusal("module_invalid", "a name is not UTF-8");
    }
  }

  /** Reads the number of items of a list. @param what the items, for the message */
  count(max: number, what: string): number {
    const count = this.u32();
    if (count > max) throw new WasmRefusal("module_too_large", `it has ${count} ${what}, and ${max} are allowed`);
    return count;
  }

  /** Refuses what is left behind the last item of a part. */
  finish(what: string): void {
    if (!this.isAtEnd) throw new WasmRefusal("module_invalid", `its ${what} is longer than what it holds`);
  }
}

const ENCODER = new TextEncoder();

/** Bytes that grow as they are written. */
export class ModuleWriter {
  #bytes = new Uint8Array(256);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  byte(byte: number): this {
    this.#reserve(1)[this.#length++] = byte;
    return this;
  }

  u32(value: number): this {
    let rest = value;
    for (; rest > 0x7f; rest = Math.floor(rest / 128)) this.byte((rest % 128) | 0x80);
    return this.byte(rest);
  }

  bytes(bytes: Uint8Array | readonly number[]): this {
    this.#reserve(bytes.length).set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  /** Writes a positive constant of the type i32. */
  i32Const(value: number): this {
    this.byte(0x41);
    let rest = value;
    for (; rest > 0x3f; rest >>>= 7) this.byte((rest & 0x7f) | 0x80);
    return this.byte(rest);
  }

  text(text: string): this {
    const bytes = ENCODER.encode(text);
    return this.u32(bytes.length).bytes(bytes);
  }

  /** Writes the bytes of another writer behind their length. */
  sized(writer: ModuleWriter): this {
    return this.u32(writer.length).bytes(writer.view());
  }

  /** Returns what was written, not copied. */
  view(start = 0, end: number = this.#length): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(start, end);
  }

  #reserve(more: number): Uint8Array {
    const needed = this.#length + more;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    return this.#bytes;
  }
}

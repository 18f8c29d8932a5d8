import type { CurrentPlugin } from "@extism/extism";
import type { FuelMeter } from "./fuel_meter.ts";
import { ModuleFailure } from "./module_failure.ts";

/** Reply of the gateway to a function of the host. */
export interface HostReply {
  /** Value of the reply, in JSON */
  readonly head: unknown;
  /** Bytes that belong to it. Default: none */
  readonly body?: Uint8Array;
}

/** Request that a function of the host makes of the gateway. */
export type HostRequest =
  | { readonly kind: "http"; readonly request: unknown; readonly body: Uint8Array | undefined }
  | { readonly kind: "workspace_read" | "workspace_list" | "workspace_write"; readonly input: unknown };

/** Parts of a thread that the functions of Extism use during one instance of a module. */
export interface KernelMachine {
  readonly fuel: FuelMeter;
  /** Bytes of memory outside the module's own that it may fill through `alloc` */
  readonly maxBytes: number;
  /** Variables of the plugin, which outlast a call */
  readonly variables: Variables;
  /** Settings of the plugin, by their names */
  readonly settings: ReadonlyMap<string, string>;
  /** Takes what the module logs */
  readonly say: (bytes: Uint8Array) => void;
  /** Asks the gateway, and waits for its reply. @throws {ModuleFailure} the refusal */
  readonly ask: (request: HostRequest) => HostReply;
}

/** Most pieces of memory of one instance: Extism's addresses have 16 bits for them, of which the first is a sign. */
const MAX_PIECES = 32_767;
/** Characters of the error that a module sets: twice what is shown, so that secrets are known as a whole. */
const MAX_ERROR = 8192;
const MAX_VARIABLES = 1_000;
const MAX_VARIABLE_BYTES = 1_048_576;
/** Bytes of a request in JSON but for one that writes a file: reading a text takes many times its bytes */
const MAX_REQUEST_BYTES = 1_048_576;
/** Fields of a request, and headers in it */
const MAX_FIELDS = 100;
const OFFSET = (1n << 48n) - 1n;
/** Level of the log as Extism counts: from debug on. */
const LOG_LEVEL = 1;

/** Variables of a plugin: small values that one call leaves for the next. */
export class Variables {
  readonly #values = new Map<string, Uint8Array>();
  #bytes = 0;

  get(name: string): Uint8Array | undefined {
    return this.#values.get(name);
  }

  /** @param value undefined removes it. @throws {ModuleFailure} too many, or too large */
  set(name: string, value: Uint8Array | undefined): void {
    const before = this.#values.get(name);
    const size = (bytes: Uint8Array | undefined) => bytes === undefined ? 0 : name.length + bytes.length;
    const total = this.#bytes - size(before) + size(value);
    const isNew = before === undefined && value !== undefined;
    if (total > MAX_VARIABLE_BYTES || (isNew && this.#values.size >= MAX_VARIABLES)) {
      const bound = `${MAX_VARIABLES} variables with ${MAX_VARIABLE_BYTES} bytes`;
      throw new ModuleFailure("failed", `its variables are larger than they may be: ${bound}`);
    }
    this.#bytes = total;
    if (value === undefined) this.#values.delete(name);
    else this.#values.set(name, value);
  }
}

/**
 * Functions of Extism in place of its own where these have no bound: memory, output, settings, variables, log and HTTP. What they copy is charged
 * by length. Extism's own serve the rest.
 */
export class Kernel {
  readonly #machine: KernelMachine;
  /** Addresses and sizes of what was allocated and may not be free yet */
  #pieces: { readonly at: bigint; readonly size: number }[] = [];
  #bytes = 0;
  #count = 1;
  #output: Uint8Array | undefined;
  #error: string | undefined;
  #status = 0;
  #headers: unknown = {};

  constructor(machine: KernelMachine) {
    this.#machine = machine;
  }

  /** Output of the call. undefined: it set none */
  get output(): Uint8Array | undefined {
    return this.#output;
  }

  /** Error that the module set. */
  get error(): string | undefined {
    return this.#error;
  }

  /** Bytes that were allocated and may not be free yet. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the functions by name, each with Extism's state of the call as its first parameter. */
  functions(): Readonly<Record<string, (memory: CurrentPlugin, ...args: never[]) => unknown>> {
    const log = (memory: CurrentPlugin, at: bigint) => this.#say(memory, at);
    return {
      alloc: (memory: CurrentPlugin, size: bigint) => this.#alloc(memory, size),
      output_set: (memory: CurrentPlugin, at: bigint, length: bigint) => {
        this.#output = this.#copy(memory, at, length);
      },
      error_set: (memory: CurrentPlugin, at: bigint) => {
        this.#error = at === 0n ? undefined : this.#text(memory, at).slice(0, MAX_ERROR);
      },
      config_get: (memory: CurrentPlugin, name: bigint) => this.#put(memory, this.#setting(memory, name)),
      var_get: (memory: CurrentPlugin, name: bigint) => this.#put(memory, this.#variable(memory, name)),
      var_set: (memory: CurrentPlugin, name: bigint, at: bigint) => {
        const value = at === 0n ? undefined : this.#copy(memory, at);
        this.#machine.variables.set(this.#text(memory, name), value);
      },
      get_log_level: () => LOG_LEVEL,
      ...{ log_trace: log, log_debug: log, log_info: log, log_warn: log, log_error: log },
      http_request: (memory: CurrentPlugin, request: bigint, body: bigint) => this.#request(memory, request, body),
      http_status_code: () => this.#status,
      http_headers: (memory: CurrentPlugin) => this.#put(memory, toBytes(JSON.stringify(this.#headers))),
    };
  }

  /** Returns the functions of the host over the workspace: each gets the place of a JSON text and returns the place of another. */
  workspaceFunctions(): Readonly<Record<string, (memory: CurrentPlugin, ...args: never[]) => unknown>> {
    const names = ["workspace_read", "workspace_list", "workspace_write"] as const;
    return Object.fromEntries(names.map((kind) => [kind, (memory: CurrentPlugin, at: bigint) => {
      const { head } = this.#machine.ask({
        kind,
        input: this.#fields(memory, at, kind === "workspace_write" ? Infinity : MAX_REQUEST_BYTES),
      });
      return this.#put(memory, toBytes(JSON.stringify(head)));
    }]));
  }

  #alloc(memory: CurrentPlugin, length: bigint): bigint {
    const { fuel, maxBytes } = this.#machine;
    const size = Number(BigInt.asUintN(64, length));
    if (size > maxBytes) throw this.#tooMuch();
    fuel.charge(1 + (size >>> 6));
    if (this.#bytes + size > maxBytes) this.#recount(memory);
    if (this.#bytes + size > maxBytes) throw this.#tooMuch();
    if (++this.#count > MAX_PIECES) {
      throw new ModuleFailure("failed", `it allocated more than ${MAX_PIECES} pieces of memory in one call`);
    }
    const at = memory.alloc(size);
    this.#pieces.push({ at, size });
    this.#bytes += size;
    return at;
  }

  /** Leaves out the pieces that the module has freed. */
  #recount(memory: CurrentPlugin): void {
    this.#machine.fuel.charge(this.#pieces.length);
    this.#pieces = this.#pieces.filter(({ at }) => memory.length(at) > 0n);
    this.#bytes = this.#pieces.reduce((sum, { size }) => sum + size, 0);
  }

  #tooMuch(): ModuleFailure {
    const mebibytes = this.#machine.maxBytes / 1_048_576;
    return new ModuleFailure("failed", `it allocated more than the ${mebibytes} MB of [runtime.wasm] memory_limit_mb`);
  }

  #put(memory: CurrentPlugin, bytes: Uint8Array | undefined): bigint {
    if (bytes === undefined) return 0n;
    const at = this.#alloc(memory, BigInt(bytes.length));
    memory.read(at)?.bytes().set(bytes);
    return at;
  }

  /** Returns a copy of a piece of memory. @param length bytes of it. Default: all */
  #copy(memory: CurrentPlugin, at: bigint, length?: bigint): Uint8Array {
    const piece = memory.read(BigInt.asUintN(64, at))?.bytes();
    const from = Number(at & OFFSET);
    const end = length === undefined ? piece?.length ?? 0 : from + Number(BigInt.asUintN(64, length));
    if (piece === undefined || from > end || end > piece.length) {
      throw new ModuleFailure("failed", "it named memory that it did not allocate");
    }
    this.#machine.fuel.charge(1 + ((end - from) >>> 6));
    return piece.slice(from, end);
  }

  #text(memory: CurrentPlugin, at: bigint): string {
    return new TextDecoder().decode(this.#copy(memory, at));
  }

  /** Returns the fields of a request; null for anything else, which the gateway refuses. Reading it would take the gateway long. */
  #fields(memory: CurrentPlugin, at: bigint, maxBytes: number): unknown {
    const text = this.#copy(memory, at);
    if (text.length > maxBytes) {
      throw new ModuleFailure("failed", `it called a function of the host with a text of more than ${maxBytes} bytes`);
    }
    try {
      const value: unknown = JSON.parse(new TextDecoder().decode(text));
      return isSmallObject(value, 2) ? value : null;
    } catch {
      throw new ModuleFailure("failed", "it called a function of the host with a text that is no JSON");
    }
  }

  #variable(memory: CurrentPlugin, name: bigint): Uint8Array | undefined {
    return this.#machine.variables.get(this.#text(memory, name));
  }

  #setting(memory: CurrentPlugin, name: bigint): Uint8Array | undefined {
    const value = this.#machine.settings.get(this.#text(memory, name));
    return value === undefined ? undefined : toBytes(value);
  }

  #say(memory: CurrentPlugin, at: bigint): void {
    this.#machine.say(toBytes(`${this.#text(memory, at)}\n`));
  }

  #request(memory: CurrentPlugin, at: bigint, bodyAt: bigint): bigint {
    const request = this.#fields(memory, at, MAX_REQUEST_BYTES);
    const body = bodyAt === 0n ? undefined : this.#copy(memory, bodyAt);
    const reply = this.#machine.ask({ kind: "http", request, body });
    // The gateway answers exactly this
    const { status, headers } = reply.head as { readonly status: number; readonly headers: unknown };
    this.#status = status;
    this.#headers = headers;
    return this.#put(memory, reply.body ?? new Uint8Array());
  }
}

/** Tells whether a value is an object of a few fields that hold texts, numbers and so on, or such objects, `levels` deep. */
function isSmallObject(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const fields = Object.values(value);
  if (fields.length > MAX_FIELDS) return false;
  return fields.every((field) =>
    typeof field !== "object" || field === null || (levels > 1 && isSmallObject(field, levels - 1))
  );
}

function toBytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

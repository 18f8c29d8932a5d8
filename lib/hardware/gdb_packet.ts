/**
 * Packets of the GDB remote protocol: `$<payload>#<checksum>`.
 * Source: GDB manual, appendix E.1 "Overview", E.2 "Packet acknowledgment", E.8 "Notification packets"
 */

/** `refused`: the other side wants the last packet again; `corrupt`: a packet came whose checksum or form is wrong. */
export type GdbMessage =
  | { readonly kind: "acknowledged" | "refused" | "corrupt" }
  | { readonly kind: "packet"; readonly payload: string };

const [DOLLAR, PERCENT, HASH, BRACE, STAR, PLUS, MINUS] = [0x24, 0x25, 0x23, 0x7d, 0x2a, 0x2b, 0x2d];
const ESCAPE_BIT = 0x20;
/** A run's count is written as this many more, in a printable character */
const RUN_OFFSET = 29;
const [FIRST_COUNT, LAST_COUNT] = [0x20, 0x7e];

/** Writes a packet as it goes over the wire. @param payload characters up to U+00FF, a byte each */
export function encodePacket(payload: string): Uint8Array {
  const escaped = payload.replace(/[#$}*]/g, (character) => `}${toCharacter(character.charCodeAt(0) ^ ESCAPE_BIT)}`);
  const body = Buffer.from(escaped, "latin1");
  const sum = body.reduce((total, byte) => (total + byte) & 0xff, 0);
  return Buffer.concat([Buffer.of(DOLLAR), body, Buffer.from(`#${sum.toString(16).padStart(2, "0")}`)]);
}

/**
 * Finds the packets in a stream of bytes. Payloads are given as text, a character up to U+00FF for each byte, with runs expanded first and
 * escapes taken back then, as gdbserver encodes them.
 */
export class PacketReader {
  readonly #maxBytes: number;
  #input: Uint8Array = new Uint8Array();
  #at = 0;
  #packet: UnfinishedPacket | undefined;

  constructor({ maxBytes }: { readonly maxBytes: number }) {
    this.#maxBytes = maxBytes;
  }

  feed(bytes: Uint8Array): void {
    this.#input = this.#at === this.#input.length ? bytes : Buffer.concat([this.#input.subarray(this.#at), bytes]);
    this.#at = 0;
  }

  /**
   * The next message of what was fed; undefined when there is none yet. Notifications and bytes that belong to nothing are skipped.
   * @throws {RangeError} a packet that is larger than `maxBytes`, runs expanded
   */
  next(): GdbMessage | undefined {
    while (this.#at < this.#input.length) {
      const message = this.#take(this.#input[this.#at++] as number); // below the length
      if (message !== undefined) return message;
    }
    return undefined;
  }

  #take(byte: number): GdbMessage | undefined {
    // A dollar is never inside a packet: the one before it was cut off
    if (byte === DOLLAR) this.#packet = new UnfinishedPacket("packet", this.#maxBytes);
    else if (this.#packet !== undefined) {
      if (!this.#packet.take(byte)) return undefined;
      const finished = this.#packet;
      this.#packet = undefined;
      return finished.toMessage();
    } else if (byte === PERCENT) this.#packet = new UnfinishedPacket("notification", this.#maxBytes);
    else if (byte === PLUS) return { kind: "acknowledged" };
    else if (byte === MINUS) return { kind: "refused" };
    return undefined;
  }
}

/** Packet or notification of which the first byte has come. */
class UnfinishedPacket {
  readonly #kind: "packet" | "notification";
  readonly #maxBytes: number;
  /** Part that the next byte belongs to */
  #part: "body" | "run" | "checksum" = "body";
  /** Bytes of the body, runs expanded and escapes kept */
  readonly #body: number[] = [];
  /** Sum of the body's bytes as they came, modulo 256 */
  #sum = 0;
  #checksum = "";
  /** True for a run that repeats nothing or has no valid count */
  #broken = false;

  constructor(kind: "packet" | "notification", maxBytes: number) {
    this.#kind = kind;
    this.#maxBytes = maxBytes;
  }

  /** Takes the next byte. @returns true when the packet is complete. @throws {RangeError} over `maxBytes` */
  take(byte: number): boolean {
    if (this.#part === "checksum") {
      this.#checksum += toCharacter(byte);
      return this.#checksum.length === 2;
    }
    if (byte === HASH) {
      this.#broken ||= this.#part === "run";
      this.#part = "checksum";
      return false;
    }
    this.#sum = (this.#sum + byte) & 0xff;
    if (this.#part === "run") this.#takeRun(byte);
    else if (byte === STAR) this.#part = "run";
    else this.#keep(byte, 1);
    return false;
  }

  /** Returns the message of a complete packet. undefined for a notification */
  toMessage(): GdbMessage | undefined {
    if (this.#kind === "notification") return undefined;
    const isWhole = /^[0-9a-f]{2}$/i.test(this.#checksum) && Number.parseInt(this.#checksum, 16) === this.#sum;
    const payload = isWhole && !this.#broken ? withoutEscapes(this.#body) : undefined;
    return payload === undefined ? { kind: "corrupt" } : { kind: "packet", payload };
  }

  #takeRun(byte: number): void {
    const last = this.#body[this.#body.length - 1];
    if (last === undefined || byte < FIRST_COUNT || byte > LAST_COUNT) this.#broken = true;
    else this.#keep(last, byte - RUN_OFFSET);
    this.#part = "body";
  }

  #keep(byte: number, count: number): void {
    if (this.#body.length + count > this.#maxBytes) {
      throw new RangeError(`a packet is larger than ${this.#maxBytes} bytes`);
    }
    for (let left = count; left > 0; left--) this.#body.push(byte);
  }
}

function toCharacter(byte: number): string {
  return String.fromCharCode(byte);
}

/** undefined when the last escape escapes nothing. */
function withoutEscapes(body: readonly number[]): string | undefined {
  const bytes = new Uint8Array(body.length);
  let length = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at] as number; // below the length
    if (byte !== BRACE) bytes[length++] = byte;
    else if (++at === body.length) return undefined;
    else bytes[length++] = (body[at] as number) ^ ESCAPE_BIT; // just compared
  }
  return Buffer.from(bytes.buffer, 0, length).toString("latin1");
}

/**
 * Packets of the GDB remote protocol: `$<payload>#<checksum>`.
 * Source: GDB manual, appendix E.1 "Overview", E.2 "Packet acknowledgment", E.8 "Notification packets"
 */

/** `refused`: the other side wants the last packet again; `corrupt`: a packet came whose checksum or form is wrong. */
export type GdbMessage =
  | { readonly kind: "acknowledged" | "refused" | "corrupt" }
  | { readonly kind: "packet"; readonly payload: string };

/** Finds the packets in a stream of bytes. */
export interface PacketReader {
  feed(bytes: Uint8Array): void;
  /**
   * The next message of what was fed; undefined when there is none yet. Notifications and bytes that belong to nothing are skipped.
   * @throws {RangeError} a packet that is larger than `maxBytes`, runs expanded
   */
  next(): GdbMessage | undefined;
}

const [DOLLAR, PERCENT, HASH, BRACE, STAR, PLUS, MINUS] = [0x24, 0x25, 0x23, 0x7d, 0x2a, 0x2b, 0x2d];
const ESCAPE_BIT = 0x20;
/** A run's count is written as this many more, in a printable character */
const RUN_OFFSET = 29;
const [FIRST_COUNT, LAST_COUNT] = [0x20, 0x7e];

/** A packet on the wire. @param payload characters up to U+00FF, a byte each */
export function encodePacket(payload: string): Uint8Array {
  const escaped = payload.replace(/[#$}*]/g, (character) => `}${toCharacter(character.charCodeAt(0) ^ ESCAPE_BIT)}`);
  const body = Buffer.from(escaped, "latin1");
  const sum = body.reduce((total, byte) => (total + byte) & 0xff, 0);
  return Buffer.concat([Buffer.of(DOLLAR), body, Buffer.from(`#${sum.toString(16).padStart(2, "0")}`)]);
}

/**
 * Payloads are given as text, a character up to U+00FF for each byte, with runs expanded first and escapes taken back then, as
 * gdbserver encodes them.
 */
export function createPacketReader({ maxBytes }: { readonly maxBytes: number }): PacketReader {
  let input: Uint8Array = new Uint8Array();
  let at = 0;
  let inside: "nothing" | "packet" | "notification" = "nothing";
  let state: "body" | "run" | "checksum" = "body";
  let body: number[] = [];
  let sum = 0;
  let checksum = "";
  let broken = false;

  const begin = (kind: "packet" | "notification") => {
    inside = kind;
    state = "body";
    body = [];
    sum = 0;
    checksum = "";
    broken = false;
  };
  const keep = (byte: number, count: number) => {
    if (body.length + count > maxBytes) throw new RangeError(`a packet is larger than ${maxBytes} bytes`);
    for (let left = count; left > 0; left--) body.push(byte);
  };
  const takeRun = (byte: number) => {
    const last = body[body.length - 1];
    if (last === undefined || byte < FIRST_COUNT || byte > LAST_COUNT) broken = true;
    else keep(last, byte - RUN_OFFSET);
    state = "body";
  };
  const finish = (): GdbMessage | undefined => {
    const kind = inside;
    inside = "nothing";
    if (kind === "notification") return undefined;
    if (broken || !/^[0-9a-f]{2}$/i.test(checksum) || Number.parseInt(checksum, 16) !== sum) return { kind: "corrupt" };
    const payload = withoutEscapes(body);
    return payload === undefined ? { kind: "corrupt" } : { kind: "packet", payload };
  };
  const take = (byte: number): GdbMessage | undefined => {
    // A dollar is never inside a packet: the one before it was cut off
    if (byte === DOLLAR) return void begin("packet");
    if (inside === "nothing") {
      if (byte === PERCENT) begin("notification");
      if (byte === PLUS) return { kind: "acknowledged" };
      return byte === MINUS ? { kind: "refused" } : undefined;
    }
    if (state === "checksum") {
      checksum += toCharacter(byte);
      return checksum.length === 2 ? finish() : undefined;
    }
    if (byte === HASH) {
      broken ||= state === "run";
      state = "checksum";
      return undefined;
    }
    sum = (sum + byte) & 0xff;
    if (state === "run") takeRun(byte);
    else if (byte === STAR) state = "run";
    else keep(byte, 1);
    return undefined;
  };
  return {
    feed(bytes) {
      input = at === input.length ? bytes : Buffer.concat([input.subarray(at), bytes]);
      at = 0;
    },
    next() {
      while (at < input.length) {
        const message = take(input[at++] as number);
        if (message !== undefined) return message;
      }
      return undefined;
    },
  };
}

function toCharacter(byte: number): string {
  return String.fromCharCode(byte);
}

/** undefined when the last escape escapes nothing. */
function withoutEscapes(body: readonly number[]): string | undefined {
  const bytes = new Uint8Array(body.length);
  let length = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at] as number;
    if (byte !== BRACE) bytes[length++] = byte;
    else if (++at === body.length) return undefined;
    else bytes[length++] = (body[at] as number) ^ ESCAPE_BIT;
  }
  return Buffer.from(bytes.buffer, 0, length).toString("latin1");
}

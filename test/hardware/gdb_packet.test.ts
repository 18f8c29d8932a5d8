import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { encodePacket, type GdbMessage, PacketReader } from "../../lib/hardware/gdb_packet.ts";
import { encodeRuns } from "../support/encode_runs.ts";

const latin1 = (text: string) => Buffer.from(text, "latin1");

function readAll(bytes: Uint8Array, cuts: readonly number[] = [], maxBytes = 65_536): GdbMessage[] {
  const reader = new PacketReader({ maxBytes });
  const messages: GdbMessage[] = [];
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  let from = 0;
  for (const end of ends) {
    reader.feed(bytes.subarray(from, end));
    from = end;
    for (let message = reader.next(); message !== undefined; message = reader.next()) messages.push(message);
  }
  return messages;
}

const payloads = fc.oneof(
  fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)), maxLength: 300 }),
  fc.string({ unit: fc.constantFrom("0", "}", "#", "$", "*", "\x03", "a"), maxLength: 300 }),
  fc.tuple(fc.constantFrom("0", "}", "*", "f"), fc.nat(400)).map(([character, count]) => character.repeat(count)),
);

test("any payload comes back, however it is cut, with or without runs", () => {
  fc.assert(
    fc.property(payloads, fc.array(fc.nat(), { maxLength: 5 }), fc.boolean(), (payload, cuts, runs) => {
      const packet = runs ? encodeRuns(payload) : encodePacket(payload);
      assert.deepEqual(readAll(packet, cuts), [{ kind: "packet", payload }]);
    }),
    { numRuns: 200 },
  );
});

test("any bytes are messages or nothing, and how they are cut changes nothing", () => {
  const units = fc.oneof(fc.constantFrom(...latin1("$#*}%+-0af")), fc.integer({ min: 0, max: 255 }));
  fc.assert(
    fc.property(fc.array(units, { maxLength: 200 }), fc.array(fc.nat(), { maxLength: 5 }), (bytes, cuts) => {
      assert.deepEqual(readAll(Uint8Array.from(bytes), cuts), readAll(Uint8Array.from(bytes)));
    }),
    { numRuns: 200 },
  );
});

test("a packet with any one byte changed is not taken for the same one", () => {
  fc.assert(
    fc.property(
      payloads.filter((payload) => payload !== ""),
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      (payload, at, bits) => {
        const packet = Uint8Array.from(encodePacket(payload));
        const place = at % packet.length;
        packet[place] = (packet[place] as number) ^ bits;
        // The two digits of a checksum have an upper and a lower case
        fc.pre(place < packet.length - 2 || bits !== 0x20);
        const [message] = readAll(packet).filter(({ kind }) => kind === "packet");
        assert.ok(message === undefined || message.kind !== "packet" || message.payload !== payload);
      },
    ),
    { numRuns: 200 },
  );
});

test("packets are written as the manual says", () => {
  assert.equal(Buffer.from(encodePacket("OK")).toString(), "$OK#9a");
  assert.equal(Buffer.from(encodePacket("")).toString(), "$#00");
  assert.equal(Buffer.from(encodePacket("a}b")).toString("latin1"), "$a}\x5db#9d");
});

test("a run is what the manual says: the character before, as often as the count less 29", () => {
  assert.deepEqual(readAll(latin1("$0* #7a")), [{ kind: "packet", payload: "0000" }]);
});

for (
  const [what, bytes] of [
    ["a wrong checksum", "$OK#9b"],
    ["a checksum that is no number", "$OK#zz"],
    ["a run of nothing", "$* #4a"],
    ["a run with a count below the lowest", "$0*\x1f#79"],
    ["a run that never comes", "$0*#5a"],
    ["an escape of nothing", "$0}#ad"],
  ] as const
) {
  test(`${what} makes a packet corrupt`, () => {
    assert.deepEqual(readAll(latin1(bytes)), [{ kind: "corrupt" }]);
  });
}

test("notifications and what stands between packets are skipped, marks are told", () => {
  const bytes = latin1("noise%Stop:T05#00+more\r\n$OK#9a-%x:$OK#9a");
  assert.deepEqual(readAll(bytes).map((message) => message.kind), ["acknowledged", "packet", "refused", "packet"]);
});

test("a packet that starts over replaces the one that was cut off", () => {
  assert.deepEqual(readAll(latin1("$O$OK#9a")), [{ kind: "packet", payload: "OK" }]);
});

test("a packet larger than allowed is refused before it is whole, runs expanded", () => {
  assert.throws(() => readAll(latin1(`$${"a".repeat(101)}`), [], 100), RangeError);
  assert.throws(() => readAll(latin1(`$0${"*~".repeat(100)}`), [], 1000), RangeError);
});

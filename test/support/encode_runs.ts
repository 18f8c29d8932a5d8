import { encodePacket } from "../../lib/hardware/gdb_packet.ts";

/** A packet with every run of four or more shortened, as gdbserver writes it: over the escaped bytes. */
export function encodeRuns(payload: string): Uint8Array {
  const packet = Buffer.from(encodePacket(payload)).toString("latin1");
  const body = packet.slice(1, -3).replace(/([^])\1{3,}/g, (run: string) => {
    const character = run[0] ?? "";
    let shortened = "";
    for (let left = run.length; left > 0;) {
      let repeats = Math.min(left - 1, 97);
      // "#" and "$" would end or begin a packet, "+" and "-" be taken for marks
      while (/[#$+-]/.test(String.fromCharCode(repeats + 29))) repeats--;
      shortened += repeats < 3 ? character : `${character}*${String.fromCharCode(repeats + 29)}`;
      left -= repeats < 3 ? 1 : repeats + 1;
    }
    return shortened;
  });
  const sum = [...Buffer.from(body, "latin1")].reduce((total, byte) => (total + byte) & 0xff, 0);
  return Buffer.from(`$${body}#${sum.toString(16).padStart(2, "0")}`, "latin1");
}

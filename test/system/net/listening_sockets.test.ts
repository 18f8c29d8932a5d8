import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { endianness } from "node:os";
import process from "node:process";
import { test } from "node:test";
import { listeningSockets, type ReadTable } from "../../../lib/system/net/listening_sockets.ts";
import { until } from "../../support/until.ts";

/** Recorded from Linux 6.8; the port 0x2CAA is 11434. */
const HEAD =
  "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     ";
const row = (local: string, state: string, uid: number | string, inode: number, remote = "00000000:0000") =>
  `   0: ${local} ${remote} ${state} 00000000:00000000 00:00000000 00000000  ${uid}        0 ${inode} 1 00000000efa02b2f 100 0 0 10 0`;
const NOTHING6 = "0".repeat(32);
const MAPPED6 = "0000000000000000FFFF00000100007F";
const LOOPBACK6 = "00000000000000000000000001000000";

const tables = (tcp: readonly string[], tcp6: readonly string[] | undefined = []): ReadTable => (path) => {
  if (path === "/proc/net/tcp") return Promise.resolve([HEAD, ...tcp, ""].join("\n"));
  const missing = Object.assign(new Error("no such file"), { code: "ENOENT" });
  return tcp6 === undefined ? Promise.reject(missing) : Promise.resolve([HEAD, ...tcp6, ""].join("\n"));
};

const ORIGIN = "http://127.0.0.1:11434";
const skip = endianness() === "LE" ? false : "the recorded tables are of a little-endian machine";

for (
  const [what, origin, tcp, tcp6, expected] of [
    ["the address itself", ORIGIN, [row("0100007F:2CAA", "0A", 998, 7)], [], ["998:7"]],
    ["every address", ORIGIN, [row("00000000:2CAA", "0A", 998, 7)], [], ["998:7"]],
    ["every address of both kinds", ORIGIN, [], [row(`${NOTHING6}:2CAA`, "0A", 998, 7)], ["998:7"]],
    ["the address inside one of IPv6", ORIGIN, [], [row(`${MAPPED6}:2CAA`, "0A", 998, 7)], ["998:7"]],
    ["all that could take the connection", ORIGIN, [row("0100007F:2CAA", "0A", 998, 7)], [
      row(`${NOTHING6}:2CAA`, "0A", 1001, 8),
    ], ["998:7", "1001:8"]],
    ["another address", ORIGIN, [row("0200007F:2CAA", "0A", 998, 7)], [row(`${LOOPBACK6}:2CAA`, "0A", 998, 8)], []],
    ["another port", ORIGIN, [row("0100007F:2CAB", "0A", 998, 7)], [], []],
    [
      "an accepted connection, whose uid reads 0 before the server has taken it",
      ORIGIN,
      [
        row("0100007F:2CAA", "01", 0, 0, "0100007F:C001"),
        row("0100007F:2CAA", "03", 0, 0, "0100007F:C002"),
        row("0100007F:2CAA", "06", 0, 0, "0100007F:C003"),
      ],
      [],
      [],
    ],
    ["a uid that is none", ORIGIN, [row("0100007F:2CAA", "0A", "x", 7)], [], ["-1:7"]],
    ["localhost", "http://localhost:11434", [row("0100007F:2CAA", "0A", 998, 7)], [], ["998:7"]],
    ["another address of loopback", "http://127.0.0.2:11434", [row("0200007F:2CAA", "0A", 998, 7)], [], ["998:7"]],
    ["IPv6", "http://[::1]:11434", [row("00000000:2CAA", "0A", 1, 1)], [row(`${LOOPBACK6}:2CAA`, "0A", 998, 7)], [
      "998:7",
    ]],
    ["no IPv6 at all", ORIGIN, [row("0100007F:2CAA", "0A", 998, 7)], undefined, ["998:7"]],
    ["a table with no row", ORIGIN, [], [], []],
  ] as const
) {
  test(`listeningSockets() by recorded tables: ${what}`, { skip }, async () => {
    const found = await listeningSockets(origin, tables(tcp, tcp6));
    assert.deepEqual(found?.map(({ uid, inode }) => `${uid}:${inode}`), expected);
  });
}

test("without the kernel's tables, and for another machine, nothing is known", async () => {
  assert.equal(await listeningSockets(ORIGIN, () => Promise.reject(new Error("no such file"))), undefined);
  assert.equal(
    await listeningSockets("http://192.168.1.5:11434", tables([row("0100007F:2CAA", "0A", 0, 7)])),
    undefined,
  );
});

const noTables = process.platform === "linux" ? false : "only Linux tells whose a socket is";

test("a socket of this process is its user's, on IPv4 and IPv6", { skip: noTables }, async (t) => {
  for (const host of ["127.0.0.1", "::1", "0.0.0.0"]) {
    const server = createServer();
    const failed = await new Promise<Error | undefined>((resolve) => {
      server.once("error", resolve);
      server.listen(0, host, () => resolve(undefined));
    });
    if (failed !== undefined) {
      t.diagnostic(`${host} is left out: ${failed.message}`);
      continue;
    }
    const { port } = server.address() as AddressInfo; // a listening TCP server has an address object
    const name = host === "::1" ? "[::1]" : "127.0.0.1";
    const found = await listeningSockets(`http://${name}:${port}`);
    assert.deepEqual(found?.map(({ uid }) => uid), [process.getuid?.()], host);
    await new Promise((resolve) => server.close(resolve));
    // The port may be another program's by now, and a program that another test is just starting holds the socket until it runs
    await until(async () => {
      const left = await listeningSockets(`http://${name}:${port}`);
      return left?.some(({ inode }) => found?.some((own) => own.inode === inode)) === false;
    });
  }
});

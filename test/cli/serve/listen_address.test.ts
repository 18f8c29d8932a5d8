import assert from "node:assert/strict";
import { test } from "node:test";
import { isOnLoopback, ownAddress } from "../../../cli/serve/listen_address.ts";

test("a gateway is reached over the loopback interface where it listens there too, else at its own address", () => {
  for (
    const [host, name, local] of [
      ["localhost", "localhost", true],
      ["127.0.0.2", "127.0.0.2", true],
      ["::1", "[::1]", true],
      ["[::1]", "[::1]", true],
      ["0.0.0.0", "127.0.0.1", true],
      ["::", "[::1]", true],
      ["[::0]", "[::1]", true],
      ["192.168.1.5", "192.168.1.5", false],
      ["2001:db8::1", "[2001:db8::1]", false],
      ["[2001:DB8::1]", "[2001:db8::1]", false],
      ["gateway.lan", "gateway.lan", false],
    ] as const
  ) {
    const address = ownAddress({ host, port: 80 });
    assert.deepEqual([address, isOnLoopback(address)], [`http://${name}:80/`, local], host);
  }
});

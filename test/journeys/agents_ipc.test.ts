import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const PAYLOAD = "the plan nobody else may read";

const ipc = (gateway: RunningGateway, input: unknown) =>
  jsonOf(gateway.call("/v1/tools/agents_ipc/call", { body: { input } }));
const send = (gateway: RunningGateway) => ipc(gateway, { op: "send", from: "ann", to: "bob", payload: PAYLOAD });
const receive = (gateway: RunningGateway) => ipc(gateway, { op: "recv", to: "bob" });

/** Runs `use` with a data directory that holds one message and its key, and what starts gateways on it. */
const withMessage = (
  use: (place: {
    readonly dataDir: string;
    readonly key: string;
    readonly start: (use: (gateway: RunningGateway) => Promise<void>) => Promise<void>;
  }) => Promise<void>,
) =>
  withWorld(async (world) => {
    const folder = await world.folder();
    const dataDir = join(folder, "data");
    const start = (work: (gateway: RunningGateway) => Promise<void>) => world.during(world.gateway({ dataDir }), work);
    await start(async (gateway) => {
      assert.equal(existsSync(join(dataDir, "agents_ipc.key")), false, "the key is made at the first use");
      assert.equal((await send(gateway)).is_error, false);
    });
    await use({ dataDir, key: join(dataDir, "agents_ipc.key"), start });
  });

test("a message lies encrypted on the disk, its key outside the workspace and for its owner alone, and outlives a restart", () =>
  withMessage(async ({ dataDir, key, start }) => {
    assert.equal(statSync(key).size, 32);
    assert.equal(statSync(key).mode & 0o777, 0o600);
    for (const name of readdirSync(dataDir)) {
      if (statSync(join(dataDir, name)).isFile()) assert.ok(!readFileSync(join(dataDir, name)).includes(PAYLOAD), name);
    }
    await start(async (gateway) => {
      assert.ok(!readdirSync(gateway.workspace.root).some((name) => name.endsWith(".key")));
      const { messages } = JSON.parse((await receive(gateway)).output);
      assert.deepEqual(messages.map(({ payload, sender }: Record<string, string>) => [payload, sender]), [
        [PAYLOAD, "http:env"],
      ]);
      assert.deepEqual(JSON.parse((await receive(gateway)).output), { messages: [] });
    });
  }));

for (
  const [what, spoil, says] of [
    [
      "a truncated key",
      (key: string) => writeFileSync(key, readFileSync(key).subarray(0, 31)),
      /has 31 bytes in place/,
    ],
    ["an empty key", (key: string) => writeFileSync(key, ""), /has 0 bytes in place of 32/],
    ["a key that others may read", (key: string) => chmodSync(key, 0o644), /others may read .* chmod 600 closes it/],
    ["another key", (key: string) => writeFileSync(key, new Uint8Array(32)), /sealed with another key/],
  ] as const
) {
  test(`${what} is an error that says so; nothing is lost, and the right key opens it again`, () =>
    withMessage(async ({ key, start }) => {
      const whole = readFileSync(key);
      spoil(key);
      await start(async (gateway) => {
        for (const input of [{ op: "recv", to: "bob" }, { op: "list" }]) {
          const { is_error: isError, output } = await ipc(gateway, input);
          assert.equal(isError, true);
          assert.match(output, says);
          assert.ok(!output.includes(gateway.dataDir), "the place of the data directory is nobody's business");
        }
      });
      writeFileSync(key, whole);
      chmodSync(key, 0o600);
      await start(async (gateway) => {
        assert.equal(JSON.parse((await receive(gateway)).output).messages.length, 1);
      });
    }));
}

test("a byte flipped in the database is an error, never a text; clear gets rid of it", () =>
  withMessage(async ({ dataDir, start }) => {
    const database = new DatabaseSync(join(dataDir, "postern.db"));
    const row = database.prepare("SELECT body FROM records WHERE collection = 'mailboxes'").get();
    const body = JSON.parse(String(row?.["body"]));
    const { data } = body.entries[0].sealed;
    body.entries[0].sealed.data = `${data[0] === "A" ? "B" : "A"}${data.slice(1)}`;
    database.prepare("UPDATE records SET body = ? WHERE collection = 'mailboxes'").run(JSON.stringify(body));
    database.close();
    await start(async (gateway) => {
      const { is_error: isError, output } = await receive(gateway);
      assert.equal(isError, true);
      assert.match(
        output,
        /^Cannot read message 1 from "ann" to "bob": it was altered, or belongs to another record; nothing/,
      );
      assert.deepEqual(JSON.parse((await ipc(gateway, { op: "clear", to: "bob" })).output), {
        messages: [],
        cleared: 1,
      });
      await send(gateway);
      assert.equal(JSON.parse((await receive(gateway)).output).messages.length, 1);
    });
  }));

test("a switch turns it off", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { security: { enable_agents_ipc: false } } });
    const { is_error: isError, output } = await send(gateway);
    assert.equal(isError, true);
    assert.match(output, /\[security\] enable_agents_ipc = true/);
  }));

test("no tool of the agent reaches the key", () =>
  withMessage(({ key, start }) =>
    start(async (gateway) => {
      for (const [tool, input] of [["read_file", { path: key }], ["shell", { command: `cat ${key}` }]] as const) {
        const body = { input, approved: true };
        const { is_error: isError, output } = await jsonOf(gateway.call(`/v1/tools/${tool}/call`, { body }));
        assert.equal(isError, true, tool);
        assert.ok(!output.includes(readFileSync(key, "latin1")), tool);
      }
    })
  ));

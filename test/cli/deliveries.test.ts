import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { jsonOf } from "../support/json_of.ts";
import { until } from "../support/until.ts";
import { onMachine } from "./support/run_in.ts";

const TOKEN = "token-of-the-environment-0123456789";

test("a delivery that a restore holds goes nowhere until a person releases it, and a dropped one never does", () =>
  onMachine(async (machine) => {
    let answersWith = 500;
    const receiver = await startFakeServer((_seen, response) => void response.writeHead(answersWith).end());
    const env = { POSTERN_TOKEN: TOKEN, POSTERN__CHANNELS__MAIL__REPLY_URL: JSON.stringify(receiver.origin) };
    const run = (...argv: readonly string[]) => machine.run(argv, { env });
    const idsOf = () => receiver.requests.map(({ headers }) => headers["idempotency-key"]);
    try {
      assert.equal((await run("deliveries", "list")).stdout, "No reply is kept for a reply_url\n");
      const send = async (address: string, message: string): Promise<string> => {
        const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
        const body = JSON.stringify({ message });
        return (await jsonOf(await fetch(`${address}v1/webhook/mail`, { method: "POST", headers, body }))).run_id;
      };
      let first = "";
      let second = "";
      let third = "";
      await machine.withGateway([], async ({ address }) => {
        first = await send(address, "One");
        second = await send(address, "Two");
        third = await send(address, "Three");
        await until(() => receiver.requests.length === 3);
        assert.equal((await run("backup", "kept.db")).code, 0);
      }, { env });
      const restored = await run("restore", "kept.db");
      assert.match(restored.stderr, /3 deliveries .*postern deliveries list --status held/);
      const { stdout } = await run("deliveries", "list", "--status", "held");
      for (const id of [first, second, third]) assert.match(stdout, new RegExp(`^${id} +held +mail `, "m"));

      const dropped = await run("deliveries", "drop", second);
      assert.deepEqual([dropped.code, dropped.stdout], [0, `${second}: dropped\n`]);
      const again = await run("deliveries", "release", second);
      assert.equal(again.code, 1);
      assert.match(again.stderr, /it is dropped, and only one that is held or failed can be released/);
      const left = await run("deliveries", "release", third);
      assert.deepEqual([left.code, left.stdout], [0, `${third}: waiting\n`]);
      assert.match(left.stderr, /No gateway runs: the next one sends it/);
      answersWith = 204;
      const before = receiver.requests.length;
      await machine.withGateway([], async () => {
        await until(() => receiver.requests.length === before + 1);
        const released = await run("deliveries", "release", first);
        assert.deepEqual([released.code, released.stdout, released.stderr], [0, `${first}: waiting\n`, ""]);
        await until(async () => (await run("deliveries", "list", "--status", "delivered")).stdout.includes(first));
        assert.deepEqual(idsOf().slice(before), [third, first]);
      }, { env });
    } finally {
      await receiver.close();
    }
  }));

test("an unknown delivery is an error that says where those that are known stand", () =>
  onMachine(async (machine) => {
    const unknown = await machine.run(["deliveries", "release", "run_0123456789abcdef01234567"]);
    assert.equal(unknown.code, 1);
    assert.match(unknown.stderr, /Cannot release this delivery: see \/v1\/deliveries/);
  }));

import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { PipeTransport } from "../../../lib/system/browser/pipe_transport.ts";
import { until } from "../../support/until.ts";

function connected() {
  const channel = { input: new PassThrough(), output: new PassThrough() };
  const messages: object[] = [];
  let closed = 0;
  const transport = new PipeTransport(channel, () => void closed++);
  transport.onmessage = (message) => void messages.push(message);
  return { ...channel, transport, messages, closed: () => closed };
}

test("messages are cut at NUL bytes, whatever pieces they come in", async () => {
  const { output, messages, transport, input } = connected();
  const bytes = new TextEncoder().encode('{"a":"é"}\0{"b":2}\0{"c"');
  for (const byte of bytes) output.write(Uint8Array.of(byte));
  output.write(':3}\0{"d":4}\0');
  await until(() => messages.length === 4, "four messages come");
  assert.deepEqual(messages, [{ a: "é" }, { b: 2 }, { c: 3 }, { d: 4 }]);
  transport.send({ id: 1 });
  assert.equal(input.read().toString(), '{"id":1}\0');
});

test("messages that come at once are delivered one by one, so that what one sets off is done before the next", async () => {
  const { output, transport } = connected();
  const order: string[] = [];
  transport.onmessage = (message) => {
    order.push(JSON.stringify(message));
    void Promise.resolve().then(() => Promise.resolve()).then(() => order.push("done"));
  };
  output.write('{"a":1}\0{"b":2}\0{"c":3}\0');
  await until(() => order.length === 6, "three messages come");
  assert.deepEqual(order, ['{"a":1}', "done", '{"b":2}', "done", '{"c":3}', "done"]);
});

for (const [what, text] of [["no JSON", "x\0"], ["no object", "7\0"]] as const) {
  test(`a message that is ${what} ends the browser`, async () => {
    const { output, messages, closed } = connected();
    output.write(text);
    await until(() => closed() === 1, "the browser is ended");
    output.write('{"late":1}\0');
    assert.deepEqual(messages, []);
  });
}

test("the end of the pipe ends the transport once", async () => {
  const { output, closed, transport } = connected();
  let told = 0;
  transport.onclose = () => void told++;
  output.end();
  await until(() => told === 1, "the end is told");
  transport.close();
  assert.deepEqual([closed(), told], [1, 1]);
});

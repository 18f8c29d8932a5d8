import assert from "node:assert/strict";
import { test } from "node:test";
import { type CheckedEvent, checkEvents, checkResponse } from "../support/response_events.ts";
import { jsonOf, type KillableGateway, readSse, until, withWorld } from "../support/world.ts";

const FIRST = { kind: "tool_call", name: "read_file", arguments: ['{"path":"a.txt"}'] } as const;

/** Reads a stream until an event that `isLast` takes, or to its end. */
async function readUntil(reply: Response, isLast: (event: CheckedEvent) => boolean): Promise<string> {
  let text = "";
  try {
    for await (const piece of reply.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += piece;
      const whole = text.slice(0, text.lastIndexOf("\n\n") + 2);
      const events = readSse(whole).data.filter((line) => line !== "[DONE]").map((line) => JSON.parse(line));
      if (events.some(isLast)) return whole;
    }
  } catch {
    // The gateway was killed
  }
  return text;
}

const get = (gateway: KillableGateway, path: string) => gateway.call(`/v1/responses/${path}`);
const showOf = async (gateway: KillableGateway, id: string) => checkResponse(await jsonOf(get(gateway, id)));

test("work in the background goes on over a kill -9, and its stream from where the reader was", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream(FIRST, { kind: "stall", chunks: [] });
    const gateway = await world.killableGateway(upstream);
    const body = { input: "What is in a.txt?", background: true, include: ["postern:tool_calls"] };
    const { id, status } = checkResponse(await jsonOf(gateway.call("/v1/responses", { body })));
    assert.equal(status, "queued");
    const seen = await readUntil(await get(gateway, `${id}?stream=true`), ({ type }) => type.endsWith("item.done"));
    const last = JSON.parse(readSse(seen).data.at(-1) ?? "").sequence_number;
    await until(() => upstream.turns.length === 2);
    await gateway.kill();
    upstream.script({ kind: "text", chunks: ["forty", "-two"] });
    await gateway.restart();
    await until(async () => (await showOf(gateway, id)).status === "completed");
    const rest = await (await get(gateway, `${id}?stream=true&starting_after=${last}`)).text();
    // Both parts together are one stream
    const { response } = checkEvents(seen + rest);
    assert.deepEqual(response, await showOf(gateway, id));
    assert.deepEqual(response.output.map(({ type }) => type), ["postern:tool_call", "message"]);
    assert.equal(await (await get(gateway, `${id}?stream=true`)).text(), seen + rest);
  }));

test("a reader of text that a kill -9 took back is told so, and finds the whole answer", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream({ kind: "stall", chunks: ["half an "] });
    const gateway = await world.killableGateway(upstream);
    const begun = await gateway.call("/v1/responses", { body: { input: "Hi", background: true, stream: true } });
    const seen = await readUntil(begun, ({ type }) => type === "response.output_text.delta");
    const events = readSse(seen).data.map((line) => JSON.parse(line));
    const [{ response: { id } }, last] = [events[0], events.at(-1)];
    await gateway.kill();
    upstream.script({ kind: "text", chunks: ["the ", "answer"] });
    await gateway.restart();
    await until(async () => (await showOf(gateway, id)).status === "completed");
    assert.match(JSON.stringify((await showOf(gateway, id)).output), /"the answer"/);
    const rest = await (await get(gateway, `${id}?stream=true&starting_after=${last.sequence_number}`)).text();
    const [failed, done] = readSse(rest).data;
    assert.equal(done, "[DONE]");
    assert.equal(JSON.parse(failed ?? "").response.error.code, "run_interrupted");
    // Whoever reads from the first event sees the answer alone
    const { response } = checkEvents(await (await get(gateway, `${id}?stream=true`)).text());
    assert.deepEqual(response, await showOf(gateway, id));
  }));

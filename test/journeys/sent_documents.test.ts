import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../support/json_of.ts";
import { withWorld } from "../support/world.ts";

test("a run, a conversation and the offline assistant go by what was said, not by the document beside it", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: { provider: { kind: "offline" } } });
    const send = async (name: string, words: string) => {
      const form = new FormData();
      form.append("purpose", "user_data");
      form.append("file", new File(["Zanzibar has beans"], name));
      const headers = { authorization: `Bearer ${gateway.token}` };
      const file = await jsonOf(fetch(`${gateway.url}/v1/files`, { method: "POST", headers, body: form }));
      const content = [
        ...(words === "" ? [] : [{ type: "input_text", text: words }]),
        { type: "input_file", file_id: file.id },
      ];
      const body = { model: "assistant", input: [{ role: "user", content }] };
      const reply = await jsonOf(gateway.call("/v1/responses", { body }));
      const { data: [conversation] } = await jsonOf(gateway.call("/v1/conversations?limit=1"));
      const { data: [run] } = await jsonOf(gateway.call("/v1/runs?limit=1"));
      return { title: conversation.title, message: run.message, answer: JSON.stringify(reply.output) };
    };
    const { title, message, answer } = await send("shop.txt", "hello there");
    assert.deepEqual([title, message], ["hello there", 'hello there\nWith "shop.txt"']);
    assert.match(answer, /offline assistant/i, "it was greeted, whatever the document says");
    const alone = await send("list.txt", "");
    assert.deepEqual([alone.title, alone.message], ['"list.txt"', '"list.txt"']);
  }));

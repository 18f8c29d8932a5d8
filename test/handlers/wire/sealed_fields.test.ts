import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestGateway } from "../../../handlers/testing/mod.ts";

const BROKEN = "postern.e30x";

test("a body with more than 100 broken sealed texts is 400, and no more of them are opened", async (t) => {
  const gateway = await createTestGateway();
  try {
    const bodies: Readonly<Record<string, (count: number) => object>> = {
      "/v1/responses": (count) => ({
        model: "assistant",
        store: false,
        input: [
          ...Array.from({ length: count }, (_, at) => ({
            ...at % 2 === 0 ? { type: "reasoning", summary: [] } : { type: "compaction" },
            ...{ id: `rs_${at}`, encrypted_content: BROKEN },
          })),
          { role: "user", content: "Hello" },
        ],
      }),
      "/v1/messages": (count) => ({
        model: "assistant",
        max_tokens: 100,
        messages: [
          { role: "user", content: "Hello" },
          {
            role: "assistant",
            content: [
              { type: "text", text: "Hello" },
              ...Array.from(
                { length: count },
                (_, at) =>
                  at % 2 === 0
                    ? { type: "thinking", thinking: "", signature: BROKEN }
                    : { type: "redacted_thinking", data: BROKEN },
              ),
            ],
          },
          { role: "user", content: "Again" },
        ],
      }),
    };
    for (const [path, body] of Object.entries(bodies)) {
      const taken = await gateway.request(path, { json: body(100) });
      assert.equal(taken.status, 200, await taken.text());
      const json = body(10_000);
      const parse = t.mock.method(JSON, "parse");
      const refused = await gateway.request(path, { json });
      assert.equal(refused.status, 400);
      const parsed = parse.mock.callCount();
      parse.mock.restore();
      assert.match(await refused.text(), /more than 100 of its texts that begin with \\"postern\.\\" are broken/);
      assert.ok(parsed < 200, `${parsed} texts were parsed`);
    }
  } finally {
    await gateway.close();
  }
});

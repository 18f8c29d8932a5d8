import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestRouter } from "../../support/test_router.ts";

/** Status and code of a POST with these headers; a body that is read is none, and 400. */
async function answerTo(headers: Readonly<Record<string, string>>): Promise<string> {
  const { send } = createTestRouter();
  const reply = await send("POST", "/v1/tokens", { body: "[]", headers });
  const { error } = await reply.json() as { error: { code: string; param: string | null } };
  return `${reply.status} ${error.code} ${error.param}`;
}

test("codings of a body that nobody undoes are refused, in whatever case, and the plain ones are not", async () => {
  const plain = await answerTo({});
  assert.match(plain, /^400 /);
  const answers: Readonly<Record<string, readonly [header: string, ...values: string[]]>> = {
    "415 unsupported_media_type null": ["content-encoding", "br", "identity, br", "gzip, x", "gzip, gzip, gzip"],
    "501 not_implemented null": ["transfer-encoding", "gzip", "gzip, chunked", "chunked, gzip", "identity", "xchunked"],
    "417 expectation_failed null": ["expect", "200-ok", "100-continue, x", "x100-continue"],
  };
  for (const [answer, [header, ...values]] of Object.entries(answers)) {
    for (const value of values) assert.equal(await answerTo({ [header]: value }), answer, `${header}: ${value}`);
  }
  const fine = {
    "content-encoding": ["identity", "Identity", ""],
    "transfer-encoding": ["chunked", "Chunked"],
    "expect": ["100-Continue"],
  };
  for (const [header, values] of Object.entries(fine)) {
    for (const value of values) assert.equal(await answerTo({ [header]: value }), plain, `${header}: ${value}`);
  }
});

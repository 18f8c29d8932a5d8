import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { CONFORMANCE_PARTS } from "../../../fixtures/conformance_tools.ts";
import { createRedactor } from "../../../lib/base/redact.ts";
import { checkWhole } from "../../../lib/tools/runtime/check_whole.ts";
import type { ToolContent } from "../../../lib/tools/runtime/tool_content.ts";

const SECRET = "a-secret-of-the-operator";
const base64 = (text: string) => Buffer.from(text).toString("base64");
const check = async (content: readonly ToolContent[], structured?: unknown) =>
  await checkWhole({ content, structured }, createRedactor([SECRET]));

test("parts stay in their order, and the bytes of a picture say what it is", async () => {
  const picture = CONFORMANCE_PARTS.image.bytes.toString("base64");
  const parts: readonly ToolContent[] = [
    { type: "text", text: "first" },
    { type: "audio", data: base64("sound"), mimeType: "audio/wav" },
    { type: "resource", resource: { uri: "note:1", mimeType: "text/plain", text: "a note" } },
    { type: "resource", resource: { uri: "note:2", blob: base64("bytes") } },
    { type: "resource_link", uri: "note:3", name: "third", size: 3 },
  ];
  const image: ToolContent = { type: "image", data: picture, mimeType: "image/jpeg" };
  const { content } = await check([...parts, image], { n: 1 });
  assert.deepEqual(content, [...parts, { ...image, mimeType: "image/png" }]);
});

test("secrets are masked in text and names, and bytes that hold one are left out", async () => {
  const { content, structured } = await check([
    { type: "text", text: `it is ${SECRET}` },
    { type: "resource", resource: { uri: `note:${SECRET}`, text: SECRET } },
    { type: "resource_link", uri: "note:1", name: SECRET, description: SECRET },
    { type: "audio", data: base64(`RIFF ${SECRET}`), mimeType: "audio/wav" },
    { type: "resource", resource: { uri: "note:2", blob: base64(SECRET) } },
  ], { deep: [{ key: SECRET }] });
  const all = JSON.stringify({ content, structured });
  assert.ok(!all.includes(SECRET) && !all.includes(base64(SECRET).slice(0, 16)), all);
  assert.equal(content[3]?.type, "text");
  assert.match(JSON.stringify(content[4]), /left out: it holds a secret/);
});

test("a result is bounded in its parts, its text and its bytes", async () => {
  const many = await check(Array.from({ length: 300 }, () => ({ type: "text", text: "x" })));
  assert.equal(many.content.length, 257);
  const long = await check(Array.from({ length: 3 }, () => ({ type: "text", text: "x".repeat(200_000) })));
  assert.ok(JSON.stringify(long).length < 263_000 + 300, String(JSON.stringify(long).length));
  const sound: ToolContent = { type: "audio", data: Buffer.alloc(5_000_000).toString("base64"), mimeType: "audio/wav" };
  const { content } = await check([sound, sound, { type: "image", data: base64("no picture"), mimeType: "image/png" }]);
  assert.deepEqual(content.map(({ type }) => type), ["audio", "text", "text"]);
});

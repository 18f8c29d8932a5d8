import assert from "node:assert/strict";
import { test } from "node:test";
import { toUpstreamError } from "../../lib/providers/upstream/upstream_error.ts";

test("a long error body that names models again and again is read at once", () => {
  const started = performance.now();
  const body = JSON.stringify({ error: { message: "model".repeat(12_000) } });
  const upstream = { name: "acme", keySource: undefined, key: undefined, now: () => 0 };
  assert.equal(toUpstreamError(upstream, { status: 400, body }).code, "provider_rejected");
  assert.ok(performance.now() - started < 300, `${performance.now() - started} ms`);
});

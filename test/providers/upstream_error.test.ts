import assert from "node:assert/strict";
import { test } from "node:test";
import { toUpstreamError } from "../../lib/providers/upstream/upstream_error.ts";
import { processorMs } from "../support/processor_time.ts";

test("a long error body that names models again and again is read at once", () => {
  const started = processorMs();
  const body = JSON.stringify({ error: { message: "model".repeat(12_000) } });
  const upstream = { name: "acme", keySource: undefined, key: undefined, now: () => 0 };
  assert.equal(toUpstreamError(upstream, { status: 400, body }).code, "provider_rejected");
  assert.ok(processorMs() - started < 300, `${processorMs() - started} ms`);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { nearest } from "../../lib/config/nearest.ts";

test("a slip of the finger finds the word that was meant", () => {
  const words = ["gateway", "provider", "rate_limit_max", "port"];
  for (
    const [typed, meant] of [["gatway", "gateway"], ["provdier", "provider"], ["RateLimit-Max", "rate_limit_max"], [
      "prot",
      "port",
    ]]
  ) {
    assert.equal(nearest(typed ?? "", words), meant);
  }
});

test("a word unlike all others finds none", () => {
  assert.equal(nearest("zebra", ["gateway", "port"]), undefined);
  assert.equal(nearest("", ["gateway"]), undefined);
});

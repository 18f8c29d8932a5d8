import assert from "node:assert/strict";
import { test } from "node:test";
import { createEventFollowers } from "../../handlers/connections.ts";
import { createFakeServices } from "../support/fake_services.ts";
import { createTestRouter, errorOf } from "../support/test_router.ts";

test("followers are bounded, in whole and of one token, and one that leaves makes room", () => {
  const followers = createEventFollowers(createFakeServices());
  const follower = { tokenId: null, close() {} };
  const greedy = { ...follower, tokenId: "tok_greedy" };
  const remove = Array.from({ length: 3584 }, () => followers.add({ ...greedy }));
  assert.throws(() => followers.add({ ...greedy }), { code: "overloaded", message: /3584 of this token/ });
  for (let i = 3584; i < 4096; i++) followers.add({ ...follower });
  assert.throws(() => followers.add({ ...follower }), { code: "overloaded", status: 503 });
  remove[0]?.();
  remove[0]?.();
  followers.add({ ...follower });
  assert.equal(followers.count(), 4096);
  followers.add({ ...follower, tokenId: "control" });
  assert.equal(followers.count(), 4097, "nobody locks the command line out");
});

test("a request to /mcp after a shutdown began is refused, and nothing is made for it", async () => {
  const { router, services, send } = createTestRouter();
  services.enter("draining");
  router.connections.closeIdle();
  for (const method of ["POST", "GET", "DELETE"]) {
    const body = method === "POST" ? { jsonrpc: "2.0", id: 1, method: "ping" } : undefined;
    const reply = await send(method, "/mcp", { token: "token_tools", body });
    assert.deepEqual([reply.status, (await errorOf(reply)).code], [503, "shutting_down"], method);
  }
  assert.equal(router.connections.mcp.made(), undefined);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { createEventFollowers } from "../../handlers/connections.ts";
import { createFakeServices } from "../support/fake_services.ts";

test("followers are bounded, and one that leaves makes room", () => {
  const followers = createEventFollowers(createFakeServices());
  const follower = { tokenId: null, close() {} };
  const remove = Array.from({ length: 4096 }, () => followers.add({ ...follower }));
  assert.throws(() => followers.add({ ...follower }), { code: "overloaded", status: 503 });
  remove[0]?.();
  remove[0]?.();
  followers.add({ ...follower });
  assert.equal(followers.count(), 4096);
});

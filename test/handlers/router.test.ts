import assert from "node:assert/strict";
import { test } from "node:test";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { createFakeServices } from "../support/fake_services.ts";

test("GET /health answers ok", async () => {
  const router = createRouter({ services: createFakeServices(), routes: ROUTES });
  const reply = await router.fetch(new Request("http://gateway.test/health"));
  assert.equal(reply.status, 200);
  assert.equal((await reply.json() as { status: string }).status, "ok");
  assert.match(reply.headers.get("x-request-id") ?? "", /^req_/);
});

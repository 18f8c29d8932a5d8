import assert from "node:assert/strict";
import { test } from "node:test";
import { callsBy } from "../../cli/reach_gateway.ts";
import type { GatewayRequest } from "../../lib/system/net/gateway_client.ts";

test("a route is called by its name, with the parameters, the query and the reply that it declares", async () => {
  const sent: GatewayRequest[] = [];
  const call = callsBy((request) => {
    sent.push(request);
    return Promise.resolve({ deleted: 2 });
  });
  const { deleted } = await call("DELETE /v1/memory", { query: { key: "a&b =c", namespace: undefined } });
  const count: number = deleted;
  assert.equal(count, 2);
  await call("GET /v1/conversations/:id", { params: { id: "a/../b" }, query: { limit: 1 } });
  await call("POST /v1/mcp-servers/:name/login/complete", { params: { name: "a" }, body: { code: "x" } });
  await call("GET /v1/models/:id+", { params: { id: "local/small" } });
  await call("GET /v1/tokens");
  assert.deepEqual(sent, [
    { method: "DELETE", path: "/v1/memory?key=a%26b%20%3Dc" },
    { method: "GET", path: "/v1/conversations/a%2F..%2Fb?limit=1" },
    { method: "POST", path: "/v1/mcp-servers/a/login/complete", body: { code: "x" } },
    { method: "GET", path: "/v1/models/local%2Fsmall" },
    { method: "GET", path: "/v1/tokens" },
  ]);
});

/** Never called: the compiler refuses each. */
export async function refusedByTheCompiler(call: ReturnType<typeof callsBy>): Promise<void> {
  // @ts-expect-error no such route
  await call("GET /v1/memories");
  // @ts-expect-error a parameter is missing
  await call("GET /v1/tokens/:id");
  // @ts-expect-error no such query parameter
  await call("GET /v1/memory", { query: { q: "coffee" } });
  // @ts-expect-error no such field of the reply
  (await call("DELETE /v1/memory")).removed;
}

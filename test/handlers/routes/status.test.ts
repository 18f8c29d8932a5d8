import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { statusRoute } from "../../../handlers/routes/health.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";

test("an administrator is told which provider is in use and why, and which configuration counts", () =>
  withRunningGateway({}, async ({ call, services, workspace }) => {
    await services.reload(() => Promise.reject(new TypeError("a bug")));
    const reply = await call("/v1/status");
    assert.equal(reply.status, 200);
    const body = await reply.json();
    assert.ok(statusRoute.reply.schema !== undefined && v.is(statusRoute.reply.schema, body));
    const { provider, config, workspace: root, status, containment } = body as Record<string, unknown>;
    assert.deepEqual(containment, await services.containment());
    assert.match((containment as { text: string }).text, /^Commands are (contained by bubblewrap$|not contained: )/);
    assert.deepEqual(provider, { name: "offline", model: "assistant", reason: "the configuration names it" });
    assert.deepEqual([root, status], [workspace.root, "ok"]);
    assert.deepEqual((config as { last_reload: unknown }).last_reload, {
      at: (config as { last_reload: { at: string } }).last_reload.at,
      outcome: "refused",
      problem: "an internal error, which the log has",
    });
  }));

test("without an agent there is no provider", () =>
  withRunningGateway({ agent: false }, async ({ call }) => {
    const { provider } = await (await call("/v1/status")).json() as { provider: unknown };
    assert.equal(provider, null);
  }));

test("nobody else is told", () =>
  withRunningGateway({}, async ({ url, services }) => {
    const { token } = await services.tokens.issue({
      scopes: ["chat", "runs", "tools", "approve"],
      label: "not an admin",
    });
    assert.equal((await fetch(`${url}/v1/status`)).status, 401);
    assert.equal((await fetch(`${url}/v1/status`, { headers: { authorization: `Bearer ${token}` } })).status, 403);
  }));

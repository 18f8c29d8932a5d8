import type { ServerContext } from "@modelcontextprotocol/server";
import assert from "node:assert/strict";
import { test } from "node:test";
import { CallApproval, type CallApprovalParts } from "../../../handlers/mcp/call_approval.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { until } from "../../support/until.ts";
import { toToolCall } from "../../support/tool_call.ts";

test("a client is told where a person answers what the server of its call asks, and the call goes on after the answer", async () => {
  const { approvals, clock } = createFakeServices();
  const told: string[] = [];
  const config = { autonomy: { approval_timeout_secs: 60 }, runs: { approval_timeout_secs: 60 }, mcp: { server: {} } };
  const identity = { tokenId: "tok_1", scopes: ["tools"] };
  const context = {
    mcpReq: {
      requestState: () => undefined,
      signal: new AbortController().signal,
      log: (_level: string, message: string) => Promise.resolve(void told.push(message)),
    },
    http: { authInfo: { extra: { asked: { identity, gatewayUrl: "http://127.0.0.1:1" } } } },
  } as unknown as ServerContext;
  // The parts that this call does not reach are left out
  const parts = { approvals, clock, config: () => config } as unknown as CallApprovalParts;
  const approver = await new CallApproval(parts, { params: { name: "ask" }, context, can: new Set() }).begin();
  assert.ok(typeof approver === "function" && approver.elicit !== undefined);
  const answer = approver.elicit({
    elicitation: { server: "files", message: "Which folder?", schema: null, url: "https://example.com/" },
    tool: "mcp__files__ask",
    access: "network",
    input: {},
    inputDigest: "d",
    workspaceRoot: "/w",
    callId: "call_1",
    scope: toToolCall("ask", "{}", { caller: { via: "mcp", tokenId: "tok_1", scopes: ["tools"] } }).scope,
  }, context.mcpReq.signal);
  await until(() => told.length === 1);
  const { approvals: [waiting] } = await approvals.list({ limit: 1 });
  assert.equal(told[0], `Waits for a person to answer ${waiting?.id} at http://127.0.0.1:1/#approvals/${waiting?.id}`);
  await approvals.answer(waiting?.id ?? "", { decision: "approve", by: { via: "http", tokenId: "tok_2" } });
  assert.equal((await answer).action, "accept");
});

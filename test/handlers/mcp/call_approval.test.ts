import type { Client } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { MCP_ERAS, type McpEra, type McpGateway, withMcpGateway } from "../../support/mcp_gateway.ts";
import { until } from "../../support/until.ts";

const CALL = { name: "write_file", arguments: { path: "note.txt", content: "Hi" } };
const CONFIG = { autonomy: { level: "supervised" as const }, security: { write_file: { enabled: true } } };
const TRUSTING = { ...CONFIG, mcp: { server: { trust_elicitation: true } } };

interface ShownApproval {
  readonly id: string;
  readonly status: string;
  readonly answered_by: string | null;
}

async function approvalsOf({ ask }: Pick<McpGateway, "ask">): Promise<readonly ShownApproval[]> {
  return (await ask("GET", "/v1/approvals") as { data: ShownApproval[] }).data;
}

async function answer({ ask }: Pick<McpGateway, "ask">, decision: "approve" | "deny"): Promise<void> {
  const [waiting] = (await approvalsOf({ ask })).filter(({ status }) => status === "pending");
  await ask("POST", `/v1/approvals/${waiting?.id}`, { decision });
}

const textOf = ({ content }: { content?: unknown }) =>
  (content as { text: string }[]).map(({ text }) => text).join("\n");

/** Connects a client that answers what it is asked. */
function connectAsked(
  started: McpGateway,
  era: McpEra,
  { token, elicitation, onAsked }: {
    readonly token: string;
    readonly elicitation: { readonly form?: Record<string, never>; readonly url?: Record<string, never> };
    readonly onAsked: (params: Record<string, unknown>) => Promise<{ action: string; content?: unknown }>;
  },
): Promise<Client> {
  return started.connect({ token, era, capabilities: { elicitation } }, (client) => {
    client.setRequestHandler("elicitation/create", async ({ params }) => await onAsked(params) as never);
  });
}

for (const era of MCP_ERAS) {
  test(`${era}: a client that cannot ask is refused with an approval id, and may repeat the call after the answer`, async () => {
    await withMcpGateway({ config: CONFIG }, async (started) => {
      const client = await started.connect({ token: await started.token("tools"), era });
      const refused = await client.callTool(CALL);
      assert.equal(refused.isError, true);
      const [approval] = await approvalsOf(started);
      assert.match(textOf(refused), new RegExp(`"${approval?.id}" until .*: then repeat exactly this call`));
      assert.equal((refused._meta as Record<string, unknown>)["postern/approval_id"], approval?.id);
      assert.equal((await client.callTool(CALL)).isError, true, "nobody has answered");
      assert.equal((await approvalsOf(started)).length, 1, "the same call asks once");
      await answer(started, "approve");
      const other = await client.callTool({ ...CALL, arguments: { ...CALL.arguments, content: "Another" } });
      assert.equal(other.isError, true, "another call is not approved");
      assert.notEqual((await client.callTool(CALL)).isError, true);
      assert.equal((await client.callTool(CALL)).isError, true, "an approval lets one call through");
    });
  });

  test(`${era}: a client that opens addresses leads to the dashboard, and the call goes on after the answer`, async () => {
    await withMcpGateway({ config: CONFIG }, async (started) => {
      const seen: Record<string, unknown>[] = [];
      const client = await connectAsked(started, era, {
        token: await started.token("tools"),
        elicitation: { url: {} },
        async onAsked(params) {
          seen.push(params);
          const [waiting] = await approvalsOf(started);
          assert.equal(waiting?.status, "pending");
          queueMicrotask(() => void answer(started, seen.length === 1 ? "approve" : "deny"));
          return { action: "accept" };
        },
      });
      assert.notEqual((await client.callTool(CALL)).isError, true);
      assert.equal(seen[0]?.["mode"], "url");
      assert.match(String(seen[0]?.["url"]), /^http:\/\/127\.0\.0\.1\/#approvals\/apr_/);
      const denied = await client.callTool({ ...CALL, arguments: { ...CALL.arguments, content: "Another" } });
      assert.equal(denied.isError, true);
      assert.match(textOf(denied), /denied/);
    });
  });

  for (const action of ["decline", "cancel"]) {
    test(`${era}: a client that opens no address leaves the question to the dashboard: ${action}`, async () => {
      await withMcpGateway({ config: CONFIG }, async (started) => {
        const client = await connectAsked(started, era, {
          token: await started.token("tools"),
          elicitation: { url: {} },
          onAsked: () => Promise.resolve({ action }),
        });
        const refused = await client.callTool(CALL);
        assert.equal(refused.isError, true);
        const [approval] = await approvalsOf(started);
        assert.equal(approval?.status, "pending");
        assert.match(textOf(refused), new RegExp(`"${approval?.id}" until .*: then repeat exactly this call`));
        assert.equal((refused._meta as Record<string, unknown>)["postern/approval_id"], approval?.id);
        assert.equal((await client.callTool(CALL)).isError, true, "nobody has answered");
        assert.equal((await approvalsOf(started)).length, 1, "the same call asks once");
        await answer(started, "approve");
        assert.notEqual((await client.callTool(CALL)).isError, true);
      });
    });
  }

  test(`${era}: a client that closes its question after the answer in the dashboard goes by that answer`, async () => {
    await withMcpGateway({ config: CONFIG }, async (started) => {
      let decision: "approve" | "deny" = "approve";
      const client = await connectAsked(started, era, {
        token: await started.token("tools"),
        elicitation: { url: {} },
        async onAsked() {
          await answer(started, decision);
          return { action: "cancel" };
        },
      });
      assert.notEqual((await client.callTool(CALL)).isError, true);
      decision = "deny";
      const denied = await client.callTool(CALL);
      assert.equal(denied.isError, true);
      assert.doesNotMatch(textOf(denied), /did not approve/);
      assert.deepEqual((await approvalsOf(started)).map(({ status }) => status), ["denied", "approved"]);
    });
  });

  test(`${era}: a user who declines in the client's own form takes the approval back`, async () => {
    await withMcpGateway({ config: TRUSTING }, async (started) => {
      const client = await connectAsked(started, era, {
        token: await started.token("tools", "approve"),
        elicitation: { form: {} },
        onAsked: () => Promise.resolve({ action: "decline" }),
      });
      const declined = await client.callTool(CALL);
      assert.match(textOf(declined), /did not approve it/);
      assert.deepEqual((await approvalsOf(started)).map(({ status }) => status), ["cancelled"]);
    });
  });

  const untrusted = [
    { what: "without trust_elicitation", config: CONFIG, scopes: ["tools", "approve"] },
    { what: "of a token without approve", config: TRUSTING, scopes: ["tools"] },
  ] as const;
  for (const { what, config, scopes } of untrusted) {
    test(`${era}: a client answers no approval of its own call, ${what}`, async () => {
      await withMcpGateway({ config }, async (started) => {
        const client = await connectAsked(started, era, {
          token: await started.token(...scopes),
          elicitation: { form: {} },
          onAsked: () => Promise.reject(new Error("nobody may be asked")),
        });
        assert.equal((await client.callTool(CALL)).isError, true);
        assert.deepEqual((await approvalsOf(started)).map(({ status }) => status), ["pending"]);
      });
    });
  }

  test(`${era}: with trust_elicitation, a token with approve answers in the client`, async () => {
    await withMcpGateway({ config: TRUSTING }, async (started) => {
      let decision = "approve";
      const client = await connectAsked(started, era, {
        token: await started.token("tools", "approve"),
        elicitation: { form: {} },
        onAsked: () => Promise.resolve({ action: "accept", content: { decision } }),
      });
      assert.notEqual((await client.callTool(CALL)).isError, true);
      const [approved] = await approvalsOf(started);
      assert.equal(approved?.status, "approved");
      decision = "deny";
      const denied = await client.callTool({ ...CALL, arguments: { ...CALL.arguments, content: "Another" } });
      assert.equal(denied.isError, true);
      assert.deepEqual((await approvalsOf(started)).map(({ status }) => status), ["denied", "approved"]);
    });
  });

  test(`${era}: a form shows the whole call, with what nobody sees spelled out and the files it changes`, async () => {
    await withMcpGateway({ config: TRUSTING }, async (started) => {
      const seen: string[] = [];
      const client = await connectAsked(started, era, {
        token: await started.token("tools", "approve"),
        elicitation: { form: {} },
        onAsked({ message }) {
          seen.push(String(message));
          return Promise.resolve({ action: "accept", content: { decision: "deny" } });
        },
      });
      const content = "echo a\u202eb\u2028\u200bc";
      assert.equal((await client.callTool({ ...CALL, arguments: { path: "n.txt", content } })).isError, true);
      const [shown = ""] = seen;
      assert.ok(shown.includes("\n+echo a\\u202eb\\u2028\\u200bc\n"), shown);
      assert.doesNotMatch(shown, /[\u202e\u2028\u200b]/);
      assert.match(shown, /write_file \(write\) in [\s\S]*\nFiles:\n {2}"n\.txt" \(new\)$/);
    });
  });

  test(`${era}: a call that a form cannot show whole goes to the dashboard`, async () => {
    await withMcpGateway({ config: TRUSTING }, async (started) => {
      const long = { ...CALL, arguments: { path: "n.txt", content: `${" ".repeat(2_000)}rm -rf /` } };
      const byForm = await connectAsked(started, era, {
        token: await started.token("tools", "approve"),
        elicitation: { form: {} },
        onAsked: () => Promise.reject(new Error("no form may be shown")),
      });
      const refused = await byForm.callTool(long);
      const [{ id } = assert.fail("nothing is asked")] = await approvalsOf(started);
      assert.equal(refused.isError, true);
      assert.ok(textOf(refused).includes(`http://127.0.0.1/#approvals/${id} shows it`), textOf(refused));
      const modes: unknown[] = [];
      const byBoth = await connectAsked(started, era, {
        token: await started.token("tools", "approve"),
        elicitation: { form: {}, url: {} },
        onAsked({ mode }) {
          modes.push(mode);
          queueMicrotask(() => void answer(started, "deny"));
          // The answer of a form that was never shown decides nothing
          return Promise.resolve({ action: "accept", content: { decision: "approve" } });
        },
      });
      assert.match(textOf(await byBoth.callTool(long)), /denied/);
      assert.deepEqual(modes, ["url"]);
    });
  });
}

for (const isSeen of [false, true]) {
  test(`a run that run_start began ${isSeen ? "waits while somebody looks at approvals" : "is denied where nobody can be asked, and says who could be"}`, async () => {
    await withMcpGateway({ config: CONFIG }, async (started) => {
      const client = await started.connect({ token: await started.token("tools", "runs"), era: MCP_ERAS[0] });
      if (isSeen) await approvalsOf(started);
      const message = `/write_file ${JSON.stringify(CALL.arguments)}`;
      const { structuredContent } = await client.callTool({ name: "run_start", arguments: { message } });
      const { run_id } = structuredContent as { run_id: string };
      const status = () => client.callTool({ name: "run_status", arguments: { run_id, wait_secs: isSeen ? 0 : 60 } });
      if (isSeen) {
        await until(async () => (await approvalsOf(started)).some(({ status }) => status === "pending"));
        await until(async () => /is waiting_for_approval/.test(textOf(await status())));
        await answer(started, "approve");
        await until(async () => /is completed/.test(textOf(await status())));
      } else {
        await status();
        const { data } = await started.ask("GET", "/v1/audit?type=decision") as { data: { reason: string }[] };
        assert.match(data[0]?.reason ?? "", /nobody was asked.*What would have helped: .*an open dashboard/);
      }
      assert.equal(existsSync(join(started.folder, "note.txt")), isSeen);
    });
  });
}

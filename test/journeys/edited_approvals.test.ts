/** Questions whose answer brings another input, through the public door. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import { configOf } from "../support/running_gateway.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const CONFIG = { security: { write_file: { enabled: true } } };
const WRITE = { path: "plan.md", content: "rm -rf\n", overwrite: true };
const SCRIPT: Script = [{ toolCalls: [{ name: "write_file", arguments: WRITE }] }, "Done"];

async function begin(gateway: RunningGateway, more: object = {}): Promise<string> {
  const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Make a plan", ...more } }));
  return String(id);
}

async function waiting(gateway: RunningGateway) {
  // deno-lint-ignore no-explicit-any -- the body is looked at by the assertions
  let found: any[] = [];
  await until(async () => {
    found = (await jsonOf(gateway.call("/v1/approvals?status=pending"))).data;
    return found.length === 1;
  }, "the run asks");
  return found[0];
}

async function told(gateway: RunningGateway, run: string): Promise<string> {
  await until(async () => (await jsonOf(gateway.call(`/v1/runs/${run}`))).status === "completed", "the run ends");
  return String(gateway.provider.requests.at(-1)?.messages.findLast(({ role }) => role === "tool")?.content);
}

async function refusal(reply: Response): Promise<readonly [status: number, message: string]> {
  const { error } = await jsonOf(reply);
  return [reply.status, error.message];
}

test("a person's input takes the place of the call's: checked, decided and bound once more, and the model is told", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: SCRIPT, config: CONFIG, files: { "plan.md": "old\n" } });
    const run = await begin(gateway);
    const question = await waiting(gateway);
    assert.equal(question.description.title, "The agent wants to change plan.md");
    assert.deepEqual(question.description.asker.slice(-1), ["Message: Make a plan"]);
    assert.equal(question.editable, true);
    const answer = (body: object) => gateway.call(`/v1/approvals/${question.id}`, { body });
    const edited = { ...WRITE, content: "beans\n" };
    for (
      const [body, status, why] of [
        [{ decision: "approve", input: { path: 1 } }, 400, /Cannot take "input"/],
        [{ decision: "deny", input: edited }, 400, /a denial needs none/],
        [{ decision: "approve", remember: "always", input: edited }, 400, /counts once/],
        [{ decision: "approve", input: { ...edited, path: "/etc/passwd" } }, 409, /Cannot approve this input/],
      ] as const
    ) {
      const [code, message] = await refusal(await answer(body));
      assert.equal(code, status, message);
      assert.match(message, why);
    }
    // Of two answers at once the first counts
    const texts = ["beans\n", "peas\n"];
    const replies = await Promise.all(
      texts.map((content) => answer({ decision: "approve", input: { ...WRITE, content } })),
    );
    assert.deepEqual(replies.map(({ status }) => status).sort(), [200, 409]);
    const content = texts[replies.findIndex(({ status }) => status === 200)];
    const output = await told(gateway, run);
    assert.match(
      output,
      /^\[A person changed this call before approving it\. Its input in place of yours: \{.*(beans|peas)/,
    );
    assert.equal(readFileSync(gateway.workspace.path("plan.md"), "utf8"), content);
    const settled = await jsonOf(gateway.call(`/v1/approvals/${question.id}`));
    assert.deepEqual([settled.input, settled.edited.input, settled.rule_id], [{ ...WRITE, content }, WRITE, null]);
    assert.deepEqual((await jsonOf(gateway.call("/v1/approval-rules"))).data, []);
  }));

test("a file that changed since the question refuses another input with 409, and the question stays", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: SCRIPT, config: CONFIG, files: { "plan.md": "old\n" } });
    const run = await begin(gateway, { conversation_id: "talk" });
    const question = await waiting(gateway);
    writeFileSync(gateway.workspace.path("plan.md"), "another\n");
    const answer = (body: object) => gateway.call(`/v1/approvals/${question.id}`, { body });
    const [code, message] = await refusal(await answer({ decision: "approve", input: { ...WRITE, content: "b\n" } }));
    assert.deepEqual([code, /is not what it was when it was asked/.test(message)], [409, true]);
    assert.equal((await answer({ decision: "deny", note: "not now" })).status, 200);
    assert.match(await told(gateway, run), /a person denied it: not now/);
    const events = await (await gateway.call(`/v1/runs/${run}/events?follow=0`)).text();
    assert.match(events, /"type":"tool_end".*"denied_by":"person"/);
    const { messages } = await jsonOf(gateway.call("/v1/conversations/talk"));
    const { is_error, denied_by } = messages.data.find(({ role }: { readonly role: string }) => role === "tool");
    assert.deepEqual([is_error, denied_by], [true, "person"]);
  }));

test("a call of a program that repeats it takes no other input", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: ["-"], config: CONFIG });
    const { approval_id: id } = await jsonOf(gateway.call("/v1/tools/write_file/call", { body: { input: WRITE } }));
    const body = { decision: "approve", input: WRITE };
    const [code, message] = await refusal(await gateway.call(`/v1/approvals/${id}`, { body }));
    assert.deepEqual([code, /whoever makes this call makes it as it stands/.test(message)], [400, true]);
  }));

test("an answer with another input counts after a restart", () =>
  withWorld(async (world) => {
    const options = {
      dataDir: join(await world.folder(), "data"),
      workspace: await world.workspace({ "plan.md": "old\n" }),
      config: CONFIG,
    };
    let [run, id] = ["", ""];
    await withWorld(async (first) => {
      const gateway = await first.gateway({ ...options, script: SCRIPT });
      run = await begin(gateway);
      id = (await waiting(gateway)).id;
    });
    const gateway = await world.gateway({ ...options, script: ["Done"] });
    assert.equal((await waiting(gateway)).id, id);
    const body = { decision: "approve", input: { ...WRITE, content: "beans\n" } };
    assert.equal((await gateway.call(`/v1/approvals/${id}`, { body })).status, 200);
    assert.match(await told(gateway, run), /A person changed this call/);
    assert.equal(readFileSync(gateway.workspace.path("plan.md"), "utf8"), "beans\n");
  }));

test("what a person denied for good stays denied where another input becomes that call", () =>
  withWorld(async (world) => {
    const options = { dataDir: join(await world.folder(), "data"), workspace: await world.workspace({}) };
    const denied = { path: "never.md", content: "x" };
    await withWorld(async (first) => {
      const gateway = await first.gateway({ ...options, script: ["-"], config: CONFIG });
      const { approval_id: id } = await jsonOf(gateway.call("/v1/tools/write_file/call", { body: { input: denied } }));
      const body = { decision: "deny", remember: "always" };
      assert.equal((await gateway.call(`/v1/approvals/${id}`, { body })).status, 200);
    });
    const rules = [{ name: "notes", tool: "write_file", path: "never.md", then: "allow" }] as const;
    const gateway = await world.gateway({ ...options, script: SCRIPT, config: { ...CONFIG, autonomy: { rules } } });
    const run = await begin(gateway);
    const { id } = await waiting(gateway);
    await gateway.call(`/v1/approvals/${id}`, { body: { decision: "approve", input: denied } });
    assert.match(await told(gateway, run), /a person denied such a call before/);
    assert.equal(existsSync(gateway.workspace.path("never.md")), false);
  }));

test("the audit names the approval of a person's input that the policy allows by itself", () =>
  withWorld(async (world) => {
    const rules = [{ name: "free", tool: "write_file", path: "free.md", then: "allow" }] as const;
    const gateway = await world.gateway({ script: SCRIPT, config: { ...CONFIG, autonomy: { rules } } });
    const run = await begin(gateway);
    const { id } = await waiting(gateway);
    const body = { decision: "approve", input: { path: "free.md", content: "x" } };
    assert.equal((await gateway.call(`/v1/approvals/${id}`, { body })).status, 200);
    await told(gateway, run);
    const { data } = await jsonOf(gateway.call("/v1/audit?type=decision"));
    const allowed = data.filter(({ decision }: { readonly decision: string }) => decision === "allow");
    assert.deepEqual(allowed.map(({ rule, approval_id }: Readonly<Record<string, string>>) => [rule, approval_id]), [
      ["rule:free", id],
    ]);
  }));

test("a call whose surroundings changed since the question takes no other input", () =>
  withWorld(async (world) => {
    const script: Script = [{ toolCalls: [{ name: "shell", arguments: { command: "sh a" } }] }, "Done"];
    const config = (local_sockets: readonly string[]) => ({
      security: { allowed_commands: ["sh"], shell: { sandbox: "auto" as const, local_sockets } },
    });
    const gateway = await world.gateway({ script, config: config([]) });
    await begin(gateway);
    const { id } = await waiting(gateway);
    await gateway.services.reload(() => Promise.resolve(configOf(config(["/run/other.sock"]))));
    assert.equal(gateway.services.config().security.shell.local_sockets.length, 1);
    const body = { decision: "approve", input: { command: "sh b" } };
    const [code, message] = await refusal(await gateway.call(`/v1/approvals/${id}`, { body }));
    assert.deepEqual([code, /is not what it was when it was asked/.test(message)], [409, true], message);
  }));

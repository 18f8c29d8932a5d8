/** A person who is away from gateways that are killed: asked at night, steering, stopping everything. Processes and servers are real. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { countingCommand } from "../support/killable_gateway.ts";
import {
  type FakeServer,
  jsonOf,
  type KillableGateway,
  until,
  type UpstreamReply,
  withWorld,
} from "../support/world.ts";

const START = "https://postern.example";
const count = (seconds = 0): UpstreamReply => ({
  kind: "tool_call",
  name: "shell",
  arguments: [JSON.stringify({ command: countingCommand(seconds) })],
});
const DONE: UpstreamReply = { kind: "text", chunks: ["the ", "answer"] };
const HANG: UpstreamReply = { kind: "hang" };

interface Told {
  readonly title: string;
  readonly answer_url: string | null;
  readonly alerts: readonly { readonly event: string }[];
}

/** The messages about one event that a webhook got. */
function toldOf(hook: FakeServer, event: string): readonly Told[] {
  return hook.requests.map(({ json }) => json as Told) // what the gateway sends is looked at by the assertions
    .filter(({ alerts }) => alerts.some((alert) => alert.event === event));
}

/** Opens an answer link, and answers by the form of its page. @returns the status, and the last page */
async function answerByLink({ url }: KillableGateway, link: string | null | undefined) {
  const address = String(link).replace(START, url);
  const opened = await fetch(address);
  const page = await opened.text();
  const [, nonce] = /name="nonce" value="([^"]*)"/.exec(page) ?? [];
  if (nonce === undefined) return { status: opened.status, page };
  const body = new URLSearchParams({ token: address.split("/").at(-1) ?? "", nonce, decision: "allow" });
  const answered = await fetch(`${url}/answer`, { method: "POST", body });
  return { status: answered.status, page: await answered.text() };
}

async function endOf(gateway: KillableGateway, run: string) {
  let found: { status: string; result: string | null; error: { code: string } | null } = {
    ...{ status: "", result: null, error: null },
  };
  const isOver = async () => {
    found = await jsonOf(gateway.call(`/v1/runs/${run}`));
    return ["completed", "failed", "cancelled", "needs_review"].includes(found.status);
  };
  await until(isOver, () => `run ${run} is ${found.status}`);
  return found;
}

test("a question at three in the morning is told of, outlives each kill -9, and its call is made once", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    let isDeaf = false;
    const hook = await world.server((_seen, response) => void (isDeaf || response.end("{}")));
    const gateway = await world.killableGateway({
      ...upstream,
      alwaysAsk: ["shell"],
      env: {
        HOOK_SECRET: "secret",
        POSTERN__GATEWAY__PUBLIC_URL: START,
        POSTERN__GATEWAY__ANSWER_LINKS: "true",
        POSTERN__NOTIFY: `[{ name = "phone", kind = "webhook", url = "${hook.origin}", secret_env = "HOOK_SECRET", \
window_secs = 0, events = ["approval_waiting", "run_ended"] }]`,
      },
    });
    const asked = () => toldOf(hook, "approval_waiting");
    const restart = async () => {
      await gateway.kill();
      isDeaf = false;
      upstream.script(DONE);
      await gateway.restart();
    };
    /** Lets a schedule fire whose run asks a person. @returns the run, once the webhook was told */
    const ask = async (id: string) => {
      upstream.script(count(), DONE);
      const before = asked().length;
      const input = { id, in: "1s", prompt: "Count once" };
      assert.equal((await jsonOf(gateway.call("/v1/tools/schedule/call", { body: { input } }))).is_error, false);
      await until(() => asked().length > before, "nobody is told");
      const [firing] = (await jsonOf(gateway.call(`/v1/schedules/${id}/history`))).data;
      return String(firing.run_id);
    };
    const ends = async (run: string, counted: number) => {
      const { status, result } = await endOf(gateway, run);
      assert.deepEqual([status, result, gateway.counted()], ["completed", "the answer", counted]);
      await until(() => toldOf(hook, "run_ended").length >= counted, "nobody is told of the end");
    };

    // Filed, and the message has not arrived: it comes once more
    isDeaf = true;
    const first = await ask("filed");
    const told = asked().length;
    await restart();
    await until(() => asked().length > told, "the message is lost");
    const [open, ...others] = (await jsonOf(gateway.call("/v1/approvals?status=pending"))).data;
    assert.deepEqual([open?.run_id, others], [first, []]);
    assert.equal(gateway.counted(), 0);
    assert.equal((await gateway.call(`/v1/approvals/${open.id}`, { body: { decision: "approve" } })).status, 200);
    await ends(first, 1);

    // Told: the link that was sent before counts after
    const second = await ask("told");
    const link = asked().at(-1)?.answer_url;
    await restart();
    assert.equal((await answerByLink(gateway, link)).status, 200);
    await ends(second, 2);
    const again = await answerByLink(gateway, link);
    assert.deepEqual([again.status, /allowed already, with this link/.test(again.page)], [410, true]);

    // Answered: whether the call had begun by then is the kill's to choose
    const third = await ask("answered");
    assert.equal((await answerByLink(gateway, asked().at(-1)?.answer_url)).status, 200);
    await restart();
    if ((await endOf(gateway, third)).status === "needs_review") {
      const body = { action: "resume", outcome: gateway.counted() === 3 ? "done" : "not_done" };
      assert.equal((await gateway.call(`/v1/runs/${third}/resolve`, { body })).status, 200);
      await until(async () => (await jsonOf(gateway.call(`/v1/runs/${third}`))).status !== "needs_review");
    }
    await ends(third, 3);
    assert.deepEqual((await jsonOf(gateway.call("/v1/approvals?status=pending"))).data, [], "nobody is asked twice");
  }));

test("a message that steers a wrong turn is neither lost nor doubled by a kill -9, wherever the run was", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const gateway = await world.killableGateway(upstream);
    /** Lets the command of a station end. */
    const open = (gate: string) => writeFileSync(join(gateway.workspace, gate), "");
    const stations = ["in-the-first-turn", "in-a-call", "in-the-next-turn", "in-the-turn-that-took-it-in"] as const;
    for (const [index, talk] of stations.entries()) {
      const message = `No, stop: ${talk}`;
      const seen = upstream.turns.length;
      const command = `sh -c "echo begun >> counter; until test -e ${talk}; do sleep 0.1; done"`;
      const call: UpstreamReply = { kind: "tool_call", name: "shell", arguments: [JSON.stringify({ command })] };
      upstream.script(...(index === 0 ? [HANG] : [call, HANG]));
      if (talk === "in-the-next-turn") open(talk);
      const body = { message: "Count once", conversation_id: talk };
      const { id } = await jsonOf(gateway.call("/v1/runs", { body }));
      const turns = talk === "in-the-next-turn" ? 2 : 1;
      await until(() => upstream.turns.length === seen + turns && gateway.counted() === index, talk);
      const said = await gateway.call(`/v1/runs/${id}/messages`, { body: { message, mode: "steer" } });
      const { id: own, steers } = await jsonOf(Promise.resolve(said));
      assert.deepEqual([said.status, steers], [202, { run_id: id, mode: "steer" }], talk);
      if (talk === "in-the-turn-that-took-it-in") {
        open(talk);
        await until(() => upstream.turns.length === seen + 2, talk);
        assert.ok(upstream.turns.at(-1)?.text.includes(message), talk);
      }
      await gateway.kill();
      upstream.script(DONE);
      await gateway.restart();
      open(talk);
      const { status } = await endOf(gateway, id);
      assert.equal(status, talk === "in-a-call" ? "needs_review" : "completed", talk);
      // A run that waits for a person leaves the message its turn
      const { error } = await endOf(gateway, own);
      assert.equal(error?.code, status === "completed" ? "taken_in" : undefined, talk);
      if (status === "needs_review") {
        const body = { action: "resume", outcome: "done" };
        assert.equal((await gateway.call(`/v1/runs/${id}/resolve`, { body })).status, 200);
        await until(async () => (await jsonOf(gateway.call(`/v1/runs/${id}`))).status === "completed", talk);
      }
      const { messages } = await jsonOf(gateway.call(`/v1/conversations/${talk}`));
      const users = messages.data.filter(({ role }: { readonly role: string }) => role === "user");
      assert.deepEqual(users.map(({ content }: { readonly content: string }) => content).sort(), [
        "Count once",
        message,
      ]);
      assert.equal(upstream.turns.at(-1)?.text.split(message).length, 2, `${talk}: the model is told once`);
      assert.equal(gateway.counted(), index, talk);
    }
  }));

test("what is halted in an emergency stays halted over kill -9, and goes on once a person says so", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream(count(30), HANG);
    const gateway = await world.killableGateway(upstream);
    const start = (message: string) => gateway.call("/v1/runs", { body: { message } });
    const { id } = await jsonOf(start("Count for long"));
    await until(() => gateway.counted() === 1, "the command does not begin");
    const { id: other } = await jsonOf(start("Think for long"));
    await until(() => upstream.turns.length === 2, "the model is not asked");
    const input = { id: "night", in: "1s", tool: "shell", input: { command: countingCommand() } };
    assert.equal((await jsonOf(gateway.call("/v1/tools/schedule/call", { body: { input } }))).is_error, false);
    assert.equal((await gateway.call("/v1/halts", { body: { kind: "all" } })).status, 200);
    for (const run of [id, other]) assert.match((await endOf(gateway, run)).status, /^(failed|cancelled)$/);

    const turns = upstream.turns.length;
    for (let times = 0; times < 2; times++) {
      await gateway.kill();
      await gateway.restart();
      assert.match(gateway.output(), /Halted +all work, since .*postern resume/, "its start does not say so");
      const refused = await start("Hi");
      assert.deepEqual([refused.status, (await jsonOf(Promise.resolve(refused))).error.code], [503, "halted"]);
      const body = { input: { command: countingCommand() } };
      const call = await gateway.call("/v1/tools/shell/call", { body });
      assert.match(await call.text(), /a person has halted all work/);
    }
    // The schedule was due meanwhile, and waits
    assert.equal((await jsonOf(gateway.call("/v1/schedules/night/history"))).data.length, 0);
    assert.deepEqual([upstream.turns.length, gateway.counted()], [turns, 1]);

    upstream.script(DONE);
    assert.deepEqual(await jsonOf(gateway.call("/v1/halts", { method: "DELETE" })), { resumed: ["all"] });
    await until(() => gateway.counted() === 2, "the schedule does not go on");
    const { id: next } = await jsonOf(start("Hi"));
    assert.deepEqual(await endOf(gateway, next).then(({ result }) => result), "the answer");
    for (const run of [id, other]) assert.notEqual((await endOf(gateway, run)).status, "completed");
    await gateway.kill();
    await gateway.restart();
    assert.deepEqual((await jsonOf(gateway.call("/v1/halts"))).data, []);
    assert.equal(gateway.counted(), 2);
  }));

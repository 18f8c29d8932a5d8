import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import type { Script } from "../../fixtures/scripted_provider.ts";
import type { SopCatalogue, SopExecutionView } from "../../lib/tools/sops/sops.ts";
import { git, gitTest, initRepository } from "../support/git_fixture.ts";
import { type RunningGateway, until, withWorld } from "../support/world.ts";

const PROCEDURES = fileURLToPath(new URL("../../fixtures/sops", import.meta.url));
const CONFIG = {
  autonomy: { level: "full" },
  enable_git: true,
  security: { write_file: { enabled: true }, shell: { sandbox: "off" } },
  sops: { dirs: [PROCEDURES] },
  gateway: { rate_limit_max: 0 },
};

interface Called<T> {
  readonly output: string;
  readonly is_error: boolean;
  readonly data: T;
}

async function call<T = SopExecutionView>({ call }: RunningGateway, tool: string, input: unknown): Promise<Called<T>> {
  const reply = await call(`/v1/tools/${tool}/call`, { body: { input } });
  assert.equal(reply.status, 200);
  return await reply.json() as Called<T>;
}

/** Looks until it is so; the gateway's work goes on in between. */
async function untilSo(
  gateway: RunningGateway,
  id: string,
  isSo: (execution: SopExecutionView) => boolean,
): Promise<SopExecutionView> {
  let seen = await call(gateway, "sop_status", { execution_id: id });
  const neverCame = () => `It never came to that: ${seen.output}`;
  await until(async () => {
    seen = await call(gateway, "sop_status", { execution_id: id });
    if (isSo(seen.data)) return true;
    assert.notEqual(seen.data.status, "failed", neverCame());
    return false;
  }, neverCame);
  return seen.data;
}

const waitsAt = (step: string) => ({ steps, status }: SopExecutionView) =>
  status !== "pending" &&
  ["waiting", "waiting_for_approval"].includes(steps.find(({ id }) => id === step)?.status ?? "");
const isCompleted = ({ status }: SopExecutionView) => status === "completed";

async function withRepositoryGateway(
  files: Readonly<Record<string, string>>,
  script: Script,
  use: (gateway: RunningGateway) => Promise<void>,
): Promise<void> {
  await withWorld(async (world) => {
    const workspace = await world.workspace(files);
    initRepository(workspace.root);
    await use(await world.gateway({ config: CONFIG, workspace, script }));
  });
}

gitTest(
  "the release checklist goes from the repository's state to a commit that a person approves",
  () =>
    withRepositoryGateway({ "README.md": "# A project\n" }, ["- A project was begun"], async (gateway) => {
      const { workspace, provider } = gateway;
      const listed = await call<SopCatalogue>(gateway, "sop_list", {});
      assert.deepEqual(listed.data.invalid, []);
      assert.deepEqual(listed.data.sops.map(({ id }) => id), ["incident-triage", "release-checklist", "weekly-report"]);
      const bad = await call(gateway, "sop_execute", {
        sop: "release-checklist",
        inputs: { version: "1.0.0 --amend" },
      });
      assert.deepEqual([bad.is_error, /must match the pattern/.test(bad.output)], [true, true]);

      const { data: { id } } = await call(gateway, "sop_execute", {
        sop: "release-checklist",
        inputs: { version: "1.0.0" },
      });
      const byHand = await untilSo(gateway, id, waitsAt("tests"));
      assert.match(byHand.waits_for, /Run the tests on a clean checkout.*main/s);
      await call(gateway, "sop_advance", { execution_id: id });

      await untilSo(gateway, id, waitsAt("commit"));
      assert.equal(readFileSync(workspace.path("releases/1.0.0.md"), "utf8"), "# 1.0.0\n\n- A project was begun\n");
      assert.match(String(provider.requests[0]?.messages.at(-1)?.content), /The commits are:.*first/s);
      assert.equal(git(workspace.root, "log", "--oneline").trim().split("\n").length, 1);
      const early = await call(gateway, "sop_advance", { execution_id: id });
      assert.deepEqual([early.is_error, /requires approval for its step "Commit the release"/.test(early.output)], [
        true,
        true,
      ]);
      const approved = await call(gateway, "sop_approve", id);
      assert.match(approved.output, /^Approved\n/);

      await untilSo(gateway, id, waitsAt("announce"));
      assert.match(git(workspace.root, "log", "--format=%s", "-1"), /^Release 1\.0\.0\n/);
      const done = await call(gateway, "sop_advance", { execution_id: id });
      assert.equal(done.data.status, "completed");
      // Every step with a run left one, as a child of the execution
      const runs = await Promise.all(
        done.data.steps.map(({ run_id }) => gateway.services.agent?.runs.get(run_id ?? "")),
      );
      assert.deepEqual(
        runs.map((run) => run === undefined ? null : [run.kind, run.parent_id, run.status]),
        done.data.steps.map(({ kind }) => (kind === "manual" ? null : ["sop", id, "completed"])),
      );
    }),
);

gitTest(
  "incident triage finds the errors, has them judged, keeps the judgement, and hands over by a person's word",
  () =>
    withRepositoryGateway(
      { "logs/today.log": "12:00 INFO gate\n12:01 ERROR in gate: no key\n12:02 ERROR in door: closed\n" },
      ["The gate lost its key."],
      async (gateway) => {
        const { data: { id } } = await call(gateway, "sop_execute", {
          sop: "incident-triage",
          inputs: { service: "gate" },
        });
        const waiting = await untilSo(gateway, id, ({ approval }) => approval !== null);
        const [system, asked] = gateway.provider.requests[0]?.messages ?? [];
        assert.match(
          String(system?.content),
          /step "Judge the incident" of the procedure "Incident triage".*Change nothing\./s,
        );
        assert.match(String(asked?.content), /12:01 ERROR in gate: no key/);
        assert.doesNotMatch(String(asked?.content), /ERROR in door/);
        const shown = await (await gateway.call(`/v1/approvals/${waiting.approval?.id}`)).json() as {
          input: { manual: string };
        };
        assert.equal(shown.input.manual, "Call the people on call about gate: The gate lost its key.");
        await gateway.call(`/v1/approvals/${waiting.approval?.id}`, { body: { decision: "approve" } });
        await untilSo(gateway, id, isCompleted);
        const kept = await call<unknown>(gateway, "memory_recall", { key: id, namespace: "incidents" });
        assert.match(kept.output, /gate \(high\): The gate lost its key\./);
      },
    ),
);

gitTest(
  "the weekly report is written, saved and kept without anybody",
  () =>
    withRepositoryGateway({ "README.md": "# A project\n" }, ["All is well."], async (gateway) => {
      const { data: { id } } = await call(gateway, "sop_execute", {
        sop: "weekly-report",
        inputs: { audience: "management" },
      });
      const { created_at } = await untilSo(gateway, id, isCompleted);
      assert.equal(
        readFileSync(gateway.workspace.path("reports", `${created_at.slice(0, 10)}.md`), "utf8"),
        "All is well.",
      );
      assert.deepEqual(gateway.provider.requests[0]?.tools, []);
    }),
);

gitTest(
  "a denied step changes nothing further, and the execution says who said no",
  () =>
    withRepositoryGateway({ "README.md": "# A project\n" }, ["- x"], async (gateway) => {
      const { data: { id } } = await call(gateway, "sop_execute", {
        sop: "release-checklist",
        inputs: { version: "1.0.0" },
      });
      await untilSo(gateway, id, waitsAt("tests"));
      await call(gateway, "sop_advance", { execution_id: id });
      const { approval } = await untilSo(gateway, id, waitsAt("commit"));
      await gateway.call(`/v1/approvals/${approval?.id}`, { body: { decision: "deny", note: "not on a Friday" } });
      const { error } = await untilSo(gateway, id, ({ status }) => status === "failed");
      assert.deepEqual(error, { code: "approval_denied", message: "A person denied it: not on a Friday" });
      assert.equal(git(gateway.workspace.root, "log", "--oneline").trim().split("\n").length, 1);
    }),
);

test("a model's sop_approve grants nothing, though its run was started with an administrator's token", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace({
      "own/note.toml":
        '[[steps]]\nid = "note"\ntool = "memory_store"\ninput = { key = "a", value = "b" }\nrequires_approval = true\n',
    });
    const ids: string[] = [];
    const script: Script = (_, turn) => {
      if (turn === 0) return { toolCalls: [{ name: "sop_approve", arguments: { execution_id: ids[0] ?? "" } }] };
      return turn === 1
        ? { toolCalls: [{ name: "sop_advance", arguments: { execution_id: ids[0] ?? "" } }] }
        : "I could not";
    };
    const config = { ...CONFIG, sops: { dirs: [workspace.path("own")] } };
    const gateway = await world.gateway({ config, workspace, script });
    const { data: { id } } = await call(gateway, "sop_execute", { sop: "note" });
    ids.push(id);
    await untilSo(gateway, id, waitsAt("note"));
    const reply = await gateway.call("/v1/chat/completions", {
      body: { messages: [{ role: "user", content: "Approve it" }] },
    });
    assert.equal(reply.status, 200);
    const said = gateway.provider.requests.at(-1)?.messages.filter(({ role }) => role === "tool") ?? [];
    assert.match(String(said[0]?.content), /^A person is asked; nothing is approved yet/);
    assert.match(String(said[1]?.content), /^Cannot advance/);
    assert.equal((await call(gateway, "sop_status", { execution_id: id })).data.status, "waiting_for_approval");
    assert.equal((await call(gateway, "sop_approve", { execution_id: id })).is_error, false);
    await untilSo(gateway, id, isCompleted);
  }));

test("an approval of a step counts for files as they were, and for the policy's own approval of the same call", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace({
      "own/write.toml": '[[steps]]\nid = "write"\ntool = "write_file"\nrequires_approval = true\n' +
        'input = { path = "a.txt", content = "new", overwrite = true }\n',
      "a.txt": "old",
    });
    const config = { ...CONFIG, autonomy: { level: "supervised" }, sops: { dirs: [workspace.path("own")] } };
    const gateway = await world.gateway({ config, workspace, script: [] });
    const { data: { id } } = await call(gateway, "sop_execute", { sop: "write" });
    const first = (await untilSo(gateway, id, waitsAt("write"))).approval?.id ?? "";
    const asked = await gateway.services.approvals.get(first);
    assert.deepEqual(asked?.files.map(({ path }) => path), ["a.txt"]);
    workspace.write("a.txt", "changed meanwhile");
    await gateway.call(`/v1/approvals/${first}`, { body: { decision: "approve" } });
    const { approval } = await untilSo(gateway, id, ({ approval }) => approval !== null && approval.id !== first);
    assert.equal(readFileSync(workspace.path("a.txt"), "utf8"), "changed meanwhile");
    await gateway.call(`/v1/approvals/${approval?.id}`, { body: { decision: "approve" } });
    await untilSo(gateway, id, isCompleted);
    assert.equal(readFileSync(workspace.path("a.txt"), "utf8"), "new");
    const { approvals } = await gateway.services.approvals.list({ limit: 10 });
    assert.deepEqual(approvals.map(({ tool, status }) => [tool, status]), [
      ["write_file", "approved"],
      ["sop_advance", "approved"],
      ["sop_advance", "approved"],
    ]);
  }));

test("a file that is exchanged while an approved step waits in the queue is not run, though the policy asks nobody", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace({
      "own/build.toml":
        '[[steps]]\nid = "build"\ntool = "shell"\ninput = { command = "sh build.sh" }\nrequires_approval = true\n',
      "build.sh": "echo good > made.txt\n",
    });
    const config = {
      ...CONFIG,
      runs: { max_concurrent: 1 },
      security: { allowed_commands: ["sh"], shell: { sandbox: "off" } },
      sops: { dirs: [workspace.path("own")] },
    };
    const held = Promise.withResolvers<void>();
    const gateway = await world.gateway({
      config,
      workspace,
      script: [{ begins: true, holdUntil: held.promise, text: ["a", "b"] }],
    });
    const { data: { id } } = await call(gateway, "sop_execute", { sop: "build" });
    const { approval } = await untilSo(gateway, id, waitsAt("build"));
    const chat = gateway.call("/v1/chat/completions", { body: { messages: [{ role: "user", content: "Hold" }] } });
    await until(() => gateway.provider.active === 1, "nothing holds the slot");
    await gateway.call(`/v1/approvals/${approval?.id}`, { body: { decision: "approve" } });
    await untilSo(gateway, id, ({ steps }) => steps[0]?.status === "running");
    workspace.write("build.sh", "echo evil > made.txt\n");
    held.resolve();
    await (await chat).text();
    const { error } = await untilSo(gateway, id, ({ status }) => status === "failed" || status === "completed");
    assert.match(error?.message ?? "", /is not what it was when the call was approved/);
    assert.equal(existsSync(workspace.path("made.txt")), false);
  }));

test("an execution goes on after a restart of the gateway, with its approval still pending", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace({
      "own/note.toml":
        '[[steps]]\nid = "note"\ntool = "memory_store"\ninput = { key = "a", value = "b" }\nrequires_approval = true\n',
    });
    const config = { ...CONFIG, sops: { dirs: [workspace.path("own")] } };
    const dataDir = workspace.path("..", "data");
    let id = "";
    let approvalId = "";
    await world.during(world.gateway({ config, workspace, dataDir, script: [] }), async (gateway) => {
      id = (await call(gateway, "sop_execute", { sop: "note" })).data.id;
      approvalId = (await untilSo(gateway, id, waitsAt("note"))).approval?.id ?? "";
    });
    assert.ok(existsSync(dataDir));
    await world.during(world.gateway({ config, workspace, dataDir, script: [] }), async (gateway) => {
      const before = await call(gateway, "sop_status", { execution_id: id });
      assert.equal(before.data.approval?.id, approvalId);
      await gateway.call(`/v1/approvals/${approvalId}`, { body: { decision: "approve" } });
      await untilSo(gateway, id, isCompleted);
    });
  }));

import assert from "node:assert/strict";
import { test } from "node:test";
import { GuardedTargets } from "../../../lib/system/browser/guarded_targets.ts";
import { until } from "../../support/until.ts";

interface Sent {
  readonly id: number;
  readonly method: string;
  readonly sessionId?: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** A browser that notes commands, and answers each when the test says so. */
function connect() {
  const sent: Sent[] = [];
  const heard: object[] = [];
  const inner = {
    send: (message: object) => void sent.push(message as Sent),
    close: () => {},
    onmessage: undefined as ((message: object) => void) | undefined,
    onclose: undefined as ((reason?: string) => void) | undefined,
  };
  // The parts of the protocol's transport that are used
  const targets = new GuardedTargets(inner as unknown as ConstructorParameters<typeof GuardedTargets>[0]);
  targets.onmessage = (message) => void heard.push(message);
  const say = (message: object) => inner.onmessage?.(message);
  const attach = (targetId: string, type: string) =>
    say({ method: "Target.attachedToTarget", params: { sessionId: `s-${targetId}`, targetInfo: { targetId, type } } });
  const answer = (method: string, reply: object = { result: {} }) => {
    const at = sent.findIndex((command) => command.method === method);
    const [command] = sent.splice(at, at < 0 ? 0 : 1);
    assert.ok(command !== undefined, `${method} was sent`);
    say({ id: command.id, ...reply });
    return command;
  };
  const methods = () => sent.map(({ method }) => method);
  return { targets, sent, heard, say, attach, answer, methods };
}

/** Sets a guard that refuses every request, in a browser without targets. */
async function guarded() {
  const browser = connect();
  const begun = browser.targets.guard(() => false);
  await until(() => browser.methods().includes("Target.getTargets"), "the targets are asked for");
  browser.answer("Target.getTargets", { result: { targetInfos: [] } });
  await begun;
  return browser;
}

test("a new target goes on only when its requests are guarded, and a refused request fails", async () => {
  const { targets, attach, answer, say, sent, heard, methods } = await guarded();
  attach("page", "page");
  targets.send({ id: 7, method: "Runtime.runIfWaitingForDebugger", sessionId: "s-page" });
  assert.deepEqual(methods(), ["Fetch.enable"]);
  answer("Fetch.enable");
  await until(() => methods().includes("Runtime.runIfWaitingForDebugger"), "the target goes on");
  say({ method: "Fetch.requestPaused", sessionId: "s-page", params: { requestId: "r", request: {} } });
  assert.deepEqual(sent.at(-1)?.params, { requestId: "r", errorReason: "BlockedByClient" });
  assert.equal(heard.length, 1, "the driver hears of the target, and of no request");
});

test("a target that cannot be guarded, and a shared worker, are closed", async () => {
  const { attach, answer, sent, heard, methods } = await guarded();
  attach("frame", "iframe");
  answer("Fetch.enable", { error: { code: -32601, message: "not found" } });
  await until(() => methods().includes("Target.closeTarget"), "the frame is closed");
  attach("shared", "shared_worker");
  assert.deepEqual(sent.map(({ params }) => params?.["targetId"]), ["frame", "shared"]);
  assert.equal(heard.length, 1, "the driver, which would let it go on, does not hear of the shared worker");
});

test("a secret is refused where a target of before cannot be guarded nor closed", async () => {
  const { targets, answer, methods } = connect();
  const begun = targets.guard(() => true);
  await until(() => methods().includes("Target.getTargets"), "the targets are asked for");
  answer("Target.getTargets", { result: { targetInfos: [{ targetId: "x", type: "shared_worker" }] } });
  await until(() => methods().includes("Target.closeTarget"), "it is to be closed");
  answer("Target.closeTarget", { result: { success: false } });
  await assert.rejects(begun, { code: "secret_refused" });
});

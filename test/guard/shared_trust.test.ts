import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { StoredTaintedFiles, type TaintWorkspace } from "../../lib/guard/tainted_files.ts";
import { StoredTrustedDocuments } from "../../lib/guard/trusted_documents.ts";
import { loadProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const BY = { via: "http", tokenId: null } as const;
const WEB = ["https://example.com"];

/** Marks of gateways that share a database. */
function createGateways() {
  const store = createMemoryStore();
  const clock = createFakeClock();
  const audit = createFakeAudit(store);
  const gateway = (workspace?: TaintWorkspace) =>
    new StoredTaintedFiles({ store, clock, audit: audit.append, ...(workspace && { workspace }) });
  return { store, clock, audit, gateway };
}

test("a file that one gateway marks counts as outside content at another that works in the same workspace, at once", () =>
  withTemporaryFolder(async (root) => {
    const { gateway } = createGateways();
    const [a, b] = [gateway({ id: "shared", isShared: true }), gateway({ id: "shared", isShared: true })];
    const path = join(root, "page.html");
    writeFileSync(path, "outside");
    // B has read the marks before
    assert.deepEqual(await b.of([path]), []);
    await a.markWritten([path], { taint: WEB, root });
    assert.deepEqual(await b.of([path]), WEB);
    assert.equal(await b.clear(path, BY), 1);
    assert.deepEqual(await a.of([path]), []);
  }));

test("marks that two gateways make at the same moment are both kept", () =>
  withTemporaryFolder(async (root) => {
    const { gateway } = createGateways();
    const workspace = { id: "shared", isShared: true };
    const gateways = [gateway(workspace), gateway(workspace), gateway(workspace)];
    const path = join(root, "page.html");
    writeFileSync(path, "outside");
    await Promise.all(gateways.map((each, index) => each.mark([path], { taint: [`https://${index}.example`], root })));
    for (const each of gateways) assert.equal((await each.of([path])).length, 3);
  }));

test("a path of another workspace is another file: neither a mark nor its removal counts there", () =>
  withTemporaryFolder(async (root) => {
    const { gateway } = createGateways();
    const [a, b] = [gateway({ id: "ws_a", isShared: false }), gateway({ id: "ws_b", isShared: false })];
    const path = join(root, "page.html");
    writeFileSync(path, "outside");
    await a.markWritten([path], { taint: WEB, root });
    assert.deepEqual(await b.of([path]), []);
    assert.deepEqual(await b.list(), []);
    assert.equal(await b.clear(root, BY), 0);
    assert.deepEqual(await a.of([path]), WEB);
  }));

test("a machine that does not see a shared file yet does not take its mark away; one's own workspace still forgets", () =>
  withTemporaryFolder(async (root) => {
    const { clock, gateway } = createGateways();
    const folder = join(root, "work");
    mkdirSync(folder);
    const path = join(folder, "page.html");
    writeFileSync(path, "outside");
    const [a, b] = [gateway({ id: "shared", isShared: true }), gateway({ id: "shared", isShared: true })];
    const own = gateway({ id: "ws_c", isShared: false });
    await a.markWritten([path], { taint: WEB, root });
    await own.markWritten([path], { taint: WEB, root });
    rmSync(path);
    await clock.advance(60 * 24 * 3_600_000);
    assert.equal((await b.list()).length, 1);
    assert.equal((await own.list()).length, 0);
    writeFileSync(path, "outside again");
    assert.deepEqual(await a.of([path]), WEB);
  }));

test("marks from before the cluster count in every workspace until a person clears them", () =>
  withTemporaryFolder(async (root) => {
    const { gateway } = createGateways();
    const path = join(root, "page.html");
    writeFileSync(path, "outside");
    await gateway().markWritten([path], { taint: WEB, root });
    const a = gateway({ id: "ws_a", isShared: false });
    assert.deepEqual(await a.of([path]), WEB);
    await a.mark([path], { taint: ["https://other.example"], root });
    const b = gateway({ id: "ws_b", isShared: false });
    assert.deepEqual(await b.of([path]), WEB);
    assert.equal(await a.clear(path, BY), 1);
    assert.deepEqual([await a.of([path]), await b.of([path])], [[], []]);
  }));

test("trust in a document counts at every gateway for the same path and content, and its end too", () =>
  withTemporaryFolder(async (root) => {
    const { store, clock, audit } = createGateways();
    const [a, b] = [0, 1].map(() => new StoredTrustedDocuments({ store, clock, audit: audit.append }));
    assert.ok(a && b);
    const document = { kind: "skill", path: root, digest: "a".repeat(64), text: "text" } as const;
    await a.trust(document, { by: BY });
    assert.equal(await b.isTrusted(document), true);
    assert.equal(await b.isTrusted({ ...document, digest: "b".repeat(64) }), false, "other content on another machine");
    await b.untrust(root, { by: BY });
    assert.equal(await a.isTrusted(document), false);
  }));

test("a trusted model server of one machine is not trusted at another, where the address is another server's", async () => {
  const store = createMemoryStore();
  const log = createLogger({ now: () => 0, level: "error", redact: (text) => text, sink: () => {} });
  const of = (machine?: string) => loadProviderMemory({ store, log, machine });
  await (await of("ws_a")).trust({ origin: "http://127.0.0.1:1234", uid: 1000 });
  const trusted = await Promise.all(["ws_a", "ws_b", undefined].map(async (machine) => (await of(machine)).trusted()));
  assert.deepEqual(trusted.map(({ length }) => length), [1, 0, 0]);
});

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { isEnded } from "../../lib/base/records/run.ts";
import { type ClusterMember, endMember, startMember } from "../support/cluster_member.ts";
import { createSharedDatabase, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const START = "http://127.0.0.1";
const WRITE = { path: "plan.md", content: "rm -rf\n" };
const EDITED = { ...WRITE, content: "beans\n" };
const OWNER = { via: "http", tokenId: null, scopes: ["admin"] } as const;

interface Scene {
  readonly database: SharedDatabase;
  /** The gateway whose run asks */
  readonly asking: ClusterMember;
  readonly approvalId: string;
  /** Sends to the other gateway. */
  readonly send: (path: string, body: string, type: string) => Promise<Response>;
  readonly open: (path: string) => Promise<string>;
  /** Waits for the end of the run. */
  readonly ends: () => Promise<void>;
  readonly file: string;
}

/** Lets a run ask at one gateway, and opens the doors of another one. @param place folder of the other one, which decides its workspace */
function withQuestion(place: string, use: (scene: Scene) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const script = [{ toolCalls: [{ name: "write_file", arguments: WRITE }] }, "Done"];
    const config = { gateway: { public_url: START, answer_links: true } };
    const asking = await startMember(database, join(folder, "a"), { script, config });
    const passUntil = async (isTrue: () => Promise<boolean>) => {
      for (let passed = 0; !await isTrue(); passed += 50) {
        assert.ok(passed < 60_000, "it does not come about");
        await database.clock.advance(50);
      }
    };
    await database.clock.advance(LEASE_MS);
    const { agent, approvals } = asking.services;
    const run = await agent?.runs.start(ask("Write", { caller: OWNER, durable: true })) ?? assert.fail();
    const pending = async () => (await approvals.list({ status: "pending", limit: 1 })).approvals[0]?.id;
    await passUntil(async () => await pending() !== undefined);
    const cluster = { lease_secs: LEASE_MS / 1_000, workspace_id: place === "b" ? "shared" : "another" };
    const other = await startMember(database, join(folder, place), { config: { ...config, cluster } });
    await database.clock.advance(LEASE_MS);
    const { token } = await other.services.tokens.issue({ scopes: ["admin"], label: "test" });
    const router = createRouter({ services: other.services, routes: ROUTES });
    const fetch = async (path: string, init: RequestInit) =>
      await router.fetch(new Request(START + path, init), { remoteAddress: "127.0.0.1" });
    await use({
      ...{ database, asking, approvalId: await pending() ?? "", file: join(folder, "work", WRITE.path) },
      send: (path, body, type) =>
        fetch(path, { method: "POST", body, headers: { authorization: `Bearer ${token}`, "content-type": type } }),
      open: async (path) => await (await fetch(path, {})).text(),
      ends: () => passUntil(async () => isEnded((await agent?.runs.get(run.id))?.status ?? "queued")),
    });
    for (const member of [asking, other]) await endMember(database, member);
  });
}

const answerOf = (input: object) => JSON.stringify({ decision: "approve", input });

test("an edited input that is answered at another gateway of the workspace is what runs", () =>
  withQuestion("b", async ({ approvalId, send, ends, file }) => {
    const refused = await send(`/v1/approvals/${approvalId}`, answerOf({ path: 1 }), "application/json");
    assert.equal(refused.status, 400);
    const reply = await send(`/v1/approvals/${approvalId}`, answerOf(EDITED), "application/json");
    assert.equal(reply.status, 200, await reply.clone().text());
    await ends();
    assert.equal(readFileSync(file, "utf8"), EDITED.content);
  }));

test("an edited input is refused at a gateway with another workspace, and the question stays", () =>
  withQuestion("elsewhere/b", async ({ approvalId, asking, send, file }) => {
    const reply = await send(`/v1/approvals/${approvalId}`, answerOf(EDITED), "application/json");
    assert.deepEqual([reply.status, /is not what it was when it was asked/.test(await reply.text())], [409, true]);
    assert.equal((await asking.services.approvals.get(approvalId))?.status, "pending");
    assert.equal(existsSync(file), false);
  }));

test("an answer link of one gateway is answered at another one, once", () =>
  withQuestion("b", async ({ approvalId, asking, send, open, ends, file }) => {
    const link = await (await asking.services.answerLinks()).make(approvalId) ?? assert.fail("no link");
    const path = link.slice(START.length);
    const [, nonce = ""] = /name="nonce" value="([^"]*)"/.exec(await open(path)) ?? [];
    const form = new URLSearchParams({ token: path.split("/").at(-1) ?? "", nonce, decision: "allow" }).toString();
    const type = "application/x-www-form-urlencoded";
    assert.equal((await send("/answer", form, type)).status, 200);
    await ends();
    assert.equal(readFileSync(file, "utf8"), WRITE.content);
    assert.equal((await send("/answer", form, type)).status, 410);
  }));

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { Approval } from "../../lib/base/records/approval.ts";
import { fixtureServer, mcpConfig } from "../support/mcp_bench.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

test("a client that goes away from POST /v1/tools/:name/call cancels the call, wherever it waits", () =>
  withWorld(async (world) => {
    const seen = join(await world.folder(), "seen");
    const gateway = await world.gateway({
      environment: { PATH: process.env["PATH"] ?? "" },
      config: {
        ...mcpConfig({
          old: fixtureServer({ log: seen }),
          new: fixtureServer({ log: `${seen}_new`, era: "modern" }),
        }),
        autonomy: { level: "full" },
      },
    });
    const times = (word: string, file = seen) =>
      existsSync(file) ? readFileSync(file, "utf8").split(word).length - 1 : 0;
    const questions = async () => {
      const { data } = await jsonOf(gateway.call("/v1/approvals")) as { readonly data: readonly Approval[] };
      return data.map(({ status }) => status).sort();
    };
    const names = async () => JSON.stringify(await jsonOf(gateway.call("/v1/tools")));
    await until(
      async () => /mcp__old__hang/.test(await names()) && /mcp__new__ask/.test(await names()),
      "the servers are ready",
    );
    const leave = async (tool: string, isAtWork: () => boolean | Promise<boolean>) => {
      const leaving = new AbortController();
      const reply = fetch(`${gateway.url}/v1/tools/${tool}/call`, {
        method: "POST",
        headers: { authorization: `Bearer ${gateway.token}`, "content-type": "application/json" },
        body: "{}",
        signal: leaving.signal,
      });
      await until(isAtWork, `${tool} is at work`);
      leaving.abort();
      await assert.rejects(reply, { name: "AbortError" });
    };

    await leave("mcp__old__hang", () => times("tools/call") === 1);
    await until(() => times("notifications/cancelled") === 1, "the server is told");

    await leave("mcp__old__ask", async () => (await questions()).join() === "pending");
    await until(async () => (await questions()).join() === "cancelled", "the question is withdrawn");
    await until(() => times("notifications/cancelled") === 2, "the server is told");

    await leave("mcp__new__ask", async () => (await questions()).includes("pending"));
    await until(async () => (await questions()).join() === "cancelled,cancelled", "the question is withdrawn");
  }));

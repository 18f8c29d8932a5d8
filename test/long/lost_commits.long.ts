import assert from "node:assert/strict";
import { test } from "node:test";
import { loseCommits } from "../support/lost_commits.ts";
import { NO_POSTGRES } from "../support/postgres_server.ts";

test("1,000 connections cut after a commit was sent: every answer is true", { skip: NO_POSTGRES }, async (context) => {
  const { cuts, batches } = await loseCommits(1_000);
  context.diagnostic(`${cuts} cuts, ${batches} batches`);
  assert.ok(cuts >= 1_000);
});

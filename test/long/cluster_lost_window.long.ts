import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { startCuttingProxy } from "../support/cutting_proxy.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { startPostern } from "../support/postern_process.ts";
import { readSse } from "../support/sse.ts";
import { type StruckCluster, withStruckCluster } from "../support/struck_cluster.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

const TIMEOUT_MS = 300_000;

/** Starts a run at one gateway. @returns its id */
async function startRun({ members }: StruckCluster, index: number, message: string): Promise<string> {
  const reply = await members[index]?.gateway.call("/v1/runs", { body: { message } });
  assert.equal(reply?.status, 202);
  return (await jsonOf(reply)).id;
}

/** Begins to read all that each gateway tells of a run, to the end of its answer. */
async function follow({ members }: StruckCluster, id: string): Promise<readonly Promise<readonly AgentEvent[]>[]> {
  return await Promise.all(members.map(async ({ gateway }) => {
    const reply = await gateway.call(`/v1/runs/${id}/events`);
    assert.equal(reply.status, 200);
    const reading = reply.text().then((text) => readSse(text).data.map((data) => JSON.parse(data) as AgentEvent));
    reading.catch(() => {});
    // In an object, so that it is not waited for
    return { reading };
  })).then((begun) => begun.map(({ reading }) => reading));
}

test("an asynchronous standby is promoted: what it lacks is gone and said to be, and all else goes on", {
  skip: NO_POSTGRES,
  timeout: TIMEOUT_MS,
}, () =>
  withWorld(async (world) => {
    const server = await startPostgres({ settings: { synchronous_commit: "on" } });
    world.onEnd(() => server.end());
    const way = await startCuttingProxy(server.port);
    world.onEnd(() => way.close());
    await server.stop();
    const standby = await startPostgres({
      standbyOf: server,
      settings: {
        primary_conninfo: `host=127.0.0.1 port=${way.port} user=${server.user} password=${server.password}`,
      },
    });
    world.onEnd(() => standby.end());
    await server.start();
    const hasAll = async () => {
      const [row] = await server.run(
        "SELECT count(*)::int AS n FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()",
      );
      return row?.["n"] === 1;
    };
    await until(hasAll);

    let isHeld = true;
    const waiting: (() => void)[] = [];
    const model = await world.server((seen, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(toSse(toDelta({ content: "half " })));
      const end = () =>
        response.end(
          [toDelta({ content: "whole" }), toDelta({}, "stop"), USAGE_CHUNK].map(toSse).join("") + "data: [DONE]\n\n",
        );
      if (isHeld && seen.text.includes("slow")) waiting.push(end);
      else end();
    });
    const options = { server, standby, failures: ["failover"], seed: 1 } as const;
    const env = { POSTERN__AGENT__TOOLS: "[]" };
    await withStruckCluster(options, { baseUrl: `${model.origin}/v1`, env }, async (cluster) => {
      const done = async (id: string) => {
        let run: { readonly status?: string; readonly result?: string } = {};
        await until(async () => (run = await jsonOf(cluster.call(`/v1/runs/${id}`))).status === "completed");
        return run.result;
      };
      const tell = async (...argv: readonly string[]) => {
        const { folder, workspace, dataDir } = cluster.members[0]?.gateway ?? assert.fail();
        const config = ["--config", join(folder, "postern.toml"), "--workspace", workspace, "--data-dir", dataDir];
        const command = await startPostern([...argv, ...config], {
          env: { ...cluster.members[0]?.env, HOME: folder },
          ready: /(?:)/,
        });
        await command.ended;
        return command.output();
      };
      const old = await startRun(cluster, 0, "old");
      assert.equal(await done(old), "half whole");
      const kept = await startRun(cluster, 0, "slow and kept");
      const keptReaders = await follow(cluster, kept);
      await until(() => waiting.length === 1);
      await until(hasAll);
      // Both name what a failover may lose
      assert.match(await tell("cluster", "status"), /a failover may lose what was committed just before/);
      assert.match(await tell("doctor"), /1 standby follows, and a failover may lose what was committed just before/);

      way.freeze(true);
      const lostAndDone = await startRun(cluster, 1, "new");
      assert.equal(await done(lostAndDone), "half whole");
      const lost = await startRun(cluster, 1, "slow and lost");
      await until(() => waiting.length === 2);
      const lostReaders = await follow(cluster, lost);
      await until(async () => (await jsonOf(await cluster.call(`/v1/runs/${lost}`))).status === "running");

      isHeld = false;
      await cluster.strike();
      for (const end of waiting) end();
      assert.equal(await done(old), "half whole");
      assert.equal(await done(kept), "half whole");
      for (const events of await Promise.all(keptReaders)) assert.equal(events.at(-1)?.type, "done");
      for (const id of [lostAndDone, lost]) {
        for (const { gateway } of cluster.members) assert.equal((await gateway.call(`/v1/runs/${id}`)).status, 404);
      }
      for (const events of await Promise.all(lostReaders)) {
        const last = events.at(-1);
        assert.ok(last?.type === "error", JSON.stringify(last));
        assert.match(last.message, /gone|lost/);
      }
      assert.equal(await done(await startRun(cluster, 1, "after")), "half whole");
      assert.match(await tell("cluster", "status"), /no standby follows; a failover may lose/);
    });
  }));

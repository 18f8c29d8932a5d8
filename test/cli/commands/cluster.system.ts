import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import type { ClusterView } from "../../../cli/reach_cluster.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { openTestDatabase, openTestStore } from "../../support/postgres_stores.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const hasPromtool = spawnSync("promtool", ["--version"]).status === 0;

const environmentOf = (url: string) => ({
  POSTERN__STORAGE__DRIVER: "postgres",
  POSTERN__STORAGE__URL_ENV: "RECORDS",
  POSTERN__CLUSTER__LEASE_SECS: "2",
  POSTERN__AGENT__TOOLS: "[]",
  RECORDS: url,
});

async function statusOf({ run }: Machine, env: Readonly<Record<string, string>>): Promise<ClusterView> {
  const { code, stdout, stderr } = await run(["cluster", "status", "--json"], { env });
  assert.equal(code, 0, stderr);
  return (JSON.parse(stdout) as { cluster: ClusterView }).cluster;
}

test("a gateway with SQLite has no cluster, and the commands say why", () =>
  onMachine(async ({ run }) => {
    const alone = 'There is no cluster: storage.driver is "sqlite" and not "postgres"';
    const status = await run(["cluster", "status"]);
    assert.deepEqual([status.code, status.stdout], [0, `${alone}\n`]);
    assert.deepEqual(JSON.parse((await run(["cluster", "status", "--json"])).stdout), { cluster: null, reason: alone });
    for (const command of [["cluster", "drain", "gw_1"], ["cluster", "runs"], ["cluster", "forget-folder", "office"]]) {
      const refused = await run(command);
      assert.equal(refused.code, 1);
      assert.ok(refused.stderr.includes(alone), refused.stderr);
    }
  }));

test(
  "status, runs and drain work by a gateway and straight on the database, which they do not change",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine((other) =>
        onMachine(async (machine) => {
          const env = environmentOf(url);
          const empty = await machine.run(["cluster", "status"], { env });
          assert.equal(empty.code, 0, empty.stderr);
          assert.match(empty.stdout, /^There is no cluster: no gateway has used the schema "postern" of .* yet\n$/);

          await machine.withGateway([], async ({ address: first }) => {
            await other.withGateway([], async ({ address }) => {
              const both = await statusOf(machine, env);
              assert.deepEqual(both.gateways.map(({ state }) => state), ["alive", "alive"]);
              const [own] = both.gateways.filter((gateway) => gateway.this);
              const [second] = both.gateways.filter((gateway) => !gateway.this);
              assert.ok(own && second && both.own);
              assert.equal(both.own.id, own.id);
              assert.ok((own.lease_left_ms ?? 0) > 0 && own.pid === process.pid);
              assert.equal(both.database?.role, "primary");
              assert.ok((both.database.timeline ?? 0) >= 1);
              assert.match(both.database.replication_window ?? "", /synchronous_standby_names is empty/);
              const text = (await machine.run(["cluster", "status"], { env })).stdout;
              assert.match(text, new RegExp(`^${own.id} \\* +alive`, "m"));
              assert.match(text, new RegExp(`^${second.id} +alive`, "m"));
              assert.match(text, /Queue +no open run/);
              assert.match(text, /Failover +no standby follows; a failover may lose/);

              const metrics = await (await fetch(`${first}metrics`)).text();
              assert.match(metrics, /^postern_cluster_heartbeat_duration_seconds_count [1-9]/m);
              assert.match(metrics, /^postern_database_statement_duration_seconds_count [1-9]/m);
              assert.match(metrics, /^postern_database_pool_waiting 0$/m);
              if (hasPromtool) {
                const checked = spawnSync("promtool", ["check", "metrics"], { input: metrics, encoding: "utf8" });
                assert.deepEqual([checked.status, checked.stdout, checked.stderr], [0, "", ""]);
              }

              const unknown = await machine.run(["cluster", "drain", "gw_nobody"], { env });
              assert.equal(unknown.code, 1);
              assert.match(unknown.stderr, /Cannot find the gateway "gw_nobody"/);
              const drained = await machine.run(["cluster", "drain", second.id, "--wait"], { env });
              assert.deepEqual([drained.code, drained.stdout], [
                0,
                `${second.id} is drained: it takes no work until its process is started again\n`,
              ]);
              const health = await fetch(`${address}health`);
              assert.equal(health.status, 503);
              assert.match(await health.text(), /somebody has drained this gateway/);
              const doctor = await other.run(["doctor"], { env });
              assert.match(
                doctor.stdout,
                /^warning +gateway .* and stays without work, since somebody has drained it$/m,
              );
              const last = await machine.run(["cluster", "drain", own.id], { env });
              assert.equal(last.code, 1);
              assert.match(last.stderr, /no other gateway of the cluster takes work/);
              assert.equal((await machine.run(["cluster", "runs"], { env })).stdout, "No run is open\n");
            }, { env });

            // From a machine without a gateway
            const alone = await statusOf(other, env);
            assert.deepEqual([alone.gateways.map(({ state }) => state), alone.own], [["alive"], null]);
            const [left] = alone.gateways;
            assert.ok(left);
            const forced = await other.run(["cluster", "drain", left.id, "--force", "--wait"], { env });
            assert.equal(forced.code, 0, forced.stderr);
            assert.deepEqual((await statusOf(other, env)).gateways.map(({ state, drain }) => [state, drain?.via]), [
              ["drained", "cli"],
            ]);
            assert.equal((await other.run(["cluster", "runs", "--json"], { env })).stdout.trim(), "[]");
          }, { env });
          assert.deepEqual((await statusOf(machine, env)).gateways, [], "who has ended has given its lease back");

          // A run that was left behind by the gateways of its workspace
          const store = await openTestStore(await openTestDatabase(url), "postern");
          const claim = {
            v: 1,
            gateway: "@office",
            fence: 0,
            conversation_id: null,
            parent_id: null,
            workspace: "office",
          };
          await store.batch([
            { op: "put", collection: "workspaces", key: "office", body: { v: 1 } },
            { op: "put", collection: "run_claims", key: "run_left", body: claim },
          ]);
          const left = (await machine.run(["cluster", "status"], { env })).stdout;
          assert.match(
            left,
            /Queue +1 open run, none waits for a gateway; 1 waits for a workspace without a gateway\n/,
          );
          assert.match(
            left,
            /Workspace +office has no gateway, and 1 run waits: start one with this workspace, or cancel/,
          );
          const { stdout } = await machine.run(["doctor", "--json"], { env });
          assert.match(stdout, /1 run waits for the workspace office, which has no gateway/);
          await store.close();
        })
      )
    ),
);

test(
  "a workspace stays the folder of its gateways when all are gone, until somebody says that it may be another one",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine((moved) =>
        onMachine(async (machine) => {
          const env = (workspace: string) => ({ ...environmentOf(url), POSTERN__CLUSTER__WORKSPACE_ID: workspace });
          const start = ({ withGateway }: Machine, workspace: string, use = () => Promise.resolve()) =>
            withGateway([], use, { env: env(workspace) });
          const forget = ({ run }: Machine) => run(["cluster", "forget-folder", "office"], { env: env("office") });
          assert.equal((await start(machine, "office")).code, 0);
          assert.equal((await start(moved, "elsewhere")).code, 0);
          const refused = await moved.run(["gateway", "--port", "0"], { env: env("office") });
          assert.equal(refused.code, 78, refused.stderr);
          const where = `${machine.cwd} on `;
          assert.ok(refused.stderr.includes(where), refused.stderr);
          assert.match(
            refused.stderr,
            /is not the one in which gateways worked as "office".*cluster forget-folder office/s,
          );

          await start(machine, "office", async () => {
            for (const one of [machine, moved]) {
              const held = await forget(one);
              assert.equal(held.code, 1);
              assert.match(held.stderr, /the gateway gw_\w+ on .* works in it, with a lease for/);
            }
          });
          const straight = await forget(moved);
          assert.deepEqual([straight.code, straight.stdout], [
            0,
            'It is forgotten which folder the workspace office is: the next gateway that starts with workspace_id = "office" says it\n',
          ]);
          assert.match((await forget(moved)).stdout, /^Nobody knows which folder the workspace office is/);
          assert.equal((await start(moved, "office")).code, 0);
          assert.equal((await machine.run(["gateway", "--port", "0"], { env: env("office") })).code, 78);

          await start(machine, "other", async () => {
            const asked = await machine.run(["cluster", "forget-folder", "office", "--json"], { env: env("other") });
            assert.deepEqual(JSON.parse(asked.stdout), { workspace: "office", forgotten: true }, asked.stderr);
            const { stdout } = await machine.run(["audit", "show"], { env: env("other") });
            assert.match(stdout, /forgot which folder the workspace office is/);
          });
          assert.equal((await start(machine, "office")).code, 0);
        })
      )
    ),
);

test(
  "the workspace of one gateway is nobody else's: its name is refused, and messages say where the gateway was",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine(async (machine) => {
        const env = environmentOf(url);
        assert.equal((await machine.withGateway([], () => Promise.resolve(), { env })).code, 0);
        const store = await openTestStore(await openTestDatabase(url), "postern");
        const [own] = await store.scan("workspaces", { limit: 1 });
        assert.ok(own);
        const workspace = own.key;
        const claim = { v: 1, gateway: `@${workspace}`, fence: 0, conversation_id: null, parent_id: null, workspace };
        await store.batch([{ op: "put", collection: "run_claims", key: "run_left", body: claim }]);
        await store.close();
        const where = `${workspace} of the gateway in ${machine.cwd} (data directory ${machine.dataDir}) on `;
        const { stdout } = await machine.run(["cluster", "status"], { env });
        const line = stdout.replaceAll(/\s+/g, " ");
        assert.ok(line.includes(`Workspace ${where}`), stdout);
        assert.ok(line.includes("has no gateway, and 1 run waits: start it there again, or cancel"), stdout);
        assert.ok((await machine.run(["doctor", "--json"], { env })).stdout.includes(where));
        const [stranded] = (await statusOf(machine, env)).queue.workspaces_without_gateway;
        assert.deepEqual([stranded?.last_gateway?.folder, stranded?.last_gateway?.data_dir], [
          machine.cwd,
          machine.dataDir,
        ]);

        const named = { ...env, POSTERN__CLUSTER__WORKSPACE_ID: workspace };
        const refused = await machine.run(["gateway", "--port", "0"], { env: named });
        assert.equal(refused.code, 78);
        assert.match(refused.stderr, /without ws_ at the beginning: .* another folder/s);
        const set = await machine.run(["config", "set", "cluster.workspace_id", workspace], { env });
        assert.notEqual(set.code, 0);
      })
    ),
);

test(
  "of gateways that start one shows a pairing code, which the starts of the others leave as it is",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine((other) =>
        onMachine(async (machine) => {
          const env = environmentOf(url);
          await machine.withGateway([], async ({ banner, address }) => {
            const code = /^Pairing code: (\S+)$/m.exec(banner)?.[1] ?? assert.fail(banner);
            await other.withGateway([], ({ banner }) => {
              assert.match(banner, /^Another gateway of the cluster has shown a pairing code, .* postern pair$/m);
              return Promise.resolve();
            }, { env });
            const daemon = await other.run(["daemon", "start", "--port", "0"], { env });
            try {
              assert.match(daemon.stdout, /^Nobody is paired yet\. Another gateway .* postern pair$/m, daemon.stderr);
            } finally {
              assert.equal((await other.run(["daemon", "stop"], { env })).code, 0);
            }
            const paired = await fetch(`${address}pair`, { method: "POST", headers: { "x-pairing-code": code } });
            assert.equal(paired.status, 200, await paired.text());
          }, { env });
        })
      )
    ),
);

test(
  "a command whose data directory has no gateway names those of the database, and becomes none of them",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine((other) =>
        onMachine(async (machine) => {
          const env = environmentOf(url);
          assert.deepEqual(await other.run(["runs", "list"], { env }), {
            ...{ code: 0, stdout: "There is no run yet\n", stderr: "" },
          });
          await machine.withGateway([], async () => {
            const [gateway] = (await statusOf(machine, env)).gateways;
            for (
              const command of [["runs", "list"], ["token", "list"], ["runs", "start", "hello"], ["tools", "list"]]
            ) {
              const { code, stdout, stderr } = await other.run(command, { env });
              assert.deepEqual([code, stdout], [1, ""], command.join(" "));
              assert.equal(
                stderr,
                `Cannot reach a gateway: none runs on the data directory "${other.dataDir}", and the database has ` +
                  `${gateway?.id} (${gateway?.host}:${gateway?.pid}); give --data-dir of one on this machine\n`,
              );
            }
            assert.equal((await statusOf(machine, env)).gateways.length, 1);
          }, { env });
          assert.equal((await other.run(["runs", "list"], { env })).code, 0);
        })
      )
    ),
);

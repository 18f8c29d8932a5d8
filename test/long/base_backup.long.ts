import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { onMachine } from "../cli/support/run_in.ts";
import { readPages } from "../docs/support/read_pages.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

const [, major] = /(\d+)\./.exec(spawnSync("pg_basebackup", ["--version"], { encoding: "utf8" }).stdout ?? "") ?? [];
const skip = NO_POSTGRES !== false ? NO_POSTGRES : major === undefined && "no pg_basebackup";
const commands = readPages().find(({ path }) => path === "docs/deployment.md")
  ?.blocks.find(({ text }) => text.includes("pg_basebackup"))?.text ?? assert.fail("the page has no pg_basebackup");

test("the commands for a base backup bring back the whole server, with what was open", { skip }, async (context) => {
  const server = await startPostgres();
  try {
    if (Number(major) !== server.version) return context.skip(`pg_basebackup is not of version ${server.version}`);
    const url = server.url(await server.createDatabase());
    await onMachine(({ run, cwd }) =>
      withWorld(async (world) => {
        const configOf = (address: string) => ({
          ...{ storage: { driver: "postgres", url: address }, cluster: { lease_secs: 1 } },
        });
        let id = "";
        await withWorld(async (before) => {
          const gateway = await before.gateway({ config: configOf(url), script: [{ hang: "before" }] });
          ({ id } = await jsonOf(await gateway.call("/v1/runs", { body: { message: "Work" } })) as { id: string });
          await until(() => gateway.provider.requests.length === 1);
          const path = `${process.env["PATH"]}:/usr/lib/postgresql/${server.version}/bin`;
          const { status, stderr } = spawnSync("bash", ["-euc", commands], {
            ...{ cwd, env: { PATH: path, POSTERN_DATABASE: url }, encoding: "utf8" },
          });
          assert.equal(status, 0, stderr);
          await gateway.services.memory.store({ key: "late", value: "after the backup" });
        });
        await server.stop();
        const restored = await startPostgres({ backup: { files: join(cwd, "postern-base"), of: server } });
        world.onEnd(() => restored.end());
        const address = restored.url(new URL(url).pathname.slice(1));
        const env = { POSTERN__STORAGE__DRIVER: "postgres", POSTERN__STORAGE__URL_ENV: "RECORDS", RECORDS: address };
        await until(async () => (await run(["storage", "hold", "--yes"], { env })).code === 0);
        const gateway = await world.gateway({ config: configOf(address), script: ["never"] });
        const { status } = await jsonOf(await gateway.call(`/v1/runs/${id}`)) as { readonly status: string };
        assert.equal(status, "needs_review");
        assert.equal(gateway.provider.requests.length, 0, "the run went on by itself");
        assert.equal(await gateway.services.store.count("memory"), 0);
        assert.equal((await jsonOf(await gateway.call("/v1/audit/verify"))).ok, true);
      })
    );
  } finally {
    await server.end();
  }
});

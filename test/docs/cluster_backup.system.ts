import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { test } from "node:test";
import { onMachine } from "../cli/support/run_in.ts";
import { NO_POSTGRES, withDatabase } from "../support/postgres_server.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";
import { readPages } from "./support/read_pages.ts";

const [, major] = /(\d+)\./.exec(spawnSync("pg_dump", ["--version"], { encoding: "utf8" }).stdout ?? "") ?? [];
const skip = NO_POSTGRES !== false ? NO_POSTGRES : major === undefined && "no pg_dump";

/** Returns the block of the page with a word in it. */
function blockWith(word: string): string {
  const page = readPages().find(({ path }) => path === "docs/deployment.md");
  return page?.blocks.find(({ text, language }) => language === "sh" && text.includes(word))?.text ??
    assert.fail(`docs/deployment.md has no ${word}`);
}

test(
  "the commands for the backup of a cluster bring back what was there, and hold what was open",
  { skip },
  (context) =>
    withDatabase((url, server) =>
      onMachine(({ run, cwd }) =>
        withWorld(async (world) => {
          if (Number(major) < server.version) return context.skip(`pg_dump ${major} is older than the server`);
          const config = { storage: { driver: "postgres", url }, cluster: { lease_secs: 1 } };
          const bash = (script: string) => {
            const env = { PATH: process.env["PATH"] ?? "", POSTERN_DATABASE: url };
            const { status, stderr } = spawnSync("bash", ["-euc", script], { cwd, env, encoding: "utf8" });
            assert.equal(status, 0, stderr);
          };
          const hold = () =>
            run(["storage", "hold", "--yes", "--json"], {
              env: { POSTERN__STORAGE__DRIVER: "postgres", POSTERN__STORAGE__URL_ENV: "RECORDS", RECORDS: url },
            });
          let [id, token] = ["", ""];
          await withWorld(async (before) => {
            const gateway = await before.gateway({ config, script: [{ hang: "before" }] });
            ({ token } = await gateway.services.tokens.issue({ scopes: ["chat"], label: "one" }));
            ({ id } = await jsonOf(await gateway.call("/v1/runs", { body: { message: "Work" } })) as { id: string });
            await until(() => gateway.provider.requests.length === 1);
            bash(blockWith("pg_dump"));
            const early = await hold();
            assert.equal(early.code, 1);
            assert.match(
              early.stderr,
              /Cannot hold work: the gateway gw_\w+ on .* uses the database; stop it, or wait/,
            );
            await gateway.services.memory.store({ key: "late", value: "after the dump" });
          });
          bash(blockWith("pg_restore"));
          await until(async () => (await hold()).code === 0);
          const gateway = await world.gateway({ config, script: ["never"] });
          const reply = await jsonOf(await gateway.call(`/v1/runs/${id}`)) as { readonly status: string };
          assert.equal(reply.status, "needs_review");
          assert.equal(gateway.provider.requests.length, 0, "the run went on by itself");
          assert.equal(await gateway.services.store.count("memory"), 0);
          const refused = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
          assert.equal(refused.status, 401);
          assert.equal((await jsonOf(await gateway.call("/v1/audit/verify"))).ok, true);
          assert.equal(await gateway.services.store.insertOnce("documents", "new", { v: 1, text: "x" }), true);
        })
      )
    ),
);

test("work is held in PostgreSQL alone", () =>
  onMachine(async ({ run }) => {
    const { code, stderr } = await run(["storage", "hold", "--yes"]);
    assert.equal(code, 1);
    assert.match(stderr, /postern restore does it for SQLite/);
  }));

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Finding } from "../../../cli/doctor/finding.ts";
import { freePort } from "../../support/free_port.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const TOKEN = "0123456789abcdef0123456789abcdef";

const environmentOf = (url: string) => ({
  POSTERN__STORAGE__DRIVER: "postgres",
  POSTERN__STORAGE__URL_ENV: "RECORDS",
  POSTERN__CLUSTER__LEASE_SECS: "3",
  POSTERN__AGENT__TOOLS: "[]",
  RECORDS: url,
});

/** Runs `use` with two machines and the address of an empty database. */
function onTwoMachines(use: (first: Machine, second: Machine, url: string) => Promise<void>): Promise<void> {
  return withDatabase((url) => onMachine((first) => onMachine((second) => use(first, second, url))));
}

async function problems(
  { run }: Machine,
  env: Readonly<Record<string, string>>,
): Promise<readonly string[]> {
  const { stdout } = await run(["doctor", "--json"], { env });
  assert.ok(!stdout.includes(TOKEN), "the token is shown");
  return (JSON.parse(stdout) as { checks: readonly Finding[] }).checks
    .filter(({ name, state }) => name === "cluster" && state !== "ok").map(({ state, message }) =>
      `${state}: ${message}`
    );
}

test(
  "gateways with other settings than this configuration are named, whichever has the greater value",
  { skip: NO_POSTGRES },
  () =>
    onTwoMachines(async (first, second, url) => {
      const env = environmentOf(url);
      await first.withGateway([], async () => {
        await second.withGateway([], async () => {
          assert.deepEqual(await problems(first, env), []);
          for (const [lease, wait] of [["2", "60"], ["20", "90000"]] as const) {
            const other = { POSTERN__CLUSTER__LEASE_SECS: lease, POSTERN__CLUSTER__WORKSPACE_WAIT_SECS: wait };
            const found = await problems(second, { ...env, ...other });
            assert.equal(found.length, 2, found.join("\n"));
            const both = "warning: gw_\\w+ .*, gw_\\w+ .* has another cluster\\.";
            assert.match(
              found[0] ?? "",
              new RegExp(`^${both}lease_secs \\(3 s\\) than this configuration \\(${lease} s\\)$`),
            );
            assert.match(
              found[1] ?? "",
              new RegExp(`^${both}workspace_wait_secs \\(86400 s\\) than .* \\(${wait} s\\)$`),
            );
          }
        }, { env });
      }, { env });
    }),
);

test(
  "each advertised address is asked with the token: one that refuses it, leads elsewhere or does not answer is named",
  { skip: NO_POSTGRES },
  () =>
    onTwoMachines(async (first, second, url) => {
      const [port, nobody] = [await freePort(), await freePort()];
      const own = `http://127.0.0.1:${port}`;
      const env = { ...environmentOf(url), POSTERN__CLUSTER__TOKEN_ENV: "LINK", LINK: TOKEN };
      const at = (address: string) => ({ ...env, POSTERN__CLUSTER__ADVERTISE_URL: address });
      const startedOn = (of: Machine, address: string, use: () => Promise<void>) =>
        of.withGateway([], use, { env: at(address) });
      await first.withGateway(["--port", String(port)], async () => {
        assert.deepEqual(await problems(first, env), []);
        const [refused = "", ...more] = await problems(first, { ...env, LINK: TOKEN.replaceAll("0", "x") });
        assert.deepEqual(more, []);
        assert.match(
          refused,
          new RegExp(
            `^warning: The link to gw_\\w+ .* at ${own} was refused with 401: .*token_env must name the same token`,
          ),
        );
        const [unnamed = ""] = await problems(first, { ...env, POSTERN__CLUSTER__TOKEN_ENV: "" });
        assert.match(
          unnamed,
          /^warning: gw_\w+ .* has cluster\.advertise_url, and this configuration has no cluster\.token_env$/,
        );
        await startedOn(second, own, async () => {
          const [elsewhere = "", ...others] = await problems(second, env);
          assert.deepEqual(others, []);
          assert.match(
            elsewhere,
            new RegExp(`^warning: The link to gw_\\w+ .* at ${own} leads to another gateway: gw_\\w+$`),
          );
        });
        await startedOn(second, `http://127.0.0.1:${nobody}`, async () => {
          const [silent = "", ...others] = await problems(second, env);
          assert.deepEqual(others, []);
          assert.match(silent, /^warning: The link to gw_\w+ .* at http:\S+ cannot be made \(.+\)$/);
        });
        const [missing = ""] = await problems(first, { ...env, LINK: "short" });
        assert.match(
          missing,
          /^warning: A start from this terminal is refused, .* "LINK" has less than 32 characters$/,
        );
        const { stdout } = await first.run(["cluster", "status", "--json"], { env });
        const id = /gw_\w+/.exec(stdout)?.[0] ?? assert.fail(stdout);
        assert.equal((await first.run(["cluster", "drain", id, "--force", "--wait"], { env })).code, 0);
        const drained = await problems(first, env);
        assert.deepEqual(drained.length, 1, drained.join("\n"));
        assert.match(drained[0] ?? "", /is drained and takes no work$/);
      }, { env: at(own) });
      const [alone = ""] = await problems(first, { ...env, LINK: "short" });
      assert.match(alone, /^failure: .*"LINK" has less than 32 characters$/);
      assert.equal((await first.run(["gateway"], { env: { ...env, LINK: "short" } })).code, 78);
    }),
);

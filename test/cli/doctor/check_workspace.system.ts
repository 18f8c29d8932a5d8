import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import type { Finding } from "../../../cli/doctor/finding.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { onMachine } from "../support/run_in.ts";

test(
  "another folder under the workspace_id of a gateway that lives is a failure, and nothing is written into it",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      onMachine((first) =>
        onMachine(async (second) => {
          const env = {
            POSTERN__STORAGE__DRIVER: "postgres",
            POSTERN__STORAGE__URL_ENV: "RECORDS",
            POSTERN__CLUSTER__WORKSPACE_ID: "office",
            RECORDS: url,
          };
          const problems = async (flags: readonly string[], more = {}) => {
            const { stdout } = await second.run(["doctor", "--json", ...flags], { env: { ...env, ...more } });
            const { checks } = JSON.parse(stdout) as { checks: readonly Finding[] };
            return checks.filter(({ name, state }) => name === "cluster" && state !== "ok");
          };
          await first.withGateway([], async () => {
            const [other, ...rest] = await problems([]);
            assert.deepEqual(rest, []);
            assert.equal(other?.state, "failure");
            assert.match(
              other.message,
              /^The folder .*work is not the one that others have as the workspace "office": it lacks the file of the gateway gw_/,
            );
            assert.deepEqual(readdirSync(second.cwd), []);
            assert.deepEqual(await problems(["--workspace", first.cwd]), []);
            assert.deepEqual(await problems([], { POSTERN__CLUSTER__WORKSPACE_ID: "study" }), []);
          }, { env });
          const [before] = await problems([]);
          assert.equal(before?.state, "failure");
          assert.match(
            before.message,
            /^The folder .*work is not the one in which gateways worked as the workspace "office" before, in .*work on /,
          );
          assert.deepEqual(readdirSync(second.cwd), []);
          assert.deepEqual(await problems(["--workspace", first.cwd]), []);
        })
      )
    ),
);

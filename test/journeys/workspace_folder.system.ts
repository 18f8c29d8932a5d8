import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { newFolderId, PROOF_FOLDER } from "../../lib/cluster/workspace_proof.ts";
import { NO_POSTGRES, withDatabase } from "../support/postgres_server.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

test(
  "a run of a killed gateway goes on in its own folder alone: another folder with the same workspace_id is refused",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      withWorld(async (world) => {
        const upstream = await world.upstream({ kind: "stall", chunks: ["half an "] });
        const env = {
          POSTERN__STORAGE__DRIVER: "postgres",
          POSTERN__STORAGE__URL_ENV: "RECORDS",
          POSTERN__CLUSTER__LEASE_SECS: "2",
          POSTERN__CLUSTER__WORKSPACE_ID: "office",
          RECORDS: url,
        };
        const start = (workspace: string) => world.killableGateway({ baseUrl: upstream.baseUrl, env, workspace });
        const [right, wrong] = [await world.folder(), await world.folder()];
        // A folder with another id is refused at once, one without after 10 seconds
        mkdirSync(join(wrong, PROOF_FOLDER));
        writeFileSync(join(wrong, PROOF_FOLDER, "folder_id"), `${newFolderId(createSeededRandom(1))}\n`);
        const first = await start(right);
        const accepted = await first.call("/v1/runs", { body: { message: "Hi" } });
        assert.equal(accepted.status, 202, await accepted.clone().text());
        const { id } = await jsonOf(accepted) as { readonly id: string };
        await until(() => upstream.turns.length === 1, "the model was never asked");
        await first.kill();

        upstream.script({ kind: "text", chunks: ["an ", "answer"] });
        await assert.rejects(start(wrong), /is not the one in which gateways worked as "office" before/);
        assert.equal(upstream.turns.length, 1, "the run went on in the wrong folder");
        const again = await start(right);
        let run = "";
        await until(async () => {
          run = await (await again.call(`/v1/runs/${id}`)).text();
          return (JSON.parse(run) as { readonly status: string }).status === "completed";
        }, () => run);
      })
    ),
);

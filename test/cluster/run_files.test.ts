import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { jsonOf } from "../support/json_of.ts";
import { LEASE_MS } from "../support/clustered.ts";
import { withCluster } from "../support/linked_gateways.ts";
import { readRefusal } from "../support/refusal.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "plan.md", content: "Water the beans" } }] };

test("a gateway of another disk lists what a run wrote, and says whose workspace has it in place of a file of its own", () =>
  withTemporaryFolder((folder) =>
    withCluster(async ({ start, pass }) => {
      const disk = (name: string) => ({
        folder: join(folder, name),
        config: {
          autonomy: { level: "full" },
          security: { write_file: { enabled: true } },
          cluster: { lease_secs: LEASE_MS / 1_000, workspace_id: `of-${name}` },
        },
      });
      const [a, b] = [await start("a", { ...disk("a"), script: [WRITE, "Done"] }), await start("b", disk("b"))];
      await pass(2 * LEASE_MS);
      mkdirSync(join(folder, "b", "work"), { recursive: true });
      writeFileSync(join(folder, "b", "work", "plan.md"), "Water the roses");
      const body = JSON.stringify({ message: "Write" });
      const { id } = await jsonOf(
        a.send("/v1/runs", { method: "POST", body, headers: { "content-type": "application/json" } }),
      );
      await until(async () => (await pass(50), (await jsonOf(a.send(`/v1/runs/${id}`))).status === "completed"));
      const filesAt = async (gateway: typeof a) => (await jsonOf(gateway.send(`/v1/runs/${id}/files`))).data;
      const [file] = await filesAt(b);
      assert.deepEqual([file.path, await filesAt(a)], ["plan.md", [file]]);
      const contentAt = (gateway: typeof a) => gateway.send(`/v1/runs/${id}/files/${file.id}/content`);
      assert.equal(await (await contentAt(a)).text(), "Water the beans");
      const refused = await readRefusal(await contentAt(b));
      assert.equal(refused.code, "not_found");
      assert.match(
        refused.message,
        /the run worked in the workspace of-a, and this gateway has of-b; ask a gateway of that/,
      );
    })
  ));

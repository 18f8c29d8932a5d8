import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { openAudit } from "./open_audit.ts";
import { runFixture } from "../../support/run_fixture.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

test("after SIGKILL the chain is whole, with every event that was acknowledged and every fact with its event", async () => {
  for (const lines of [1, 700]) {
    await withTemporaryFolder(async (folder) => {
      const path = join(folder, "postern.db");
      const writer = runFixture("storage/audit_writer.ts", path);
      const acknowledged = new Map<string, number>();
      let seen = 0;
      let killed: Promise<void> | undefined;
      for await (const line of writer.lines) {
        // The last line may have been cut by the kill
        const match = /^(\d) (\d+)$/.exec(line);
        if (match?.[1] !== undefined && killed === undefined) acknowledged.set(match[1], Number(match[2]));
        if (++seen >= lines) killed ??= writer.kill();
      }
      await killed;

      const { store, audit, close } = await openAudit(path);
      assert.deepEqual((await audit.verify()).problems, []);
      const counts = new Map<string, number>();
      for (let before = String(audit.head().seq + 1), more = true; more;) {
        const part = await audit.list({ limit: 1000, before });
        for (const record of part.records) {
          if (record.type !== "access_failures") continue;
          const name = record.address?.split(" ")[1] ?? "";
          counts.set(name, Math.max(counts.get(name) ?? 0, record.codes["count"] ?? 0));
        }
        more = part.hasMore;
        before = part.last;
      }
      for (const [name, count] of acknowledged) assert.ok((counts.get(name) ?? 0) >= count, `writer ${name}`);
      for (const [name, count] of counts) {
        // Odd events come with a fact
        assert.equal((await store.get("facts", name))?.body, count % 2 === 0 ? count - 1 : count);
      }
      await close();
    });
  }
});

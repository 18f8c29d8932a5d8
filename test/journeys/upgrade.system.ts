import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { withCliMachine } from "../support/cli_process.ts";
import { ROOT } from "../support/gateway_process.ts";

test("an upgrade from the oldest database keeps what it held, and the way back is there", () =>
  withCliMachine(async ({ home, dataDir, run }) => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const versions = readdirSync(join(ROOT, "fixtures/databases")).flatMap((name) =>
      /^v(\d+)\.db$/.exec(name)?.[1] ?? []
    );
    const oldest = Math.min(...versions.map(Number));
    const database = join(dataDir, "postern.db");
    copyFileSync(join(ROOT, `fixtures/databases/v${oldest}.db`), database);
    const kept = join(home, "before-upgrade.db");
    const postern = async (...words: readonly string[]) => {
      const { code, stdout, stderr } = await run(words);
      assert.equal(code, 0, `postern ${words.join(" ")}: ${stdout}${stderr}`);
      return stdout;
    };
    const holdsAll = async () => {
      assert.match(
        await postern("tools", "call", "memory_recall", "--input", '{"query": "scripts deploy"}'),
        /needs Node 24/,
      );
    };
    // The steps of docs/deployment.md "Upgrade"
    await postern("backup", kept);
    await postern("daemon", "start");
    assert.ok(existsSync(`${database}.bak-${oldest}`), readdirSync(dataDir).join());
    assert.match(await postern("token", "list"), /fixture/);
    await holdsAll();
    assert.doesNotMatch(await postern("doctor"), /^failure/m);
    // And back
    await postern("daemon", "stop");
    await postern("restore", kept);
    assert.match(await postern("token", "list"), /No token is stored|revoked/);
    await holdsAll();
  }));

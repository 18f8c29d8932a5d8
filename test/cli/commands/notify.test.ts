import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { onMachine } from "../support/run_in.ts";

test("postern notify test names the rules there are, says what failed, and the status names a rule that cannot deliver", () =>
  onMachine(async ({ run, home, withGateway }) => {
    const file = join(home, "told");
    mkdirSync(join(home, ".config/postern"), { recursive: true });
    writeFileSync(
      join(home, ".config/postern/postern.toml"),
      [
        '[[notify]]\nname = "phone"\nkind = "command"\nevents = ["run_failed"]',
        `command = ["/bin/sh", "-c", 'cat > "$0"', "${file}"]`,
        '[[notify]]\nname = "bare"\nkind = "ntfy"\nevents = ["run_failed"]\ntopic_env = "TOPIC_THAT_IS_NOT_SET"',
        '[[notify]]\nname = "broken"\nkind = "command"\nevents = ["run_failed"]\ncommand = ["/bin/sh", "-c", "exit 3"]\n',
      ].join("\n"),
    );
    await withGateway([], async () => {
      const taken = await run(["notify", "test", "phone"]);
      assert.deepEqual([taken.code, taken.stdout], [0, "It was taken: see that it has arrived\n"]);
      assert.match(
        readFileSync(file, "utf8"),
        /^Postern: a test\nThis is a test of the rule "phone"\. Nothing waits for you\.\n/,
      );
      const bare = await run(["notify", "test", "bare"]);
      assert.equal(bare.code, 1);
      assert.match(
        bare.stderr,
        /Cannot deliver a message by the rule "bare": the variable TOPIC_THAT_IS_NOT_SET is not set/,
      );
      assert.match((await run(["notify", "test", "broken"])).stderr, /by the rule "broken": .*it ended with status 3/);
      assert.match((await run(["notify", "test", "none"])).stderr, /\[\[notify\]\] has "phone", "bare".* "broken"/);
      const status = (await run(["status"])).stdout.replace(/\s+/g, " ");
      assert.match(status, /Notify the rule bare cannot deliver: the variable TOPIC_THAT_IS_NOT_SET is not set/);
      assert.ok(!/the rule (phone|broken)/.test(status));
    });
  }));

import assert from "node:assert/strict";
import { existsSync, readdirSync, realpathSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { once } from "node:events";
import { test } from "node:test";
import { applyPreset } from "../../../cli/presets.ts";
import { checkConfigText } from "../../../lib/config/load_config.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;
const SECRET = "canary-of-a-file-that-no-line-reads";

/** Lines that try to read what is hidden: the sandbox alone holds those whose words name nothing. */
const READING = [
  "cat .e*",
  "cat ./*/../.env",
  "n=.en; cat ${n}v",
  "cat $(echo .e)nv",
  "grep -r canary . ; find . -type f -exec cat {} +",
  "exec 3< .env; cat <&3",
  "mv .env free; cat free",
  "rm -f .env; cat .env",
  "ln .env hard; cat hard",
  "cp -r . /tmp/all; cat /tmp/all/.e*",
  "tar c . | cat",
  "cat out/secret; ls -l out/; cat out/../secret",
  "cat < /proc/self/cwd/../outside/secret",
  "cat /proc/1/root$OUTSIDE/secret /proc/*/environ",
  "ln -s $OUTSIDE/secret link; cat link",
  "env; set; export -p; cat /proc/self/environ",
  "bash -c 'cat .e*'; sh -c 'cat .e*'; eval 'cat .e*'",
  "git -c core.pager='cat .e*' log; git config --list",
];
/** Lines that try to leave something behind, outside or under a protected name. */
const WRITING = [
  "echo x > $OUTSIDE/made",
  "cd $OUTSIDE && touch made",
  "touch out/made",
  "ln -s $OUTSIDE here; touch here/made",
  "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
  "echo x > .claude/settings.json; mkdir .agents; mkdir -p sub/.postern",
  "mv src .plugins; mkdir plugins",
  "echo x > postern.toml",
  "mount -t tmpfs none /usr; unshare -Ur true && touch escaped",
  // `go` is made once all calls have ended: what still runs then is late
  "nohup setsid bash -c 'until test -e go; do sleep 0.02; done; touch late' > /dev/null 2>&1 &",
  "trap '' HUP TERM; (until test -e go; do sleep 0.02; done; touch late) & disown",
  "kill -9 -1; kill -9 $PPID",
  "cp /bin/true suid; chmod 4755 suid; chmod u+s suid; install -m 4755 /bin/true suid",
  "cp /bin/true sgid; chmod 2755 sgid; chmod g+s sgid; chmod 2770 sgid; setfacl -m o::rx sgid; install -m 2755 /bin/true sgid",
];

/** Configurations in which nobody says no: the wall alone holds. */
const CONFIGS = {
  'level = "full"':
    '[autonomy]\nlevel = "full"\n[security]\nallowed_commands = ["*"]\n[security.shell]\nsyntax = "contained"\n',
  "the preset code, with a yes to each question": await applyPreset("", "code"),
};

for (const [name, text] of Object.entries(CONFIGS)) {
  test(
    `no line of bash reads what is hidden, leaves the workspace or outlives its call: ${name}`,
    { skip },
    async () =>
      withWorkspace({ ".env": `${SECRET}\n`, "src/a.txt": "a\n", ".claude/x": "x\n" }, async (workspace) => {
        const { outside } = workspace;
        writeFileSync(`${outside}/secret`, `${SECRET}\n`);
        symlinkSync(outside, workspace.path("out"));
        const server = createServer((socket: Socket) => socket.end(`${SECRET}\n`));
        server.listen(0, "127.0.0.1");
        await once(server, "listening");
        const { port } = server.address() as { readonly port: number };
        const connected: unknown[] = [];
        server.on("connection", () => connected.push(1));
        const bench = createToolBench({ root: workspace.root });
        bench.configure({ shell: { timeout_secs: 20 } }, await checkConfigText(text, name));
        const approver = async () => ({ decision: "approve", reason: "" }) as const;
        const network = [`exec 3<>/dev/tcp/127.0.0.1/${port}; cat <&3`, `(echo > /dev/tcp/127.0.0.1/${port}) 2>&1`];
        let ran = 0;
        try {
          for (
            const command of [...READING, ...WRITING, ...network].map((line) => line.replaceAll("$OUTSIDE", outside))
          ) {
            const called = await bench.call("shell", { command }, { approver });
            if (called.ran) ran++;
            assert.doesNotMatch(called.result.output, new RegExp(SECRET), command);
          }
          workspace.write("go", "");
          const left = await bench.call("shell", "sleep 0.3; ls -A");
          assert.doesNotMatch(
            left.result.output,
            /late|escaped|^\.git$|^\.agents$|^plugins$|^\.plugins$|^postern\.toml$/m,
          );
        } finally {
          server.close();
          await bench.processes.close();
        }
        assert.ok(ran > 20, `${ran} lines ran`);
        assert.deepEqual(connected, []);
        assert.deepEqual(readdirSync(outside), ["secret", "secret.txt"]);
        assert.deepEqual(readdirSync(workspace.path(".claude")), ["x"]);
        // Another user of the machine would start it with the rights of this one
        for (const file of ["suid", "sgid"]) assert.equal(statSync(workspace.path(file)).mode & 0o6000, 0, file);
        for (
          const name of [".git", ".agents", ".plugins", "plugins", "postern.toml", "sub/.postern", "late", "escaped"]
        ) {
          assert.equal(existsSync(workspace.path(name)), false, name);
        }
      }),
  );
}

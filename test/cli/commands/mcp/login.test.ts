import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { McpServerInfo } from "../../../../lib/base/records/extension_views.ts";
import { type FakeAuthorizationServer, startAuthorizationServer } from "../../../support/fake_authorization_server.ts";
import { until } from "../../../support/until.ts";
import { type Machine, onMachine, type RunOptions } from "../../support/run_in.ts";

function configure({ home }: Machine, fake: FakeAuthorizationServer): void {
  mkdirSync(join(home, ".config/postern"), { recursive: true });
  const lines = [
    ...["[security.mcp]", "enabled = true", 'allowed_servers = ["acme"]', "[mcp.servers.acme]", `url = "${fake.mcp}"`],
    ...["[mcp.servers.program]", 'command = "/bin/true"', ""],
  ];
  writeFileSync(join(home, ".config/postern/postern.toml"), lines.join("\n"));
}

/** Options of a person who signs in with the address that the command prints. */
function person(fake: FakeAuthorizationServer, use: (back: URL) => void): RunOptions {
  let isDone = false;
  return {
    onOutput({ stderr }) {
      const address = /^http\S+\/authorize\S+$/m.exec(stderr)?.[0];
      if (address === undefined || isDone) return;
      isDone = true;
      use(fake.approve(address));
    },
  };
}

test("mcp login leads back to this machine, and the gateway's server works from then on", () =>
  onMachine(async (machine) => {
    await using fake = await startAuthorizationServer();
    configure(machine, fake);
    const call = (input: string) => machine.run(["tools", "call", "mcp__acme__whoami", "--input", input, "--yes"]);
    const finished = await machine.withGateway([], async () => {
      const before = await call("{}");
      assert.notEqual(before.code, 0);
      const signIn = async () => (await machine.run(["mcp", "show", "acme"])).stdout;
      assert.match(await signIn(), /^Sign-in: needed; run postern mcp login acme$/m);
      const statuses: number[] = [];
      const browse = person(fake, (back) => void fetch(back).then(({ status }) => statuses.push(status)));
      const login = await machine.run(["mcp", "login", "acme"], browse);
      assert.equal(login.code, 0, login.stderr);
      assert.match(
        login.stdout,
        /^Signed in to acme with http:\/\/127\.0\.0\.1:\d+, until .*: it is renewed by itself\n$/,
      );
      assert.match(login.stderr, /The browser could not be opened/);
      await until(() => statuses.length > 0);
      assert.deepEqual(statuses, [200]);
      await until(async () => (await machine.run(["tools", "info", "mcp__acme__whoami"])).code === 0);
      const after = await call("{}");
      assert.deepEqual([after.code, /you are signed in/.test(after.stdout)], [0, true], after.stderr);
      assert.match(
        await signIn(),
        /^Sign-in: with http:\/\/127\.0\.0\.1:\d+, scopes read, until \S+, renewed by itself$/m,
      );
      const { stdout: listed } = await machine.run(["mcp", "list", "--json"]);
      const [acme, program] = JSON.parse(listed) as readonly McpServerInfo[];
      const { expires_at: end, ...known } = acme?.sign_in ?? assert.fail(listed);
      assert.deepEqual(known, { state: "signed_in", issuer: fake.url, scopes: ["read"], renewed: true });
      assert.ok(Date.parse(end ?? "") > Date.now());
      assert.equal(program?.sign_in.state, "none");
      assert.doesNotMatch(listed, /access-token|refresh-token|client-1/);
      // A server that wants more rights: the person is told, and nothing is asked by itself
      const more = await call('{"admin": true}');
      assert.match(more.stderr + more.stdout, /sign in again with: postern mcp login acme --scope "admin"/);
      const out = await machine.run(["mcp", "logout", "acme"]);
      assert.equal(out.stdout, "Signed out of acme\n");
      const gone = await call("{}");
      assert.match(gone.stderr + gone.stdout, /sign in with: postern mcp login acme/);
      assert.match(await signIn(), /^Sign-in: needed; run postern mcp login acme$/m);
      assert.equal((await machine.run(["mcp", "logout", "acme"])).code, 1);
      const shown = await machine.run(["audit", "show", "--json"]);
      assert.doesNotMatch(shown.stdout, /(access|refresh)-token|code-\d/);
      assert.match(shown.stdout, /"signed_in"[^]*"signed_out"/);
    });
    assert.doesNotMatch(finished.stdout + finished.stderr, /(access|refresh)-token|code_verifier/);
    // Nothing in the data directory has a token in clear
    for (const name of readdirSync(machine.dataDir).filter((file) => /\.(db|json|log|db-wal)$/.test(file))) {
      assert.doesNotMatch(readFileSync(join(machine.dataDir, name), "latin1"), /(access|refresh)-token-\d/, name);
    }
  }));

test("mcp login --no-browser reads the address that the browser was led to", () =>
  onMachine(async (machine) => {
    await using fake = await startAuthorizationServer();
    configure(machine, fake);
    const pasted = Promise.withResolvers<string>();
    const login = await machine.run(["mcp", "login", "acme", "--no-browser"], {
      ...person(fake, (back) => pasted.resolve(back.href)),
      onAsk: () => pasted.promise,
    });
    assert.equal(login.code, 0, login.stderr);
    assert.match(login.stdout, /^Signed in to acme/);
    const other = await machine.run(["mcp", "login", "acme", "--no-browser"], { answers: [await pasted.promise] });
    assert.deepEqual([other.code, /belongs to another sign-in/.test(other.stderr)], [1, true]);
    const twice = await machine.run(["mcp", "login", "acme", "--no-browser"], {
      answers: ["http://127.0.0.1/callback"],
    });
    assert.equal(twice.code, 2);
    const nobody = await machine.run(["mcp", "login", "acme", "--no-browser"], { answers: [] });
    assert.match(nobody.stderr, /Nobody signed in/);
  }));

test("mcp login ends at Ctrl-C, and refuses what has no sign-in", () =>
  onMachine(async (machine) => {
    await using fake = await startAuthorizationServer();
    configure(machine, fake);
    let press = () => {};
    const ended = await machine.run(["mcp", "login", "acme"], {
      ...person(fake, () => setImmediate(() => press())),
      onInterruptible: (interrupt) => void (press = interrupt),
    });
    assert.deepEqual([ended.code, /Nobody signed in/.test(ended.stderr)], [1, true], ended.stderr);
    const program = await machine.run(["mcp", "login", "program"]);
    assert.match(program.stderr, /it is a program, which gets its secrets in env/);
    const none = await machine.run(["mcp", "login", "none"]);
    assert.match(none.stderr, /there are "acme", "program"/);
  }));

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { noLoginScreen, useLoginScreen } from "../../support/login_screen.ts";
import { until } from "../../support/until.ts";
import { type Machine, onMachine, type RunOptions } from "../support/run_in.ts";

const skip = await noLoginScreen();
const SECRETS = /app-secret|parent-secret|idp-secret|stored-secret|tracker-secret/;

test("a host that is none is a wrong command line, and a machine without a display opens no window", () =>
  onMachine(async ({ run }) => {
    const wrong = await run(["browser", "login", "*.example.com"]);
    assert.deepEqual([wrong.code, wrong.stderr], [
      2,
      'Cannot sign in at "*.example.com": it is no host; give one such as app.example.com\n',
    ]);
    const further = await run(["browser", "login", "app.example.com", "--host", "a.example.com,b c"]);
    assert.deepEqual([further.code, /Cannot sign in at "b c"/.test(further.stderr)], [2, true]);
    const blind = await run(["browser", "login", "app.example.com"], { env: { POSTERN__BROWSER__SANDBOX: "auto" } });
    assert.equal(blind.code, 1);
    assert.match(blind.stderr, /Cannot open (a window to sign in: there is no display|the browser: )/);
  }));

test("an unknown login is refused with those there are", () =>
  onMachine(async ({ run }) => {
    assert.match((await run(["browser", "logins"])).stdout, /^There is no login/);
    const { code, stderr } = await run(["browser", "logout", "app.example.com"]);
    assert.deepEqual([code, stderr], [1, 'Cannot find a login of "app.example.com": there is none\n']);
  }));

describe("a window", { skip }, () => {
  const screen = useLoginScreen();

  const env = (more: Readonly<Record<string, string>> = {}) => ({
    DISPLAY: screen().display,
    POSTERN__PROXY__HTTP: screen().sites.proxy,
    POSTERN__PROXY__RESOLVE: "proxy",
    ...more,
  });
  /** Signs in at the first site as a person who presses Enter once the site has let them in */
  const login = (machine: Machine, more: readonly string[] = [], options: RunOptions = {}) => {
    const known = screen().sites.cookiesAt("app.example.test", "/favicon.ico").length;
    return machine.run(["browser", "login", "http://app.example.test/", ...more], {
      env: env(),
      async onAsk() {
        await until(
          () => screen().sites.cookiesAt("app.example.test", "/favicon.ico").length > known,
          "nobody was let in",
        );
        return "";
      },
      ...options,
    });
  };

  test("a person signs in through another host, and a run that the configuration lets is known to the site", () =>
    onMachine(async (machine) => {
      const { run, dataDir } = machine;
      const kept = await login(machine);
      assert.equal(kept.code, 0, kept.stderr);
      assert.match(kept.stdout, /^Kept the login of app\.example\.test: 2 cookies and 1 stored value, until 20/);
      assert.match(kept.stdout, /which --host would keep: sso\.idp\.test \(1\)/);
      assert.match(kept.stdout, /config set browser\.logins '\["app\.example\.test"\]'/);
      assert.match(kept.stderr, /Sign in there, then press Enter here, or close the window\. Ctrl-C keeps nothing\./);
      assert.deepEqual(readdirSync(join(dataDir, "logins")), []);
      const database = readdirSync(dataDir).filter((name) => name.startsWith("postern.db"))
        .map((name) => readFileSync(join(dataDir, name), "latin1")).join("");
      assert.doesNotMatch(database, SECRETS);

      const who = async (logins: string) => {
        const input = JSON.stringify({ op: "navigate", url: "http://app.example.test/who" });
        const more = {
          POSTERN__BROWSER__ENABLED: "true",
          POSTERN__BROWSER__LOGINS: logins,
          POSTERN__AUTONOMY__LEVEL: "full",
        };
        const { code, stdout, stderr } = await run(["tools", "call", "browser", "--input", input], { env: env(more) });
        assert.equal(code, 0, stderr);
        return stdout;
      };
      const signedIn = await who('["app.example.test", "gone.test"]');
      assert.match(signedIn, /title="stored-secret"/);
      assert.match(signedIn, /\[A person signed the browser in at "app\.example\.test"\]/);
      assert.match(
        signedIn,
        /\[Cannot use the login of "gone\.test": there is no login of this site; a person signs in/,
      );
      assert.deepEqual(screen().sites.cookiesAt("app.example.test", "/who"), [
        "session=app-secret; parent=parent-secret",
      ]);

      const listed = await run(["browser", "logins", "--json"]);
      assert.doesNotMatch(listed.stdout, SECRETS);
      const [{ site, hosts, cookies, stored_values, state }] = JSON.parse(listed.stdout);
      assert.deepEqual([site, hosts, cookies, stored_values, state], [
        ...["app.example.test", ["app.example.test"], 2, 1, "kept"],
      ]);
      const { code, stderr } = await run(["browser", "logout", "nope.test"]);
      assert.deepEqual([code, stderr], [1, 'Cannot find a login of "nope.test": there are "app.example.test"\n']);
      assert.match((await run(["browser", "logout", "app.example.test"])).stdout, /^Removed the login of app/);
      const audit = (await run(["audit", "show", "--json"])).stdout;
      const actions = [...audit.matchAll(/"action":\s*"(stored|used|removed)"/g)].map(([, action]) => action).sort();
      assert.deepEqual(actions, ["removed", "stored", "used"]);
      assert.doesNotMatch(audit, SECRETS);
    }));

  test("Ctrl-C keeps nothing and says so", () =>
    onMachine(async (machine) => {
      const pressed = await login(machine, [], { onAsk: () => Promise.resolve(undefined) });
      assert.deepEqual([pressed.code, pressed.stdout], [1, ""]);
      assert.match(pressed.stderr, /Nothing was kept\n$/);
      assert.equal((await machine.run(["browser", "logins", "--json"])).stdout.trim(), "[]");
    }));

  test("a running gateway takes a login", () =>
    onMachine(async (machine) => {
      await machine.withGateway([], async () => {
        const { code, stdout, stderr } = await login(machine, ["--host", "sso.idp.test"]);
        assert.equal(code, 0, stderr);
        assert.match(stdout, /^Kept the login of app\.example\.test: 3 cookies/);
        assert.match((await machine.run(["browser", "logins"])).stdout, /app\.example\.test +sso\.idp\.test/);
      });
    }));
});

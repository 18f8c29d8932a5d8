import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { noContainedBrowser, withBrowserBench } from "../../support/browser_bench.ts";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { type LoginSites, openLoginSites } from "../../support/login_sites.ts";
import type { ConfigChanges } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";

const skip = await noContainedBrowser();
const SITE = "app.example.test";
const STATE = {
  hosts: [SITE],
  cookies: [{
    ...{ name: "session", value: "app-secret", domain: SITE, path: "/", expires: -1 },
    ...{ httpOnly: true, secure: false, sameSite: "None" as const },
  }],
  storage: [{ origin: `http://${SITE}`, items: [{ name: "token", value: "stored-secret" }] }],
};
const BY = { via: "http", tokenId: null } as const;

let sites: LoginSites;
before(async () => void (sites = await openLoginSites()));
after(() => sites.close());

function withLogin(browser: ConfigChanges["browser"], use: Parameters<typeof withBrowserBench>[1]): Promise<void> {
  const proxy = { http: sites.proxy, https: "", no_proxy: [], resolve: "proxy" as const };
  return withBrowserBench({ proxy, config: { browser: { executable: ANY_CHROMIUM, ...browser } } }, async (given) => {
    await given.bench.browserLogins.save(SITE, STATE, BY);
    await use(given);
  });
}

test(
  "a page of another site cannot use a login, nor can a host that looks like the site's",
  { skip },
  () =>
    withLogin({ logins: [SITE] }, async ({ call, bench }) => {
      const evil = await call({ op: "navigate", url: "http://evil.test/" });
      assert.equal(evil.isError, false, evil.output);
      // The next page would cut off what this one has not asked for yet
      for (const path of ["/frame", "/img", "/fetch", "/form"]) {
        await until(() => sites.cookiesAt(SITE, path).length > 0, path);
      }
      await call({ op: "navigate", url: "http://app.example.test.evil.test/" });
      await call({ op: "navigate", url: "http://evilapp.example.test/" });
      await call({ op: "navigate", url: "http://example.test/" });
      for (const path of ["/frame", "/img", "/fetch", "/form"]) {
        assert.deepEqual(sites.cookiesAt(SITE, path), [""], path);
      }
      for (const host of ["evil.test", "app.example.test.evil.test", "evilapp.example.test", "example.test"]) {
        assert.ok(
          sites.cookiesAt(host, "/").every((cookie) => cookie === ""),
          host,
        );
      }
      await call({ op: "navigate", url: `http://${SITE}/who` });
      assert.equal(sites.cookiesAt(SITE, "/who").at(-1), "session=app-secret");
      const used = bench.audit.events.filter(({ type }) => type === "browser_login");
      assert.deepEqual(used.map((event) => "action" in event && [event.action, "run_id" in event && event.run_id]), [
        ["stored", false],
        ["used", "run_1"],
      ]);
    }),
);

test(
  "a run changes its copy of a login alone, and no conversation keeps one",
  { skip },
  () =>
    withLogin({ logins: [SITE], keep_cookies: true }, async ({ call, browsers, bench }) => {
      await call({ op: "navigate", url: `http://${SITE}/renew` }, "run_a", "conv_1");
      await call({ op: "navigate", url: `http://${SITE}/who` }, "run_a", "conv_1");
      await call({ op: "navigate", url: "http://short.test/" }, "run_a", "conv_1");
      await browsers.closeRun("run_a");
      await call({ op: "navigate", url: `http://${SITE}/who` }, "run_b", "conv_2");
      bench.configure({ autonomy: { level: "full" }, browser: { enabled: true, keep_cookies: true } });
      await call({ op: "navigate", url: `http://${SITE}/who` }, "run_c", "conv_1");
      await call({ op: "navigate", url: "http://short.test/who" }, "run_c", "conv_1");
      assert.deepEqual(sites.cookiesAt(SITE, "/who").slice(-3), ["session=renewed-secret", "session=app-secret", ""]);
      assert.equal(sites.cookiesAt("short.test", "/who").at(-1), "session=short");
    }),
);

test(
  "a login that cannot be used, or that nobody lists, is not given, and no input names one",
  { skip },
  () =>
    withLogin({ logins: ["gone.test"] }, async ({ call }) => {
      const { output, isError } = await call({ op: "navigate", url: `http://${SITE}/who` });
      assert.equal(isError, false);
      assert.match(output, /\[Cannot use the login of "gone\.test": there is no login of this site/);
      assert.doesNotMatch(output, /A person signed/);
      assert.equal(sites.cookiesAt(SITE, "/who").at(-1), "");
      const named = await call({ op: "navigate", url: `http://${SITE}/who`, login: SITE });
      assert.match(named.output, /"login"/);
      assert.equal(named.isError, true);
    }),
);

test("decisions and approvals of what a signed-in browser does say where it is signed in", () =>
  withBrowserBench({ config: { autonomy: { level: "supervised" } } }, async ({ bench }) => {
    const { executor } = bench;
    const reasonOf = (input: Readonly<Record<string, unknown>>) => {
      const judged = executor.judge("browser", JSON.stringify(input));
      return judged?.kind === "judged" ? judged.decision.reason : "";
    };
    const click = JSON.stringify({ op: "click", ref: "e1" });
    const { signal } = new AbortController();
    const before = await executor.bind("browser", click, signal);
    assert.doesNotMatch(reasonOf({ op: "click", ref: "e1" }), /signed in/);
    bench.configure({ autonomy: { level: "supervised" }, browser: { enabled: true, logins: [SITE] } });
    assert.match(
      reasonOf({ op: "click", ref: "e1" }),
      /it can change files or run programs, in a browser that is signed in at "app\.example\.test", which level/,
    );
    assert.doesNotMatch(reasonOf({ op: "snapshot" }), /signed in/);
    const after = await executor.bind("browser", click, signal);
    assert.ok(before.ok && after.ok);
    assert.deepEqual(after.binding.bound, [{ kind: "login", name: SITE, sha256: null }]);
    assert.notEqual(after.binding.digest, before.binding.digest);
  }));

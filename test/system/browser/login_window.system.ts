import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { BrowserContext } from "playwright-core";
import { systemClock as clock } from "../../../lib/base/clock.ts";
import { signInByHand } from "../../../lib/system/browser/login_window.ts";
import { createBrowserStarter, type StartedBrowser } from "../../../lib/system/browser/start_browser.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { noLoginScreen, useLoginScreen } from "../../support/login_screen.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const skip = await noLoginScreen();
const RULES = {
  ...{ block_private_ip: true, allow_loopback: false, public_ranges: [] },
  ...{ enforce_domain_allowlist: false, domain_allowlist: [], domain_blocklist: [] },
};

describe("a window to sign in", { skip }, () => {
  const screen = useLoginScreen();

  /** Signs in at a host until `end` has done its part with the browser, which shows the page of the site then. */
  async function signIn(
    hosts: readonly string[],
    end: (browser: StartedBrowser) => void,
    allowedDomains: readonly string[] = [],
  ) {
    const [host = ""] = hosts;
    const problems: string[] = [];
    let browser: StartedBrowser | undefined;
    let state: Awaited<ReturnType<typeof signInByHand>> | undefined;
    await withTemporaryFolder(async (folder) => {
      const giveUp = new AbortController();
      const { signal } = giveUp;
      const starter = createBrowserStarter({
        ...{ commands: createCommandLookup(), clock, marker: "login-test", signal },
        loadDriver: () => import("playwright-core"),
        session: { environment: (name) => name === "DISPLAY" ? screen().display : undefined, home: "/nonexistent" },
        network: {
          ...{ clock, random: createSeededRandom(), policy: createUrlPolicy(), rules: () => RULES, folder },
          proxy: () => ({ http: screen().sites.proxy, https: "", no_proxy: [], resolve: "proxy" }),
          allowedDomains: () => allowedDomains,
        },
      });
      const isThere = async (context: BrowserContext) =>
        problems.length > 0 ||
        (context.pages()[0]?.url() === `http://${host}/` && (await context.cookies()).length > 0);
      state = await signInByHand({
        starter: { start: async (request) => browser = await starter.start(request) },
        request: { executable: "", requiresSandbox: true, maxDownloadBytes: 1_048_576, signal },
        ...{ clock, site: { site: host, url: `http://${host}/` }, hosts },
        onOpened() {
          const opened = browser;
          if (opened === undefined) throw new TypeError("The window comes with its browser");
          void until(() => isThere(opened.context), "no page of the site came")
            .then(() => end(opened), (error: unknown) => giveUp.abort(error));
        },
        onProblem: (sentence) => void problems.push(sentence),
        done: new Promise(() => {}),
      });
    });
    return { cookies: state?.cookies.map(({ name }) => name), problems };
  }

  // A page that is being loaded may outlive its closing
  const close = ({ context }: StartedBrowser) =>
    void context.pages().map((page) =>
      page.waitForLoadState("load", { timeout: 3000 }).catch(() => {}).then(() => page.close())
    );

  test("what the site has set is kept when the last page is closed, or the browser ends", async () => {
    assert.deepEqual((await signIn(["short.test"], close)).cookies, ["session"]);
    const kill = (browser: StartedBrowser) => void clock.sleep(1500).then(() => browser.close());
    assert.deepEqual((await signIn(["short.test"], kill)).cookies, ["session"]);
  });

  test("hosts that many owners share are refused, also as a further one", async () => {
    for (const hosts of [["co.uk"], ["short.test", "github.io"]]) {
      await assert.rejects(signIn(hosts, () => {}), {
        code: "login_host",
        message: /hosts below it belong to many owners; give the host of one site, as www\.(co\.uk|github\.io)$/,
      });
    }
  });

  test("the person is told of a host that the policy refuses", async () => {
    const { cookies, problems } = await signIn(["app.example.test"], close, ["app.example.test"]);
    assert.deepEqual(cookies, []);
    assert.deepEqual(problems, [
      'Cannot reach "sso.idp.test": add "sso.idp.test" to [browser] allowed_domains to allow it',
    ]);
  });
});

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { type BrowserRequest, Browsers } from "../../../lib/system/browser/browsers.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { noContainedBrowser, openSite } from "../../support/browser_bench.ts";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const skip = await noContainedBrowser();
const RULES = {
  block_private_ip: true,
  allow_loopback: true,
  public_ranges: [],
  enforce_domain_allowlist: false,
  domain_allowlist: [],
  domain_blocklist: [],
};

interface Opened {
  readonly browsers: Browsers;
  readonly clock: FakeClock;
  readonly request: BrowserRequest;
}

async function withBrowsers(
  use: (opened: Opened) => Promise<void>,
  { programs, loadDriver = () => import("playwright-core") }: {
    /** Folders that programs are looked for in. Default: the system's */
    readonly programs?: readonly string[];
    readonly loadDriver?: () => Promise<typeof import("playwright-core")>;
  } = {},
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const random = createSeededRandom();
    const policy = createUrlPolicy();
    const browsers = new Browsers({
      commands: createCommandLookup(programs),
      clock,
      marker: "browsers-test",
      session: { environment: () => undefined, home: "/nonexistent" },
      loadDriver,
      network: {
        ...{ clock: systemClock, random, policy, rules: () => RULES, allowedDomains: () => [] },
        // Longer than the name of a socket may be
        folder: join(folder, "a-folder-with-a-long-name-".repeat(5)),
      },
    });
    const signal = new AbortController().signal;
    const request = {
      executable: programs === undefined ? ANY_CHROMIUM : "",
      maxDownloadBytes: 1_048_576,
      requiresSandbox: true,
      opens: true,
      timeoutMs: 30_000,
      signal,
      clock,
    };
    try {
      await use({ browsers, clock, request });
    } finally {
      await browsers.close();
    }
  });
}

const never = () => Promise.reject(new TypeError("There is no page"));

describe("a browser is not opened", () => {
  test("without bubblewrap", () =>
    withBrowsers(({ browsers, request }) =>
      assert.rejects(browsers.use("run_1", request, never), {
        code: "browser_not_contained",
        message: /the configuration requires the sandbox, and bubblewrap is not installed; install bubblewrap/,
      }), { programs: ["/nonexistent"] }));

  test(
    "without a Chromium, and what was looked for is said",
    { skip },
    () =>
      withBrowsers(({ browsers, request }) =>
        assert.rejects(browsers.use("run_1", { ...request, executable: "/nonexistent/chromium" }, never), {
          code: "browser_not_found",
          message: /\[browser\] executable names "\/nonexistent\/chromium".*apt install chromium/,
        })
      ),
  );

  test(
    "without the driver, and the package is named",
    { skip },
    () =>
      withBrowsers(({ browsers, request }) =>
        assert.rejects(browsers.use("run_1", request, never), {
          code: "browser_driver_missing",
          message: /"playwright-core" is not installed/,
        }), { loadDriver: () => Promise.reject(new Error("Cannot find package")) }),
  );

  test(
    "by a program that is no browser, and what it said is told",
    { skip },
    () =>
      withBrowsers(({ browsers, request }) =>
        assert.rejects(browsers.use("run_1", { ...request, executable: "/usr/bin/false" }, never), {
          code: "browser_not_started",
        })
      ),
  );

  test("for an operation that needs a page", () =>
    withBrowsers(({ browsers, request }) =>
      assert.rejects(browsers.use("run_1", { ...request, opens: false }, never), { code: "browser_no_page" })
    ));
});

test(
  "at most four browsers are open; a run's end makes room",
  { skip },
  () =>
    withBrowsers(async ({ browsers, request }) => {
      const open = (run: string) => browsers.use(run, request, () => Promise.resolve(run));
      await Promise.all(["a", "b", "c", "d"].map(open));
      await assert.rejects(open("e"), { code: "too_many_browsers" });
      assert.equal(await browsers.closeRun("a"), true);
      assert.equal(await open("e"), "e");
      assert.equal(await browsers.closeRun("a"), false);
    }),
);

test("a browser that nobody uses for five minutes is closed, and the next one says so", { skip }, async () => {
  const site = await openSite({ "/": "<title>Here</title>" });
  try {
    await withBrowsers(async ({ browsers, clock, request }) => {
      const visit = () =>
        browsers.use("run_1", request, async (pages) => {
          await pages.navigate(site.origin, request);
          return await pages.state(request);
        });
      assert.deepEqual((await visit()).events, []);
      await clock.advance(299_999);
      assert.deepEqual((await visit()).events, []);
      await clock.advance(300_000);
      await assert.rejects(browsers.use("run_1", { ...request, opens: false }, never), {
        message: /the one before was closed after 5 minutes without use/,
      });
      assert.deepEqual((await visit()).events, []);
    });
  } finally {
    await site.close();
  }
});

test(
  "a call that is cancelled while the browser starts leaves none",
  { skip },
  () =>
    withBrowsers(async ({ browsers, request }) => {
      const controller = new AbortController();
      const opening = browsers.use("run_1", { ...request, signal: controller.signal }, never);
      controller.abort();
      await assert.rejects(opening);
      assert.equal(await browsers.closeRun("run_1"), false);
    }),
);

test(
  "the end of the gateway closes every browser, and nothing is opened afterwards",
  { skip },
  () =>
    withBrowsers(async ({ browsers, request }) => {
      const isOpen = await browsers.use("run_1", request, (pages) => Promise.resolve(pages.isOpen));
      assert.equal(isOpen, false, "a browser begins without a page");
      await browsers.close();
      assert.equal(await browsers.closeRun("run_1"), false);
      await assert.rejects(browsers.use("run_1", request, never));
    }),
);

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { createSharedDatabase } from "../support/clustered.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { ask } from "../support/supervised.ts";
import { until } from "../support/until.ts";
import { type OpenedView, withView } from "./with_view.ts";

const CONFIG = {
  storage: { driver: "memory" },
  autonomy: { level: "supervised" },
  security: { write_file: { enabled: true } },
  gateway: { rate_limit_max: 0 },
};
const FACTS = {
  server_version: "15.19",
  timeline: 1,
  role: "primary",
  standbys: 0,
  synchronous_standby_names: "",
  replication_window:
    "no standby follows; a failover may lose what was committed just before: synchronous_standby_names is empty",
  max_connections: 97,
  connections: 24,
} as const;
const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "a.txt", content: "hello" } }] };

describe("the dashboard's cluster in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  /** Runs `use` on the view of the first of two gateways over one database, whose clock stands still. */
  function withCluster(
    use: (opened: OpenedView, gateways: readonly [RunningGateway, RunningGateway]) => Promise<void>,
  ): Promise<void> {
    const database = createSharedDatabase();
    const options = { config: CONFIG, clock: database.clock, script: [WRITE] };
    return withRunningGateway(
      { ...options, database: database.link() },
      (first) =>
        withRunningGateway(
          { ...options, database: database.link() },
          (second) => withView(browser, { gateway: first, view: "cluster" }, (opened) => use(opened, [first, second])),
        ),
    );
  }
  const idOf = ({ services }: RunningGateway) => services.cluster.id ?? "";

  test("shows gateways with their leases and runs, and drains one after asking twice", () =>
    withCluster(async ({ page, press, said }, [first, second]) => {
      const row = (gateway: RunningGateway) => page.locator("#cluster-gateways tbody tr", { hasText: idOf(gateway) });
      await row(second).waitFor();
      assert.match(await row(first).innerText(), /this one\s+Alive\s+\S+ m?s\s+0/);
      assert.match(await row(second).innerText(), /Alive/);
      assert.equal(
        await page.locator("#cluster-lead").innerText(),
        "2 gateways, 0 open runs, none waits for a gateway.",
      );
      // Changes at other gateways appear by themselves
      const run = await second.services.agent?.runs.start(ask("write", { durable: true }));
      assert.ok(run);
      await row(second).getByText("1", { exact: true }).click();
      assert.equal(await row(second).getByRole("link", { name: run.id }).getAttribute("href"), `#runs/${run.id}`);

      await press("Drain", idOf(second));
      assert.equal(await page.getByRole("button", { name: `Drain: ${idOf(second)}` }).innerText(), "Drain it now");
      assert.match(await page.locator("#cluster-note").innerText(), /will end its work, hand the rest to the others/);
      assert.equal(second.services.facts.health().status, "ok", "one press asks nobody");
      await page.locator("#cluster-title").focus();
      assert.equal(await page.getByRole("button", { name: `Drain: ${idOf(second)}` }).innerText(), "Drain");

      await press("Drain", idOf(second));
      await page.keyboard.press("Enter");
      await said(`Drain: ${idOf(second)} - asked for.`);
      await until(() => second.services.facts.health().status === "draining");
      await until(async () =>
        (await first.services.cluster.shown?.overview.status())?.gateways.some(({ state }) => state === "drained") ===
          true
      );
      await page.click("nav a[href='#status']");
      await page.click("nav a[href='#cluster']");
      await row(second).getByText("Drained").waitFor();
      assert.equal(await row(second).getByRole("button").count(), 0, "there is nothing left to drain");

      await press("Drain", idOf(first));
      await press("Drain", idOf(first));
      await said(`Drain: ${idOf(first)} - Cannot drain the gateway`);
      assert.equal(first.services.facts.health().status, "ok");
    }));

  test("breaks the name of a setting at its underscores", () => {
    const database = createSharedDatabase();
    const { store, cluster } = database.link();
    const facts = () => Promise.resolve(FACTS);
    return withRunningGateway(
      { config: CONFIG, clock: database.clock, database: { store, cluster: { ...cluster, facts } } },
      (gateway) =>
        withView(browser, { gateway, view: "cluster" }, async ({ page }) => {
          await page.locator("#cluster-facts").getByText(FACTS.replication_window).waitFor();
          for (const width of [400, 1_200]) {
            await page.setViewportSize({ width, height: 900 });
            const lines = await page.evaluate<readonly (readonly string[])[]>(LINES);
            const broken = lines.flatMap((texts) => texts.slice(0, -1));
            assert.ok(broken.length > 0, `nothing is broken at ${width} px`);
            for (const line of broken) assert.match(line, /[ _]$/);
          }
        }),
    );
  });

  test("says where the gateway of a workspace was for which runs wait", () => {
    const database = createSharedDatabase();
    const workspace = "ws_0123.abc";
    const last_gateway = { host: "web-1", folder: "/home/me/work", data_dir: "/home/me/postern-3" };
    const claim = { v: 1, gateway: `@${workspace}`, fence: 0, conversation_id: null, parent_id: null, workspace };
    return withRunningGateway(
      { config: CONFIG, clock: database.clock, database: database.link() },
      async (gateway) => {
        await database.store.batch([
          { op: "put", collection: "workspaces", key: workspace, body: { v: 1, last_gateway } },
          { op: "put", collection: "run_claims", key: "run_left", body: claim },
        ]);
        await withView(browser, { gateway, view: "cluster" }, async ({ page }) => {
          const words = "for the gateway in /home/me/work (data directory /home/me/postern-3) on web-1";
          await page.locator("#cluster-facts").getByText(`${workspace}: 1 run waits, ${words}`).waitFor();
        });
      },
    );
  });

  test("has no link where the gateway is alone, and says why at its address", () =>
    withRunningGateway(
      { config: { gateway: { rate_limit_max: 0 } } },
      (gateway) =>
        withView(browser, { gateway, view: "status" }, async ({ page }) => {
          assert.equal(await page.locator("#nav-cluster").isVisible(), false);
          await page.goto(`${gateway.url}/#cluster`);
          await page.locator("#cluster-lead").getByText("There is no cluster: this gateway is alone").waitFor();
        }),
    ));
});

/** Script of the page that returns the lines which the texts of the facts are broken into. */
const LINES = `Array.from(document.querySelectorAll("#cluster-facts dd"), (place) => {
  const lines = [];
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    for (let at = 0; at < node.data.length; at++) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const { bottom, width } = range.getBoundingClientRect();
      // A space at the end of a line has no width
      if (lines.length === 0 || (width > 0 && bottom > lines.at(-1).bottom + 2)) lines.push({ text: "", bottom });
      lines.at(-1).text += node.data[at];
    }
  }
  return lines.map(({ text }) => text);
})`;

import assert from "node:assert/strict";
import { test } from "node:test";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { withRunningGateway } from "../support/running_gateway.ts";
import { until } from "../support/until.ts";
import { withView } from "./with_view.ts";

test(
  "a button of every page halts all work once it has asked, and another one lets it go on",
  { skip: NO_PAGE_TEST },
  () =>
    withRunningGateway({ config: { provider: { kind: "offline" } } }, async (gateway) => {
      const browser = await launchPageBrowser();
      const { halts } = gateway.services;
      try {
        await withView(browser, { gateway, view: "logs" }, async ({ page }) => {
          for (const [width, view] of [[1440, "logs"], [390, "runs"]] as const) {
            await page.setViewportSize({ width, height: 800 });
            await page.goto(`${gateway.url}/#${view}`);
            await page.getByRole("button", { name: "Halt", exact: true }).click();
            assert.deepEqual(halts.list(), [], "it asks first");
            await page.getByRole("button", { name: "Halt all work?" }).click();
            await page.locator("#halted").getByText("All work is halted.").waitFor();
            assert.deepEqual(halts.list().map(({ id, by }) => [id, by.via]), [["all", "http"]]);
            assert.equal(await page.getByRole("button", { name: "Halt", exact: true }).count(), 0);
            await page.getByRole("button", { name: "Resume" }).click();
            await page.getByRole("button", { name: "Let it go on?" }).click();
            await until(() => halts.list().length === 0);
            await page.getByRole("button", { name: "Halt", exact: true }).waitFor();
            await page.locator("#halted").waitFor({ state: "hidden" });
          }
        });
      } finally {
        await browser.close();
      }
    }),
);

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { type FakeGateway, startFakeGateway } from "./fake_gateway.ts";

describe("the dashboard's schedules in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  let gateway: FakeGateway;
  let page: Page;

  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());
  beforeEach(async () => {
    gateway = await startFakeGateway();
    page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
  });
  afterEach(async () => {
    await page.close();
    await gateway.close();
  });

  async function openSchedules(): Promise<void> {
    await page.goto(gateway.url);
    await page.fill("#pair-code", gateway.code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#message");
    await page.click("nav a[href='#schedules']");
  }
  const button = (name: string) => page.getByRole("button", { name });
  /** The list is drawn again after the note, and then its title has the focus: a click before that may miss its button. */
  const said = async (text: string) => {
    await page.locator("#schedules-note").getByText(text).waitFor();
    await page.locator("#schedules-title:focus").waitFor();
  };

  test("shows when each fires and what it does, as text, with its firings and their runs", async () => {
    gateway.schedules.add("report");
    await openSchedules();
    const row = page.locator("#schedules-list > li");
    assert.match(
      await row.innerText(),
      /Active[\s\S]*report[\s\S]*weekdays at 9:00 \(Europe\/Berlin\)[\s\S]*<b>report<\/b>/,
    );
    assert.equal(await page.locator("#schedules-lead").innerText(), "1 schedule.");
    await page.getByText("Firings").click();
    const firing = row.locator("details li");
    await firing.waitFor();
    assert.match(await firing.innerText(), /Started .*, its run is completed\./);
    assert.equal(await firing.locator("a").getAttribute("href"), "#runs/run_report");
  });

  test("pauses, resumes and runs one now by keyboard, and says what came of it", async () => {
    gateway.schedules.add("report");
    gateway.schedules.add("broken");
    await openSchedules();
    await button("Pause: report").focus();
    await page.keyboard.press("Enter");
    await said("Pause: report - done.");
    await button("Resume: report").click();
    await said("Resume: report - done.");
    await button("Run now: report").click();
    await said("Run now: report - done.");
    assert.deepEqual(gateway.schedules.posted, ["cron_pause report", "cron_resume report", "run report"]);
    await button("Run now: broken").click();
    await said("Run now: broken - Cannot run it: it is busy");
  });

  test("without a schedule it tells how to make one", async () => {
    await openSchedules();
    await page.locator("#schedules-lead").getByText("There is no schedule. Ask the agent for one").waitFor();
  });
});

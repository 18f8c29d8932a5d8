import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { type FakeGateway, startFakeGateway } from "./fake_gateway.ts";

describe("steering in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  for (const width of [390, 1440]) {
    test(`at ${width} px a message is queued behind the reply, or steers it`, async () => {
      const gateway = await startFakeGateway();
      const page = await browser.newPage({ viewport: { width, height: 800 } });
      page.setDefaultTimeout(PATIENCE_MS);
      const isPhone = width < 500;
      const say = async (text: string, how: "queue" | "steer") => {
        await page.fill("#message", text);
        if (isPhone) await page.click(how === "steer" ? "#steer" : "#send");
        else await page.keyboard.press(how === "steer" ? "Control+Enter" : "Enter");
      };
      const waits = (text: string) => page.locator(".waits").filter({ hasText: text });

      await page.goto(gateway.url);
      await page.fill("#pair-code", gateway.code);
      await page.keyboard.press("Enter");
      await page.fill("#message", "slow beans");
      assert.ok(!await page.isVisible("#steer"), "nothing is at work yet");
      await page.keyboard.press("Enter");
      await page.getByText("The README says:").waitFor();
      assert.ok(!await page.isVisible("#steer"), "there is nothing to say yet");
      await page.fill("#message", "Then the peas");
      for (const id of ["#steer", "#send", "#stop"]) {
        const box = await page.locator(id).boundingBox();
        assert.ok(box !== null && box.x >= 0 && box.x + box.width <= width && box.y + box.height <= 800, id);
      }
      assert.equal(await page.locator("#send").innerText(), "Queue");
      assert.equal(await page.isVisible("#steer-hint"), !isPhone);

      const accepted = () => page.waitForResponse("**/v1/runs/*/messages");
      await Promise.all([accepted(), say("Then the peas", "queue")]);
      await waits("Then the peas").waitFor();
      assert.equal(await page.inputValue("#message"), "");
      await Promise.all([accepted(), say("Only this week", "steer")]);
      await waits("Steers at the next step").waitFor();
      gateway.takeIn();
      await waits("Only this week").waitFor({ state: "detached" });
      await page.locator("#turns .notice").filter({ hasText: "You: Only this week" }).waitFor();
      assert.deepEqual(gateway.answers.map((answer) => Object.values(answer as object).slice(1)), [
        ["Then the peas", "queue"],
        ["Only this week", "steer"],
      ]);

      gateway.release();
      await waits("Then the peas").waitFor({ state: "detached" });
      await page.locator("#turns .reply").nth(1).getByText("That is all").waitFor();
      assert.deepEqual(gateway.commands.at(-1), { type: "resume", run_id: "run_2", after: 0 });
      assert.equal(await page.locator("#turns .question").count(), 2);
      await page.locator("#stop").waitFor({ state: "hidden" });
      assert.equal(await page.locator("#send").innerText(), "Send");
      await page.close();
      await gateway.close();
    });
  }

  test("a message that was taken in before the page knows of its acceptance does not wait", async () => {
    const gateway = await startFakeGateway();
    const page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const known = Promise.withResolvers<void>();
    await page.route("**/v1/runs/*/messages", async (route) => {
      const response = await route.fetch();
      gateway.takeIn();
      await known.promise;
      await route.fulfill({ response });
    });
    await beginSlowReply(page, gateway);
    await page.fill("#message", "Only this week");
    await page.keyboard.press("Control+Enter");
    await page.locator("#turns .notice").filter({ hasText: "You: Only this week" }).waitFor();
    known.resolve();
    await page.locator(".waits").waitFor({ state: "detached" });
    gateway.release();
    await page.locator("#turns .reply").getByText("That is all").waitFor();
    assert.equal(gateway.commands.filter(({ type }) => type === "resume").length, 0);
    await page.close();
    await gateway.close();
  });

  test("a message that is accepted once another conversation is open is not shown there", async () => {
    const gateway = await startFakeGateway();
    const page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const release = Promise.withResolvers<void>();
    await page.route("**/v1/runs/*/messages", async (route) => {
      await release.promise;
      await route.continue();
    });
    await beginSlowReply(page, gateway);
    await page.fill("#message", "Then the peas");
    await page.keyboard.press("Enter");
    await page.locator(".waits").waitFor();
    await page.click("#new-chat");
    const accepted = page.waitForResponse("**/v1/runs/*/messages");
    release.resolve();
    await (await accepted).finished();
    // The next task comes after those that the answer brought about
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
    assert.equal(await page.locator("#turns > *").count(), 0);
    assert.equal(gateway.commands.filter(({ type }) => type === "resume").length, 0);
    await page.close();
    await gateway.close();
  });
});

/** Pairs a page, and asks for a reply that waits for its release. */
async function beginSlowReply(page: Page, { url, code }: FakeGateway): Promise<void> {
  await page.goto(url);
  await page.fill("#pair-code", code);
  await page.keyboard.press("Enter");
  await page.fill("#message", "slow beans");
  await page.keyboard.press("Enter");
  await page.getByText("The README says:").waitFor();
}

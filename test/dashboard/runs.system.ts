import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { type FakeGateway, startFakeGateway } from "./fake_gateway.ts";
import { until } from "../support/until.ts";

const CALL = { call_id: "call_1", tool: "shell", input: { command: "mail -s <b>beans</b>" } };
/** Picture of one point, as JPEG. */
const PIXEL =
  "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgICAgMCAgIDAwMDBAYEBAQEBAgGBgUGCQgKCgkICQkKDA8MCgsOCwkJDRENDg8QEBEQCgwSExIQEw8QEBD/2wBDAQMDAwQDBAgEBAgQCwkLEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBD/wAARCAABAAEDAREAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAACP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/xAAVAQEBAAAAAAAAAAAAAAAAAAAHCf/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhEDEQA/ADoDFU3/2Q==";
const USAGE = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };

describe("the dashboard's runs in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  let gateway: FakeGateway;
  let page: Page;
  let problems: string[];

  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());
  beforeEach(async () => {
    gateway = await startFakeGateway();
    page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    problems = [];
    page.on("pageerror", (error) => problems.push(String(error)));
  });
  afterEach(async () => {
    await page.close();
    await gateway.close();
    assert.deepEqual(problems, []);
  });

  async function openRuns(): Promise<void> {
    await page.goto(gateway.url);
    await page.fill("#pair-code", gateway.code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#message");
    await page.click("nav a[href='#runs']");
  }
  /** By the second frame from now the page has seen what has come. */
  const twoFrames = () =>
    page.evaluate("new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))");
  const focused = () => page.evaluate("document.activeElement.textContent");

  test("lists runs with their state in words, and only those that are asked for", async () => {
    gateway.runs.add({ id: "run_1", status: "completed", result: "The <b>beans</b>" });
    gateway.runs.add({ id: "run_2", status: "needs_review" });
    await openRuns();
    await page.locator("#runs-list li").nth(1).waitFor();
    assert.match(await page.locator("#runs-list li").nth(0).innerText(), /Needs your decision[\s\S]*run_2/);
    assert.match(
      await page.locator("#runs-list li").nth(1).innerText(),
      /Done[\s\S]*Look after the garden[\s\S]*run_1[\s\S]*The <b>beans<\/b>/,
    );
    await page.selectOption("#runs-filter", "completed");
    await page.locator("#runs-list").getByText("run_2").waitFor({ state: "detached" });
    assert.equal(await page.locator("#runs-list li").count(), 1);
  });

  test("a list that comes late does not take the place of the one that was asked for after it", async () => {
    gateway.runs.add({ id: "run_1", status: "completed" });
    gateway.runs.add({ id: "run_2", status: "needs_review" });
    const release = gateway.runs.holdList();
    const late = page.waitForResponse((response) => response.url().endsWith("/v1/runs?limit=50"));
    await openRuns();
    await page.selectOption("#runs-filter", "completed");
    await page.locator("#runs-list").getByText("run_1").waitFor();
    release();
    await (await late).finished();
    await twoFrames();
    assert.equal(await page.locator("#runs-list li").count(), 1);
  });

  test("nor does an older list of the same runs", async () => {
    gateway.runs.add({ id: "run_1", status: "completed" });
    const release = gateway.runs.holdList();
    const late = page.waitForRequest((request) => request.url().endsWith("/v1/runs?limit=50"));
    await openRuns();
    await page.selectOption("#runs-filter", "completed");
    await page.locator("#runs-list").getByText("run_1").waitFor();
    gateway.runs.add({ id: "run_2", status: "needs_review" });
    await page.selectOption("#runs-filter", "");
    await page.locator("#runs-list").getByText("run_2").waitFor();
    release();
    await (await (await late).response())?.finished();
    await twoFrames();
    assert.equal(await page.locator("#runs-list li").count(), 2);
  });

  test("a list that fails late says nothing about the one that was asked for after it", async () => {
    gateway.runs.add({ id: "run_1", status: "completed" });
    const all = (url: URL) => url.search === "?limit=50";
    const late = Promise.withResolvers<void>();
    await page.route(all, async (route) => {
      await late.promise;
      await route.abort();
    });
    await openRuns();
    await page.selectOption("#runs-filter", "completed");
    await page.locator("#runs-list").getByText("run_1").waitFor();
    const failed = page.waitForEvent("requestfailed");
    late.resolve();
    await failed;
    await twoFrames();
    assert.equal(await page.locator("#runs-lead").innerText(), "1 run.");
  });

  test("shows a run live, goes on where its stream broke, and cancels it, by keyboard", async () => {
    const run = gateway.runs.add({ id: "run_1" });
    gateway.runs.tell(run, { type: "text_delta", delta: "Water " });
    await openRuns();
    await page.locator("#runs-list a").focus();
    await page.keyboard.press("Enter");
    await page.locator("#run .prose").getByText("Water").waitFor();
    await until(async () => await focused() === "Look after the garden run_1", "the run's title has no focus");
    gateway.runs.tell(run, { type: "text_delta", delta: "the " });
    await page.locator("#run .prose").getByText("Water the").waitFor();
    gateway.runs.breakOff();
    gateway.runs.tell(run, { type: "text_delta", delta: "beans" });
    await page.locator("#run .prose").getByText("Water the beans").waitFor();
    assert.deepEqual(gateway.runs.opened, ["0", "2"]);
    await page.getByRole("button", { name: "Cancel this run" }).waitFor();
    for (let presses = 0; presses < 10 && await focused() !== "Cancel this run"; presses++) {
      await page.keyboard.press("Tab");
    }
    await page.keyboard.press("Enter");
    await page.locator("#run").getByText("Cancelled", { exact: true }).waitFor();
    assert.deepEqual(gateway.runs.posted, [{ action: "cancel" }]);
    await until(async () => await focused() === "Look after the garden run_1", "the run's title has the focus no more");
    await until(async () => /The run: Cancelled/.test(await page.locator("#runs-announcer").innerText()));
  });

  test("shows what a run does in its browser: the page as a picture, and the operations", async () => {
    const run = gateway.runs.add({ id: "run_1" });
    gateway.runs.tell(run, { type: "tool_start", ...CALL, tool: "browser", input: { op: "navigate" } });
    gateway.runs.tell(run, { type: "tool_end", ...CALL, tool: "browser", output: "", is_error: false });
    const action = {
      at: "2026-01-01T00:00:00.000Z",
      op: "click",
      target: 'button "<b>Buy</b>"',
      url: "http://shop.test/",
      error: null,
    };
    run.browser = {
      ...{ object: "run.browser", run_id: "run_1", open: true, actions_dropped: 2 },
      actions: [{ ...action, op: "navigate", target: "http://shop.test/" }, action, {
        ...action,
        error: "The page has gone",
      }],
      picture: { media_type: "image/jpeg", data: PIXEL, taken_at: action.at },
    };
    await openRuns();
    await page.locator("#runs-list a").click();
    const watch = page.locator(".browser-watch");
    await watch.getByRole("heading", { name: "Browser" }).waitFor();
    await until(async () =>
      await watch.locator("img").evaluate((image) =>
        (image as unknown as { readonly naturalWidth: number }).naturalWidth
      ) === 1
    );
    assert.equal(await watch.locator("img").getAttribute("alt"), "The page that the browser shows: http://shop.test/");
    assert.deepEqual(await watch.locator("li").allInnerTexts(), [
      'click button "<b>Buy</b>" The page has gone',
      'click button "<b>Buy</b>"',
      "navigate http://shop.test/",
    ]);
    assert.equal(await watch.locator("ol").getAttribute("start"), "5");
  });

  test("says in plain words what is not known of a run that was cut off, and sends the decision", async () => {
    const run = gateway.runs.add({ id: "run_1", status: "needs_review" });
    gateway.runs.tell(run, { type: "tool_start", ...CALL });
    gateway.runs.tell(run, { type: "error", code: "needs_review", message: "The gateway stopped" });
    await openRuns();
    await page.locator("#runs-list a").click();
    const card = page.getByRole("region", { name: "Review" });
    await card.getByText("Whether it took effect is not known").waitFor();
    await card.getByText('"command": "mail -s <b>beans</b>"').waitFor();
    await card.getByLabel("It took effect").check();
    await card.getByLabel("Note").fill("It is in the outbox");
    await card.getByRole("button", { name: "Go on with the run" }).press("Enter");
    await card.waitFor({ state: "detached" });
    assert.deepEqual(gateway.runs.posted, [{ action: "resume", outcome: "done", note: "It is in the outbox" }]);
    gateway.runs.tell(run, { type: "text_delta", delta: "It was sent." });
    run.status = "completed";
    gateway.runs.tell(run, { type: "done", finish_reason: "stop", usage: USAGE });
    await page.locator("#run .prose").getByText("It was sent.").waitFor();
    await page.locator("#run").getByText("Done", { exact: true }).waitFor();
  });

  test("forgets the text of a turn that is asked again", async () => {
    const run = gateway.runs.add({ id: "run_1" });
    gateway.runs.tell(run, { type: "turn_start", turn: 1 });
    gateway.runs.tell(run, { type: "text_delta", delta: "lost words" });
    gateway.runs.tell(run, { type: "turn_restart", turn: 1, from_seq: 2 });
    gateway.runs.tell(run, { type: "text_delta", delta: "kept words" });
    await openRuns();
    await page.locator("#runs-list a").click();
    await page.locator("#run .prose").getByText("kept words").waitFor();
    assert.equal(await page.locator("#run").getByText("lost words").count(), 0);
  });

  test("a run that does not exist says so", async () => {
    await openRuns();
    await page.goto(`${gateway.url}#runs/run_none`);
    await page.locator("#run").getByText("cannot be shown: Cannot find this run").waitFor();
  });
});

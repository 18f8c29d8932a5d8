import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_CHROMIUM, PATIENCE_MS } from "../support/chromium.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const MARKDOWN = [
  "## Beans",
  "Water *all* of the **beans and _peas_**, not ~~corn~~; 2*3*4 and snake_case_name stay. See https://example.com/a_b.",
  "> Said the <b>gardener</b>\n> > and his wife",
  "1. dig\n   - deep\n   - wide\n2. sow",
  "| plant | day |\n|:--|--:|\n| bean \\| pea | `Tue` |",
  '```ts\nconst bean = "<i>1</i>";\n```',
  "[Sign in at bank.example](https://evil.example/in), [example.com](https://example.com/a), [more](https://example.org).",
  "\\*plain\\* <img src=x onerror=alert(1)>",
].join("\n\n");

describe("what the dashboard shows of records", { skip: NO_CHROMIUM }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  async function openPaired(gateway: RunningGateway, problems: string[] = []): Promise<Page> {
    const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("dialog", (dialog) => problems.push(dialog.message()));
    await page.goto(gateway.url);
    await page.fill("#pair-code", (await gateway.services.pairing.createCode()).code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#nav:not([hidden])");
    return page;
  }
  const ask = async (page: Page, text: string) => {
    const before = await page.locator("#turns .question").count();
    await page.fill("#message", text);
    await page.keyboard.press("Enter");
    await page.locator("#turns .question").nth(before).waitFor();
    await page.locator("#turns .typing").waitFor({ state: "detached" });
  };

  test("a conversation outlives the page: it is listed, opened, gone on with, named and deleted", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({
        files: { "beans.md": "Tuesday" },
        script: (_request, turn) =>
          turn === 0
            ? { toolCalls: [{ name: "read_file", arguments: { path: "beans.md" } }] }
            : { text: `Answer ${turn}` },
      });
      const problems: string[] = [];
      const page = await openPaired(gateway, problems);
      await ask(page, "When are the beans watered?");
      await page.locator("#turns").getByText("Answer 1").waitFor();
      const address = page.url();
      assert.match(address, /#chat\/conv_/);
      await page.locator("#past-list").getByText("When are the beans watered?").waitFor();

      await page.reload();
      await page.locator("#turns .question").getByText("When are the beans watered?").waitFor();
      await page.locator("#turns .reply").getByText("Answer 1").waitFor();
      assert.equal(await page.locator(".tool .tool-name").innerText(), "read_file");
      assert.equal(await page.locator(".tool").getAttribute("data-state"), "done");
      await ask(page, "And the peas?");
      await page.locator("#turns").getByText("Answer 2").waitFor();
      assert.equal(page.url(), address);
      const asked = gateway.provider.requests.at(-1)?.messages.map(({ content }) => content);
      assert.ok(asked?.includes("When are the beans watered?"), "the model is told what was said before");

      await page.getByRole("button", { name: "Rename" }).click();
      await page.fill("#talk-name", "The <b>beans</b>");
      await page.keyboard.press("Enter");
      await page.locator("#past-list").getByText("The <b>beans</b>").waitFor();
      assert.equal(await page.locator("#talk-title").innerText(), "The <b>beans</b>");

      await page.click("#new-chat");
      assert.match(page.url(), /#chat$/);
      await ask(page, "Something else");
      assert.equal(await page.locator("#turns .question").count(), 1);
      await page.locator("#past-list a").nth(1).waitFor();
      assert.equal(await page.locator("#past-list a").count(), 2);
      await page.getByRole("link", { name: "The <b>beans</b>" }).click();
      await page.locator("#turns").getByText("Answer 2").waitFor();
      assert.equal(page.url(), address);
      // Another view and back shows the same conversation
      await page.click("nav a[href='#tools']");
      await page.click("nav a[href='#chat']");
      await page.locator("#turns").getByText("Answer 2").waitFor();

      await page.getByRole("button", { name: "Delete" }).click();
      await page.getByRole("button", { name: "Delete for good" }).click();
      await page.locator("#past-list").getByText("The <b>beans</b>").waitFor({ state: "detached" });
      assert.equal(await page.locator("#turns li").count(), 0);
      assert.deepEqual(
        (await jsonOf(gateway.call("/v1/conversations"))).data.map(({ title }: { title: string }) => title),
        [
          "Something else",
        ],
      );
      await page.goto(address);
      await page.reload();
      await page.getByText("Nothing is stored under this address").waitFor();
      assert.deepEqual(problems, []);
      await page.context().close();
    }));

  test("a page that is closed or reloaded in the middle of a reply finds it again, and Stop ends it for good", () =>
    withWorld(async (world) => {
      const go = Promise.withResolvers<void>();
      const gateway = await world.gateway({
        files: { "beans.md": "Tuesday" },
        script: [
          { toolCalls: [{ name: "read_file", arguments: { path: "beans.md" } }] },
          { text: ["It was ", "Tuesday"], holdUntil: go.promise },
          { text: "Half a", hang: "after" },
        ],
      });
      const problems: string[] = [];
      const page = await openPaired(gateway, problems);
      const turns = page.locator("#turns");
      await page.fill("#message", "When?");
      await page.keyboard.press("Enter");
      await turns.getByText("It was").waitFor();
      // The first reply of a conversation: nothing is stored under its address yet
      await page.reload();
      await turns.locator(".question").getByText("When?").waitFor();
      await turns.getByText("It was").waitFor();
      assert.equal(await turns.locator(".tool .tool-name").innerText(), "read_file");
      assert.equal(await page.locator("#stop").isVisible(), true);
      // Another conversation, and back
      const address = page.url();
      await page.click("#new-chat");
      assert.equal(await turns.locator("li").count(), 0);
      await page.goto(address);
      await turns.getByText("It was").waitFor();
      go.resolve();
      await turns.getByText("It was Tuesday").waitFor();
      assert.equal(await turns.locator(".question").count(), 1);
      // A lost connection, as of a locked phone
      await page.fill("#message", "And the peas?");
      await page.keyboard.press("Enter");
      await turns.getByText("Half a").waitFor();
      gateway.connections.sockets.closeAll();
      await until(() => gateway.connections.sockets.count() === 1, "the page comes back");
      assert.equal(await turns.getByText("Half a").count(), 1);
      await page.locator("#stop").click();
      await turns.getByText("Stopped").waitFor();
      assert.equal(gateway.provider.aborted, 1);
      await page.reload();
      await turns.getByText("Stopped before its end").waitFor();
      assert.deepEqual([problems, gateway.provider.requests.length], [[], 3]);
      await page.context().close();
    }));

  test("a phone answers what a desktop page began, says no to the next call, and halts the third", () =>
    withWorld(async (world) => {
      const write = (path: string) => ({
        toolCalls: [{ name: "write_file", arguments: { path, content: "Tuesday" } }],
      });
      const gateway = await world.gateway({
        config: { security: { write_file: { enabled: true } } },
        script: [write("beans.md"), "It is written.", write("peas.md"), "Then not.", { text: "Half a", hang: "after" }],
      });
      const problems: string[] = [];
      const desktop = await openPaired(gateway, problems);
      await desktop.setViewportSize({ width: 1440, height: 900 });
      await desktop.fill("#message", "Note it\nin beans.md");
      await desktop.keyboard.press("Enter");
      await desktop.locator(".turns .ask").waitFor();

      const phone = await openPaired(gateway, problems);
      await phone.setViewportSize({ width: 390, height: 844 });
      await phone.locator("#menu-count").getByText("1").waitFor();
      await phone.click("#menu");
      await phone.click("#nav a[href='#approvals']");
      await phone.getByRole("button", { name: "Approve once" }).click();
      await desktop.locator("#turns").getByText("It is written.").waitFor();
      assert.equal(await desktop.locator(".turns .ask").count(), 0);
      assert.equal(await desktop.locator(".tool").getAttribute("open"), null, "a call that is done is folded");
      assert.equal(readFileSync(gateway.workspace.path("beans.md"), "utf8"), "Tuesday");

      // From the answer to its run, from there to the lines of the log and back, and to the conversation
      await phone.locator("#approvals-recent").getByRole("link", { name: "Run" }).click();
      const title = phone.locator("#run h2");
      await title.getByText("Note it").waitFor();
      assert.match(await title.innerText(), /^Note it run_\w+$/);
      await phone.getByRole("link", { name: "Lines that name this run" }).click();
      await phone.locator("#logs-list").getByText("Approval was settled").waitFor();
      await phone.locator("#logs-lead").getByRole("link", { name: /^run_/ }).click();
      await title.getByText("Note it").waitFor();
      await phone.locator("#run .facts").getByRole("link", { name: /^conv_/ }).click();
      await phone.locator("#turns").getByText("It is written.").waitFor();
      assert.match(await phone.locator(".turn-foot a").getAttribute("href") ?? "", /^#runs\/run_/);

      await phone.fill("#message", "And the peas?");
      await phone.keyboard.press("Enter");
      await phone.getByRole("button", { name: "Deny", exact: true }).click();
      await phone.locator("#turns").getByText("Then not.").waitFor();
      const denied = phone.locator(".tool[data-state=denied]");
      await denied.getByText("denied by you").waitFor();
      assert.notEqual(await denied.getAttribute("open"), null, "what was denied is open");

      await desktop.reload();
      await desktop.locator("#turns").getByText("Then not.").waitFor();
      await desktop.fill("#message", "And the corn?");
      await desktop.keyboard.press("Enter");
      await desktop.locator("#turns").getByText("Half a").waitFor();
      await phone.getByRole("button", { name: "Halt", exact: true }).click();
      await phone.getByRole("button", { name: "Halt all work?" }).click();
      for (const page of [phone, desktop]) await page.locator("#halted").getByText("All work is halted.").waitFor();
      await until(() => gateway.provider.aborted === 1, "the model's reply is broken off");
      await desktop.locator("#stop").waitFor({ state: "hidden" });
      assert.deepEqual(problems, []);
      for (const page of [phone, desktop]) await page.context().close();
    }));

  test("a token that may only chat is refused the list once, and chats all the same", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: (_request, turn) => `Answer ${turn}.` });
      const { token } = await gateway.services.tokens.issue({ scopes: ["chat"], label: "" });
      const page = await (await browser.newContext()).newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      const refused: string[] = [];
      page.on("response", (reply) => void (reply.status() === 403 && refused.push(new URL(reply.url()).pathname)));
      await page.goto(gateway.url);
      await page.getByText("I have a token").click();
      await page.fill("#token-input", token);
      await page.keyboard.press("Enter");
      await page.waitForSelector("#nav:not([hidden])");
      for (const turn of [0, 1, 2]) {
        await ask(page, "Hi");
        await page.locator("#turns").getByText(`Answer ${turn}.`).waitFor();
      }
      await page.locator("#past-note").getByText("They cannot be shown").waitFor();
      assert.equal(refused.filter((path) => path === "/v1/conversations").length, 1, refused.join(" "));
      await page.context().close();
    }));

  test("of a long conversation the newest messages are shown, and earlier ones on request", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: (_request, turn) => `Answer ${turn}.` });
      for (let i = 0; i < 60; i++) {
        await (await gateway.call("/api/chat", { body: { message: `Question ${i}.`, conversation_id: "long" } }))
          .text();
      }
      const page = await openPaired(gateway);
      await page.goto(`${gateway.url}/#chat/long`);
      await page.locator("#turns").getByText("Question 59.").waitFor();
      assert.equal(await page.locator("#turns").getByText("Question 9.", { exact: true }).count(), 0);
      await page.getByRole("button", { name: "Show earlier messages" }).click();
      await page.locator("#turns").getByText("Question 0.", { exact: true }).waitFor();
      assert.equal(await page.locator("#turns .question").count(), 60);
      assert.equal(await page.locator("#earlier").isVisible(), false);
      await page.context().close();
    }));

  test("a reply's Markdown is shown as what it means, and its HTML as it is written", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: [MARKDOWN] });
      const problems: string[] = [];
      const page = await openPaired(gateway, problems);
      await ask(page, "Tell me");
      const prose = page.locator(".prose");
      const texts = (selector: string) => prose.locator(selector).allInnerTexts();
      assert.deepEqual(await texts("h4"), ["Beans"]);
      assert.deepEqual([await texts("em"), await texts("strong"), await texts("del")], [
        ["all", "peas"],
        ["beans and peas"],
        ["corn"],
      ]);
      assert.match((await texts("p")).join("\n"), /2\*3\*4 and snake_case_name stay/);
      assert.equal(await prose.locator("a").first().getAttribute("href"), "https://example.com/a_b");
      assert.deepEqual((await texts("a")).slice(1), ["Sign in at bank.example (evil.example)", "example.com", "more"]);
      assert.deepEqual(await texts("blockquote blockquote"), ["and his wife"]);
      assert.deepEqual(await texts("ol > li > ul > li"), ["deep", "wide"]);
      assert.deepEqual(await texts("td"), ["bean | pea", "Tue"]);
      assert.equal(
        await page.evaluate("getComputedStyle(document.querySelectorAll('.prose td')[1]).textAlign"),
        "right",
      );
      assert.deepEqual(await texts(".code-head span"), ["ts"]);
      await prose.getByRole("button", { name: "Copy" }).click();
      await prose.getByRole("button", { name: "Copied" }).waitFor();
      assert.equal(await page.evaluate("navigator.clipboard.readText()"), 'const bean = "<i>1</i>";');
      assert.match((await texts("p")).at(-1) ?? "", /^\*plain\* <img src=x onerror=alert\(1\)>$/);
      assert.equal(await prose.locator("img, b, i").count(), 0);
      assert.deepEqual(problems, []);
      await page.context().close();
    }));

  test("the memory is shown, searched and forgotten", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: [] });
      const { memory } = gateway.services;
      await memory.store({ key: "beans", value: "Water on <b>Tuesday</b>", tags: ["garden"] });
      await memory.store({ key: "peas", value: "They climb", namespace: "notes" });
      const page = await openPaired(gateway);
      await page.click("nav a[href='#memory']");
      await page.locator("#memory-list summary").getByText("notes/peas").waitFor();
      await page.fill("#memory-search", "tuesday");
      await page.keyboard.press("Enter");
      await page.locator("#memory-list").getByText("notes/peas").waitFor({ state: "detached" });
      await page.locator("#memory-list summary").getByText("beans").click();
      await page.locator("#memory-list").getByText("Water on <b>Tuesday</b>").waitFor();
      await page.getByRole("button", { name: "Forget beans" }).click();
      assert.equal((await memory.recall({ key: "beans" })).length, 1, "one press forgets nothing");
      await page.getByText("Forget for good").click();
      await page.locator("#memory-list li").waitFor({ state: "detached" });
      assert.equal((await memory.recall({ key: "beans" })).length, 0);
      await page.context().close();
    }));

  test("the log's lines come in by themselves, by level, and not to everybody", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: [] });
      const page = await openPaired(gateway);
      gateway.services.log.warn("The beans are dry", { plant: "<b>bean</b>" });
      await page.click("nav a[href='#logs']");
      await page.locator("#logs-list").getByText("The beans are dry").waitFor();
      await page.locator("#logs-list").getByText("plant=<b>bean</b>").waitFor();
      gateway.services.log.error("The pump failed");
      await page.locator("#logs-list").getByText("The pump failed").waitFor();
      assert.equal(await page.locator("#logs-list").getByText("Request", { exact: true }).count(), 0);
      await page.check("#logs-requests");
      await page.locator("#logs-list").getByText("Request", { exact: true }).first().waitFor();
      assert.equal(
        await page.locator("#logs-list").getByText("/v1/logs").count(),
        0,
        "reading the log does not fill it",
      );
      await page.selectOption("#logs-level", "error");
      await page.locator("#logs-list").getByText("The beans are dry").waitFor({ state: "detached" });
      await page.context().close();
    }));
});

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS, pollOnce } from "../support/chromium.ts";
import { type FakeGateway, startFakeGateway } from "./fake_gateway.ts";
import { until } from "../support/until.ts";

const TOKEN_KEY = "postern_token /agent/";

describe("the dashboard in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  let gateway: FakeGateway;
  let page: Page;
  let outside: string[];
  let problems: string[];

  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  beforeEach(async () => {
    gateway = await startFakeGateway({ base: "/agent" });
    page = await browser.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    outside = [];
    problems = [];
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(gateway.url.slice(0, -1)) && !url.startsWith("data:")) outside.push(url);
    });
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on(
      "console",
      (message) => void (/Content Security Policy/.test(message.text()) && problems.push(message.text())),
    );
    page.on("dialog", (dialog) => problems.push(dialog.message()));
  });
  afterEach(async () => {
    await page.close();
    await gateway.close();
    assert.deepEqual(problems, []);
    assert.deepEqual(outside, []);
    assert.deepEqual(gateway.asked.filter((path) => path.startsWith("outside")), []);
  });

  async function openPaired(): Promise<void> {
    await page.goto(gateway.url);
    await page.fill("#pair-code", gateway.code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#message");
  }
  async function ask(text: string): Promise<void> {
    await page.fill("#message", text);
    await page.keyboard.press("Enter");
  }
  const inTurns = (text: string) => page.locator("#turns").getByText(text).waitFor();
  const textOf = (selector: string) => page.locator(selector).innerText();

  test("refuses a wrong code with the way out, then pairs by the browser's name, and keeps the token for this browser", async () => {
    await page.goto(gateway.url.slice(0, -1));
    await page.waitForSelector("#pair-code:focus");
    await page.keyboard.type("wrong");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "postern pair" }).waitFor();
    await page.keyboard.type(gateway.code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#message");
    const { label, ...terms } = JSON.parse(gateway.pairedBy);
    assert.match(label, /^Chrome on \w+$/);
    assert.deepEqual(terms, { idle_ttl_seconds: 30 * 24 * 60 * 60 });
    assert.equal(await page.evaluate(`JSON.parse(localStorage.getItem('${TOKEN_KEY}')).token`), "pst_test");
    assert.equal(await page.evaluate("sessionStorage.length"), 0);
    await page.reload();
    await page.waitForSelector("#message");
    await Promise.all([page.waitForResponse(/\/v1\/tokens\/tok_1$/), page.click("#sign-out")]);
    await page.waitForSelector("#pair-code");
    assert.equal(await page.evaluate("localStorage.length"), 0);
    assert.equal(await textOf("#pair-error"), "");
  });

  test("a second tab needs no pairing, and signing out in one tab signs out the other", async () => {
    const context = await browser.newContext();
    context.setDefaultTimeout(PATIENCE_MS);
    const [first, second] = [await context.newPage(), await context.newPage()];
    const pair = async () => {
      await first.fill("#pair-code", gateway.code);
      await first.keyboard.press("Enter");
      await first.waitForSelector("#message");
    };
    await first.goto(gateway.url);
    await pair();
    await second.goto(gateway.url);
    await second.waitForSelector("#message");
    await second.click("#sign-out");
    await first.getByRole("alert").filter({ hasText: "pair again" }).waitFor();
    await pair();
    await second.waitForSelector("#message");
    await context.close();
  });

  test("signing out of a gateway that is gone says that the token still works", async () => {
    await openPaired();
    gateway.setGone(true);
    await page.click("#sign-out");
    await page.getByRole("alert").filter({ hasText: "postern token remove" }).waitFor();
    assert.equal(await page.evaluate("localStorage.length"), 0);
  });

  test("asks for no code where the gateway wants none", async () => {
    await gateway.close();
    gateway = await startFakeGateway({ pairingRequired: false });
    await page.goto(gateway.url);
    await page.waitForSelector("#message");
    assert.ok(!await page.isVisible("#sign-out"));
    await ask("beans");
    await inTurns("That is all");
  });

  test("takes a code out of the address", async () => {
    await page.goto(`${gateway.url}#pair=ABCD-EFGH`);
    await page.waitForSelector("#pair-code");
    assert.equal(await page.inputValue("#pair-code"), "ABCD-EFGH");
    await page.waitForURL(gateway.url);
  });

  test("is signed in by the address of postern open, and says what is wrong with an old one", async () => {
    await page.goto(`${gateway.url}#open=WRNG-CODE`);
    await page.getByText("This code is wrong, used or expired").waitFor();
    await page.goto("about:blank");
    await page.goto(`${gateway.url}#open=ABCD-EFGH`);
    await page.waitForSelector("#message");
    assert.equal(page.url(), gateway.url);
  });

  test("shows text and tool calls while they come, and stops on Escape", async () => {
    await openPaired();
    await ask("slow beans");
    await inTurns("The README says:");
    const running = page.locator(".tool[data-state=running]");
    assert.match(await running.innerText(), /content_search[\s\S]*beans[\s\S]*running/);
    assert.ok(await page.isVisible("#stop"));
    await page.keyboard.press("Escape");
    await page.getByText("Stopped").waitFor();
    assert.deepEqual(gateway.commands.map(({ type }) => type), ["message", "cancel"]);
    await page.waitForSelector("#send");
  });

  test("shows hostile text as text, in replies and in folded tool calls", async () => {
    await openPaired();
    await ask("What does <script>alert(1)</script> say?");
    await inTurns("That is all");
    assert.match(await textOf(".question"), /<script>alert\(1\)<\/script>/);
    assert.match(await textOf(".reply"), /<img src=x onerror=alert\(1\)>/);
    await page.click(".tool summary");
    assert.match(await textOf(".tool-output"), /Water the beans on <b>Tuesday<\/b>/);
    assert.equal(await page.locator(".turns img, .turns b, .turns script").count(), 0);
  });

  test("says a reply in whole sentences to a screen reader, and goes on with the conversation", async () => {
    await openPaired();
    await ask("beans");
    await inTurns("That is all");
    const said = () => page.locator("#announcer p").allInnerTexts();
    await until(async () => (await said()).at(-1) === "That is all", "the reply is not said");
    assert.deepEqual((await said()).slice(0, 2), ["Tool read_file runs.", "Tool read_file is done."]);
    await ask("and peas");
    await page.locator(".reply").nth(1).getByText("That is all").waitFor();
    assert.equal(gateway.commands.at(-1)?.["conversation_id"], "conv_1");
    await page.locator(".turn-foot").nth(1).getByText("about 120 tokens").waitFor();
  });

  test("a reply whose connection is lost, and that cannot be read on, ends honestly, and trying again works", async () => {
    await openPaired();
    await ask("slow beans");
    await inTurns("The README says:");
    gateway.dropSockets();
    await page.getByRole("alert").filter({ hasText: "There is no such run" }).waitFor();
    assert.match(await textOf(".tool >> nth=1"), /not finished/);
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator(".reply").nth(1).getByText("The README says:").waitFor();
    gateway.release();
    await inTurns("That is all");
  });

  test("names the model that answers by default, as the gateway says it, and offers commands where they work", async () => {
    await page.clock.install();
    await openPaired();
    const shown = page.locator("#model option").first();
    const commands = async () => [
      (await page.locator("#message").getAttribute("placeholder"))?.includes("/tool_name"),
      await page.locator("#chips").getByText("/help").count() === 1,
    ];
    await shown.filter({ hasText: /^ollama\/llama3\.2 \(default\)$/ }).waitFor({ state: "attached" });
    assert.deepEqual(await commands(), [false, false], "a model knows no command");
    await page.selectOption("#model", "offline/assistant");
    assert.deepEqual(await commands(), [true, true]);
    await page.selectOption("#model", "");
    assert.deepEqual(await commands(), [false, false]);
    gateway.use("offline", "assistant");
    await pollOnce(page);
    await shown.filter({ hasText: /^offline\/assistant \(default\)$/ }).waitFor({ state: "attached" });
    assert.deepEqual(await commands(), [true, true]);
  });

  test("names the default model by the reply that it gave, where the token may not see the status", async () => {
    gateway.forbid("/v1/status");
    await openPaired();
    const shown = page.locator("#model option").first();
    await shown.filter({ hasText: /^Default model$/ }).waitFor({ state: "attached" });
    await ask("beans");
    await inTurns("That is all");
    assert.equal(await shown.textContent(), "offline/assistant (default)");
  });

  test("a gateway that is gone is said so, and so is its return", async () => {
    await page.clock.install();
    await openPaired();
    gateway.setGone(true);
    await page.clock.runFor(3100);
    await page.getByText("The gateway does not answer. Trying again").waitFor();
    await page.fill("#message", "half a thought");
    gateway.setGone(false);
    await page.clock.runFor(3100);
    await page.locator("#banner p").waitFor({ state: "detached" });
    await page.locator("#health-text").filter({ hasText: /^Ready$/ }).waitFor();
    assert.equal(await page.inputValue("#message"), "half a thought");
  });

  test("a token that is no longer taken leads back to pairing", async () => {
    await page.clock.install();
    await openPaired();
    await page.click("nav a[href='#tools']");
    await page.getByRole("heading", { name: "Tools" }).waitFor();
    gateway.revoke();
    await page.clock.runFor(3100);
    await page.getByRole("alert").filter({ hasText: "pair again" }).waitFor();
    assert.equal(await page.evaluate("localStorage.length"), 0);
    await page.keyboard.type(gateway.code);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Tools" }).waitFor();
  });

  test("what the token may not see is not asked for every few seconds", async () => {
    await page.clock.install();
    gateway.forbid("/v1/status", "/v1/runs", "/v1/approvals");
    await openPaired();
    for (const view of ["runs", "runs/run_1", "status"]) {
      await page.evaluate(`location.hash = "${view}"`);
      for (let polls = 0; polls < 3; polls++) await pollOnce(page);
    }
    const refused = gateway.asked.filter((path) => /^\/v1\/(status|runs|approvals)/.test(path));
    assert.deepEqual([...new Set(refused)].toSorted(), [
      "/v1/approvals",
      "/v1/runs",
      "/v1/runs/run_1",
      "/v1/runs/run_1/events",
      "/v1/status",
    ]);
    // Once when the view is opened, once more by the first poll
    for (const path of new Set(refused)) assert.ok(refused.filter((asked) => asked === path).length <= 2, path);
    assert.match(await page.locator("#runs-lead").textContent() ?? "", /cannot be shown: Refused: insufficient_scope/);
  });

  test("tools tell why they are off; the status draws its charts", async () => {
    await page.clock.install();
    await openPaired();
    await page.click("nav a[href='#tools']");
    await page.getByText("4 of 6 are on").waitFor();
    assert.match(await textOf(".tool-info >> nth=5"), /write_file[\s\S]*Set \[security\.write_file\] enabled = true/);
    await page.fill("#tools-filter", "fetch");
    assert.deepEqual(await page.locator(".tool-info .tool-name").allInnerTexts(), ["web_fetch"]);
    await page.click("nav a[href='#status']");
    const line = page.locator(".spark-line").first();
    await until(async () => {
      await page.clock.runFor(3100);
      return /^M[\d.]+ [\d.]+L/.test(await line.getAttribute("d") ?? "");
    }, "the line is not drawn");
    await page.getByRole("img", { name: /^Requests a second: now [\d.]+, highest/ }).waitFor();
    assert.match(await textOf("#routes"), /POST \/v1\/chat\/completions/);
    assert.doesNotMatch(await textOf("#routes"), /\/metrics/);
    await page.locator("#facts").getByText("Provider").waitFor();
    assert.match(await textOf("#facts"), /Provider\s+ollama\/llama3\.2, since Ollama answers at 127\.0\.0\.1:11434/);
    assert.match(await textOf("#facts"), /Needs a restart\s+gateway\.port/);
    assert.match(await textOf("#facts"), /Last change of the configuration\s+refused: Cannot use "agent\.x"/);
  });

  test("a call that waits is shown as it is, and approved; a second answer says what happened", async () => {
    gateway.ask();
    gateway.ask({
      tool: "shell",
      input: { command: "ls" },
      rule: "always_ask:shell",
      always_rule: null,
      offers: [],
      files: [],
    });
    await openPaired();
    await page.locator("#approvals-count").getByText("2").waitFor();
    await page.click("nav a[href='#approvals']");
    await page.getByText("2 calls wait for your answer.").waitFor();
    const [first, second] = [page.locator(".ask").nth(0), page.locator(".ask").nth(1)];
    assert.match(
      await first.innerText(),
      /\+<b>Water<\/b> the beans[\s\S]*"notes\.md" \(new\)[\s\S]*Expires in/,
    );
    assert.equal(await page.locator(".ask b").count(), 0);
    assert.deepEqual(await second.locator("button").allInnerTexts(), ["Approve once", "Deny"], "never remembered");
    await first.getByRole("button", { name: "Approve once" }).click();
    await page.getByText("1 call waits for your answer.").waitFor();
    // The next one has the focus
    await page.locator(":focus").filter({ hasText: /^Approve once$/ }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("No call waits for an answer.").waitFor();
    assert.deepEqual(gateway.answers, [
      { path: "/v1/approvals/apr_1", decision: "approve" },
      { path: "/v1/approvals/apr_2", decision: "deny" },
    ]);
    await until(async () => /Denied\s+shell[\s\S]*Approved\s+write_file/.test(await textOf("#approvals-recent")));
    await page.locator("#approvals-count").waitFor({ state: "hidden" });
  });

  test("where more calls wait than are shown, that is said", async () => {
    for (let number = 0; number < 101; number++) gateway.ask();
    await openPaired();
    await page.locator("#approvals-count").getByText("100+").waitFor();
    await page.click("nav a[href='#approvals']");
    await page.getByText("More than 100 calls wait for your answer. These are the newest").waitFor();
  });

  test("a reply of more marks than an element takes parts is shown to its end", async () => {
    await openPaired();
    await ask("many marks");
    await page.locator(".turns .prose").getByText("The end.").waitFor();
  });

  test("what cannot be seen is spelled out, a long input scrolls, and one that is cut says so", async () => {
    const hidden = "a\u202etxt.\u200bz\u2028b";
    gateway.ask({
      input: { path: hidden, content: "x\n".repeat(500) },
      reason: `Because ${hidden}`,
      files: [{ path: hidden, sha256: null }],
    });
    gateway.ask({ input: { content: "y".repeat(200_001) }, input_digest: "d".repeat(64) });
    await openPaired();
    await page.click("nav a[href='#approvals']");
    await page.getByText("2 calls wait for your answer.").waitFor();
    const [first, second] = [page.locator(".ask").nth(0), page.locator(".ask").nth(1)];
    const text = await first.innerText();
    assert.equal(text.match(/a\\u202etxt\.\\u200bz\\u2028b/g)?.length, 3, text.slice(0, 500));
    assert.doesNotMatch(text, /[\u202e\u200b\u2028]/);
    const isScrolled = await page.evaluate(
      "(({ scrollHeight, clientHeight, scrollWidth, clientWidth }) => scrollHeight > clientHeight || scrollWidth > clientWidth)" +
        "(document.querySelector('.ask pre'))",
    );
    assert.equal(isScrolled, true);
    assert.match(
      await second.locator("pre").innerText(),
      /\[cut: 200000 of 200\d{3} characters are shown; SHA-256 of the whole d{64}/,
    );
  });

  test("what a server asks is a form of plain text, which is sent once it fits", async () => {
    gateway.ask({
      kind: "elicitation",
      server: "crm",
      message: "Who <b>is</b> it?\u202e",
      url: null,
      schema: {
        type: "object",
        properties: {
          name: { type: "string", title: "<i>Name</i>", minLength: 2 },
          age: { type: "integer", minimum: 0, maximum: 150 },
          sure: { type: "boolean", default: true },
          colour: { type: "string", oneOf: [{ const: "", title: "None" }, { const: "g", title: "Green" }] },
          days: {
            type: "array",
            items: { anyOf: [{ const: "mo", title: "Monday" }, { const: "tu", title: "Tuesday" }] },
          },
        },
        required: ["name"],
      },
      offers: [],
      always_rule: null,
    });
    await openPaired();
    await page.click("nav a[href='#approvals']");
    const card = page.locator(".ask");
    await card.getByText("Who <b>is</b> it?\\u202e").waitFor();
    assert.equal(await card.locator("b, i").count(), 0);
    await card.getByRole("button", { name: "Send the answer" }).click();
    assert.equal(await card.locator("input:invalid").count(), 1, "the browser asks for the name first");
    assert.deepEqual(gateway.answers, []);
    await card.getByLabel("<i>Name</i>").fill("Ada");
    await card.getByLabel("age (optional)").fill("36");
    await card.getByLabel("colour (optional)").selectOption("Green");
    await card.getByLabel("Tuesday").check();
    await card.getByRole("button", { name: "Send the answer" }).click();
    await page.getByText("No call waits for an answer.").waitFor();
    const content = { name: "Ada", age: 36, sure: true, colour: "g", days: ["tu"] };
    assert.deepEqual(gateway.answers, [{ path: "/v1/approvals/apr_1", decision: "approve", content }]);
  });

  test("an address that a server wants opened is shown in full, and nothing opens it by itself", async () => {
    const url = `https://crm.example/sign?${"x".repeat(500)}`;
    gateway.ask({
      kind: "elicitation",
      server: "crm",
      message: "Sign in",
      schema: null,
      url,
      offers: [],
      always_rule: null,
    });
    await openPaired();
    await page.click("nav a[href='#approvals']");
    const card = page.locator(".ask");
    assert.equal(await card.locator(".ask-address").innerText(), url);
    const link = card.getByRole("link");
    assert.deepEqual([await link.getAttribute("href"), await link.getAttribute("rel")], [url, "noopener noreferrer"]);
    await card.getByRole("button", { name: "Tell the server that I agree" }).click();
    await page.getByText("No call waits for an answer.").waitFor();
    assert.deepEqual(gateway.answers, [{ path: "/v1/approvals/apr_1", decision: "approve" }]);
  });

  test("what is remembered is shown word for word first, listed, and revoked", async () => {
    gateway.ask();
    await openPaired();
    await page.click("nav a[href='#approvals']");
    await page.getByText("Approve and remember").click();
    const rule = 'Allow "write_file" in "/garden" with exactly the input {"path":"notes.md"}';
    await page.locator(".ask-always .ask-rule").getByText(rule).waitFor();
    assert.match(await textOf(".ask-offers"), /This tool in this folder, in this run\s+Allow .*"\/garden\/\\u202esrc"/);
    await page.getByRole("button", { name: "Store the rule and approve: This exact call, from now on" }).click();
    await page.locator("#approvals-rules").getByText(rule).waitFor();
    await page.getByRole("button", { name: `Revoke: ${rule}` }).click();
    await page.getByText("No answer is remembered.").waitFor();
    assert.deepEqual(gateway.answers, [
      { path: "/v1/approvals/apr_1", decision: "approve", remember: "always" },
      "/v1/approval-rules/rule_1",
    ]);
  });

  test("a chat asks in place; an answer that comes too late says so and can be given again", async () => {
    await openPaired();
    await ask("ask me");
    const card = page.locator(".turns .ask");
    await card.getByText("it can change files").waitFor();
    await card.getByText("Approve and remember").click();
    await card.getByRole("button", { name: "Store the rule and approve: This exact call, in this run" }).click();
    await card.getByRole("alert").filter({ hasText: "conflict" }).waitFor();
    gateway.ask();
    await Promise.all([
      page.waitForResponse(/\/v1\/approvals\/apr_1$/),
      card.getByRole("button", { name: "Approve once" }).click(),
    ]);
    gateway.release();
    await inTurns("That is all");
    assert.equal(await card.count(), 0);
    assert.deepEqual(gateway.answers.map((answer) => (answer as { remember?: string }).remember), ["run", undefined]);
  });

  test("an Enter of an input method sends nothing, in the form of Safari either", async () => {
    await openPaired();
    await page.fill("#message", "beans");
    const press = (init: string) =>
      page.evaluate(`document.getElementById("message").dispatchEvent(new KeyboardEvent("keydown", {
        key: "Enter", bubbles: true, cancelable: true, ${init} }))`);
    const [composing, safari, plain] = [
      await press("isComposing: true"),
      await press("keyCode: 229"),
      await press("keyCode: 13"),
    ];
    assert.deepEqual([composing, safari, plain], [true, true, false], "the page takes an Enter that it sends with");
    await inTurns("That is all");
  });

  test("the keyboard alone reaches and works everything, with the focus to be seen", async () => {
    await openPaired();
    await page.keyboard.type("beans");
    await page.keyboard.press("Enter");
    await inTurns("That is all");
    await page.reload();
    await page.waitForSelector("#message");
    await page.click("#new-chat");
    const seen: string[] = [];
    for (let i = 0; i < 24; i++) {
      await page.keyboard.press("Tab");
      const focused = await page.evaluate(
        "(({ activeElement: e }) => [e.id || e.textContent.trim(), e.matches(':focus-visible')])(document)",
      ) as [string, boolean]; // what the expression above gives
      if (focused[0] !== "") seen.push(focused[0]);
    }
    for (
      const stop of [
        ...["model", "new-chat", "send", "skip", "Chat", "Approvals", "Tools", "Memory", "Status", "Logs", "sign-out"],
        "What files are here?",
      ]
    ) {
      assert.ok(seen.includes(stop), `${stop} in ${seen}`);
    }
    assert.ok(!seen.includes("/help"), "a command of the offline assistant is no start with a real model");
    await page.focus("nav a[href='#status']");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Status" }).waitFor();
    await page.waitForSelector("#status-title:focus");
  });

  test("fits a narrow screen in every view, light and dark", async () => {
    await page.setViewportSize({ width: 340, height: 640 });
    gateway.ask({ input: { path: "x".repeat(300) }, always_rule: "y".repeat(300) });
    gateway.runs.add({ id: `run_${"x".repeat(60)}`, status: "needs_review", result: "y".repeat(300) });
    gateway.schedules.add("z".repeat(64), { prompt: "y".repeat(300), schedule: "x".repeat(200) });
    await openPaired();
    await ask(`beans ${"x".repeat(200)}`);
    await inTurns("That is all");
    const grounds = new Set<unknown>();
    for (const view of ["chat", "runs", "schedules", "approvals", "memory", "tools", "status", "logs"]) {
      await page.click("#menu");
      await page.click(`nav a[href='#${view}']`);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 340, view);
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"));
      }
    }
    assert.equal(grounds.size, 2);
  });
});

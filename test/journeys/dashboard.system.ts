import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_CHROMIUM, PATIENCE_MS } from "../support/chromium.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const FILES = { "garden.md": "# Garden\n\nWater the beans on Tuesday.\n", "notes/peas.md": "Peas climb.\n" };

describe("the dashboard of a running gateway", { skip: NO_CHROMIUM }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  interface Seen {
    /** Requests to anywhere but the gateway */
    readonly outside: string[];
    /** Console errors, uncaught exceptions and violations of the policy */
    readonly problems: string[];
    /** Types of the frames the socket got, in order */
    readonly frames: string[];
  }

  async function openPage(
    gateway: { readonly url: string },
    colorScheme: "light" | "dark",
  ): Promise<{ page: Page; seen: Seen }> {
    const page = await browser.newPage({ colorScheme });
    page.setDefaultTimeout(PATIENCE_MS);
    const seen: Seen = { outside: [], problems: [], frames: [] };
    page.on("request", (request) => {
      if (!request.url().startsWith(`${gateway.url}/`) && !request.url().startsWith("data:")) {
        seen.outside.push(request.url());
      }
    });
    page.on("pageerror", (error) => seen.problems.push(String(error)));
    page.on("console", (message) => void (message.type() === "error" && seen.problems.push(message.text())));
    page.on("websocket", (socket) => {
      if (!socket.url().startsWith(gateway.url.replace("http", "ws"))) seen.outside.push(socket.url());
      socket.on("framereceived", ({ payload }) => seen.frames.push(JSON.parse(String(payload)).type));
    });
    await page.goto(gateway.url);
    return { page, seen };
  }

  /** Pairs by the keyboard, with a fresh code. */
  async function pair(gateway: RunningGateway, page: Page): Promise<void> {
    const { code } = await gateway.services.pairing.createCode();
    await page.waitForSelector("#pair-code");
    await page.keyboard.type(code.toLowerCase());
    await page.keyboard.press("Enter");
    await page.waitForSelector("#nav");
  }

  /** Presses Tab until the element of this id, text or label has the focus. */
  async function tabTo(page: Page, wanted: string): Promise<void> {
    for (let presses = 0; presses < 150; presses++) {
      await page.keyboard.press("Tab");
      if (
        await page.evaluate(
          `(({ id, textContent, ariaLabel }) => [id, textContent, ariaLabel].includes(${
            JSON.stringify(wanted)
          }))(document.activeElement)`,
        )
      ) return;
    }
    assert.fail(`The Tab key does not lead to "${wanted}"`);
  }

  test("by keyboard alone: pair, ask, see tools at work and the reply stream, tools and status, light and dark", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ files: FILES });
      const { page, seen } = await openPage(gateway, "light");
      await pair(gateway, page);

      await page.keyboard.type("When are the beans watered?");
      await page.keyboard.press("Enter");
      await page.locator(".prose").getByText("Water the beans on Tuesday.").waitFor();
      await page.locator("#stop").waitFor({ state: "hidden" });
      const cards = await page.locator(".tool").evaluateAll((all) =>
        all.map((card) => card.getAttribute("data-state"))
      );
      assert.ok(cards.length >= 2 && cards.every((state) => state === "done"), `tool calls: ${cards}`);
      assert.ok(seen.frames.filter((type) => type === "text_delta").length > 3, "the reply came in pieces");
      assert.ok(seen.frames.indexOf("tool_start") < seen.frames.indexOf("text_delta"));
      assert.match(await page.locator(".reply").innerText(), /From "Garden", garden\.md:3/);

      await page.keyboard.type("/read_file garden.md");
      await page.keyboard.press("Enter");
      await page.locator(".reply").nth(1).locator("[data-state=done]").waitFor();

      await tabTo(page, "Tools");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Tools" }).waitFor();
      await page.locator("#tools-list").getByText("read_file", { exact: true }).waitFor();
      await tabTo(page, "Status");
      await page.keyboard.press("Enter");
      await page.getByText("The gateway is well.").waitFor();
      await page.locator("#routes").getByText("POST /pair").waitFor();
      await page.locator("#models").getByText("assistant").waitFor();
      assert.equal(await page.locator(".turn-foot").getByText("tokens").count(), 0, "bytes are no count of tokens");

      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        const luminance = await page.evaluate(
          "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]",
        );
        assert.equal(Number(luminance) > 128, colorScheme === "light");
      }
      assert.deepEqual({ outside: seen.outside, problems: seen.problems }, { outside: [], problems: [] });
      const [paired] = await gateway.services.tokens.list();
      assert.match(paired?.label ?? "", /^Chrome on /);
      assert.equal(paired?.idle_ttl_seconds, 30 * 24 * 60 * 60);
      await tabTo(page, "sign-out");
      await Promise.all([page.waitForResponse(/\/v1\/tokens\//), page.keyboard.press("Enter")]);
      await page.waitForSelector("#pair-code");
      assert.deepEqual(await gateway.services.tokens.list(), [], "signing out revokes the browser's token");
      // Requests that the page was just making carry the revoked token
      const others = seen.problems.filter((problem) => !problem.includes("the server responded with a status of 401"));
      assert.deepEqual({ outside: seen.outside, problems: others }, { outside: [], problems: [] });
      await page.close();
    }));

  test("by keyboard alone: a chat asks before it writes, and a call of a script waits in Approvals", () =>
    withWorld(async (world) => {
      const write = { path: "new.md", content: "hello" };
      const script = [{ toolCalls: [{ name: "write_file", arguments: write }] }, "It is written"];
      const config = { security: { write_file: { enabled: true } } };
      const gateway = await world.gateway({ script, config });
      const { page, seen } = await openPage(gateway, "light");
      await pair(gateway, page);
      await page.keyboard.type("Write it");
      await page.keyboard.press("Enter");
      await page.locator(".turns .ask").getByText("+hello").waitFor();
      await tabTo(page, "Approve once");
      await page.keyboard.press("Enter");
      await page.locator(".prose").getByText("It is written").waitFor();
      assert.equal(readFileSync(gateway.workspace.path("new.md"), "utf8"), "hello");

      const input = { ...write, overwrite: true };
      const call = () => gateway.call("/v1/tools/write_file/call", { body: { input } });
      assert.equal((await jsonOf(call())).is_error, true);
      await page.locator("#approvals-count").getByText("1").waitFor();
      await page.focus("nav a[href='#approvals']");
      await page.keyboard.press("Enter");
      // The chat's question may still be listed as the page saw it last
      await page.locator("#approvals-pending").getByText("overwrite: true").waitFor();
      await page.getByText("1 call waits for your answer.").waitFor();
      await tabTo(page, "Approve and remember");
      await page.keyboard.press("Enter");
      await tabTo(page, "Store the rule and approve: This exact call, from now on");
      await page.keyboard.press("Enter");
      await page.getByText("No call waits for an answer.").waitFor();
      assert.equal((await jsonOf(call())).is_error, false);
      assert.deepEqual({ outside: seen.outside, problems: seen.problems }, { outside: [], problems: [] });
      await page.close();
    }));

  test("an open gateway asks for no code; one without an agent says what is missing", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ config: { gateway: { require_pairing: false } }, agent: false });
      const { page, seen } = await openPage(gateway, "light");
      await page.waitForSelector("#message");
      await page.locator("#welcome").getByText("The gateway lists no model").waitFor();
      assert.deepEqual(seen, { outside: [], problems: [], frames: [] });
      await page.close();
    }));

  test("a run that waits is approved in its view, and shown to its end", () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({
        config: { security: { write_file: { enabled: true } } },
        script: [
          { toolCalls: [{ name: "write_file", arguments: { path: "beans.md", content: "Tuesday" } }] },
          "It is written.",
        ],
      });
      const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Note it" } }));
      const { page, seen } = await openPage(gateway, "light");
      await pair(gateway, page);
      await tabTo(page, "Runs");
      await page.keyboard.press("Enter");
      await page.locator("#runs-list").getByText("Waits for your approval").waitFor();
      await tabTo(page, `Note it ${id}`);
      await page.keyboard.press("Enter");
      await page.locator("#run").getByRole("button", { name: "Approve once" }).press("Enter");
      await page.locator("#run .prose").getByText("It is written.").waitFor();
      await page.locator("#run").getByText("Done", { exact: true }).waitFor();
      assert.equal(readFileSync(join(gateway.workspace.root, "beans.md"), "utf8"), "Tuesday");
      assert.deepEqual({ outside: seen.outside, problems: seen.problems }, { outside: [], problems: [] });
      await page.close();
    }));
});

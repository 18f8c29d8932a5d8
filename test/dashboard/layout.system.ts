import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { systemTools } from "../scripts/system_tools.ts";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS, pollOnce } from "../support/chromium.ts";
import { jsonOf } from "../support/json_of.ts";
import { samplePackage, sampleTool } from "../support/plugin_package.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";

const WORD = "a".repeat(4000);
const SENTENCE = `${"A long outcome of many words ".repeat(200)}${WORD}`;

describe("every view of the dashboard", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  type ContextOptions = Parameters<Browser["newContext"]>[0];

  async function withPage(
    gateway: RunningGateway,
    options: ContextOptions,
    use: (page: Page, context: BrowserContext) => Promise<void>,
  ): Promise<void> {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.clock.install();
    await page.goto(gateway.url);
    await page.fill("#pair-code", (await gateway.services.pairing.createCode()).code);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#sign-out");
    await use(page, context);
    await context.close();
  }

  const views = (page: Page): Promise<string[]> =>
    page.locator("#nav a").evaluateAll((links) => links.map((link) => link.getAttribute("href") ?? ""));

  /** Elements that are wider than the page, save those that scroll by themselves. */
  const tooWide = (page: Page) =>
    page.evaluate(`[...document.querySelectorAll("main *")]
      .filter((node) => node.getClientRects().length > 0 && !node.closest(".hidden, svg"))
      .filter((node) => {
        for (let at = node.parentElement; at; at = at.parentElement) {
          if (at.tagName !== "SECTION" && ["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)) return false;
        }
        return node.getBoundingClientRect().right > innerWidth + 1;
      })
      .map((node) => node.tagName + "." + node.className + "#" + node.id)`);
  const scrolls = (page: Page) =>
    page.evaluate(`[document.documentElement, ...document.querySelectorAll("main, main > section")]
      .some((node) => node.scrollWidth > node.clientWidth + 1)`);

  test("keeps within its width, whatever is in it, on a narrow screen too", () =>
    withRunningGateway({
      config: { security: { write_file: { enabled: true } }, gateway: { rate_limit_max: 0 } },
      script: (_request, turn) =>
        turn === 1
          ? { toolCalls: [{ name: "write_file", arguments: { path: `${WORD.slice(0, 200)}.md`, content: SENTENCE } }] }
          : {
            text:
              `# ${WORD}\n\n${SENTENCE}\n\n- ${WORD}\n\n| ${WORD} | b |\n|---|---|\n| 1 | ${WORD} |\n\n\`\`\`sh\n${WORD}\n\`\`\`\n\n> ${WORD}`,
          },
    }, async (gateway) => {
      const { services } = gateway;
      const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: SENTENCE, conversation_id: "long" } }));
      for await (const chunk of (await gateway.call(`/v1/runs/${id}/events`)).body ?? []) void chunk;
      // Approvals in both states: the first is answered, the second still waits
      await gateway.call("/v1/tools/write_file/call", { body: { input: { path: "x.md", content: SENTENCE } } });
      const [waiting] = (await jsonOf(gateway.call("/v1/approvals"))).data;
      await gateway.call(`/v1/approvals/${waiting.id}`, { body: { decision: "deny", note: SENTENCE.slice(0, 500) } });
      await gateway.call("/v1/tools/write_file/call", { body: { input: { path: "y.md", content: SENTENCE } } });
      await services.memory.store({ key: WORD.slice(0, 256), value: SENTENCE, tags: [WORD.slice(0, 64)] });
      const plugin = samplePackage({ description: SENTENCE.slice(0, 1000), tools: [sampleTool(WORD.slice(0, 64))] });
      await (await services.plugins()).plugins.install(plugin, { by: { via: "cli", tokenId: null } });
      services.log.warn(SENTENCE, { field: SENTENCE, [WORD.slice(0, 100)]: WORD });
      for (const viewport of [{ width: 1200, height: 800 }, { width: 360, height: 640 }]) {
        await withPage(gateway, { viewport }, async (page) => {
          for (const view of [...await views(page), `#runs/${id}`, "#chat/long"]) {
            await page.goto(`${gateway.url}/${view}`);
            await page.locator("main > section:not([hidden])").getByText(/\w/).first().waitFor();
            // The next poll at the latest shows what the view asks for
            for (let polls = 0; polls < 2; polls++) await pollOnce(page);
            assert.deepEqual(await tooWide(page), [], `${view} at ${viewport.width}`);
            assert.equal(await scrolls(page), false, `${view} at ${viewport.width}`);
          }
        });
      }
    }));

  test("shows every tab whole, with a number at one and with that of clusters: in the bar, or in its menu", () =>
    withRunningGateway(
      { script: [], config: { security: { write_file: { enabled: true } }, gateway: { rate_limit_max: 0 } } },
      async (gateway) => {
        await gateway.call("/v1/tools/write_file/call", { body: { input: { path: "y.md", content: "x" } } });
        await withPage(gateway, {}, async (page) => {
          await page.locator("#approvals-count").waitFor();
          for (const cluster of [false, true]) {
            if (cluster) await page.locator("#nav-cluster").evaluate((link) => link.toggleAttribute("hidden", false));
            for (const width of [1400, 1280, 1200, 1190, 1189, 1000, 768, 390, 340]) {
              await page.setViewportSize({ width, height: 640 });
              if (width < 1190) await page.locator("#menu").click();
              const cut = await page.evaluate(`(() => {
                const [bar, end] = [".bar", ".bar-end"].map((name) => document.querySelector(name).getBoundingClientRect());
                const links = [...document.querySelectorAll("#nav a:not([hidden])")];
                const hidden = links.filter((link) => {
                  const { left, right, top, bottom } = link.getBoundingClientRect();
                  return !link.checkVisibility() || left < 0 || right > innerWidth || top < 0 || bottom > innerHeight;
                });
                return [hidden.map((link) => link.textContent), Math.max(0, end.right - bar.right)];
              })()`);
              assert.deepEqual(cut, [[], 0], `${width} ${cluster}`);
              if (width < 1190) await page.keyboard.press("Escape");
            }
          }
        });
      },
    ));

  test("has nothing that axe-core finds against WCAG 2.2 A and AA, on a desktop page in the light and on a phone in the dark", async () => {
    const axe = readFileSync(join(await systemTools("tools"), "axe-core/axe.min.js"), "utf8");
    await withRunningGateway(
      { script: ["# Title\n\n```sh\nls\n```"], config: { security: { write_file: { enabled: true } } } },
      async (gateway) => {
        gateway.services.log.warn("A long line", { field: SENTENCE });
        const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi", conversation_id: "short" } }));
        for await (const chunk of (await gateway.call(`/v1/runs/${id}/events`)).body ?? []) void chunk;
        await gateway.call("/v1/tools/write_file/call", { body: { input: { path: "y.md", content: "x" } } });
        for (const [width, colorScheme] of [[1440, "light"], [390, "dark"]] as const) {
          const options = { viewport: { width, height: 800 }, colorScheme, reducedMotion: "reduce" } as const;
          await withPage(gateway, options, async (page) => {
            await page.evaluate(axe);
            for (const view of [...await views(page), `#runs/${id}`, "#chat/short"]) {
              await page.evaluate(`location.hash = ${JSON.stringify(view)}`);
              await page.locator(`section${view.split("/")[0]}`).getByText(/\w/).first().waitFor();
              await pollOnce(page);
              const found = await page.evaluate(`axe.run({
                runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"],
              }).then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].target.join(" ")]))`);
              assert.deepEqual(found, [], `${view} at ${width}`);
            }
          });
        }
      },
    );
  });

  test("leads to each view by a menu on a phone, which names the view that is shown, by keyboard", () =>
    withRunningGateway(
      { script: [] },
      (gateway) =>
        withPage(gateway, { viewport: { width: 390, height: 844 } }, async (page) => {
          const menu = page.locator("#menu");
          const focused = () => page.evaluate("document.activeElement.id || document.activeElement.hash");
          const isOpen = async () => [await menu.getAttribute("aria-expanded"), await page.locator("#nav").isVisible()];
          const named = () => page.locator("#menu-view").innerText();
          assert.deepEqual([await named(), await isOpen()], ["Chat", ["false", false]]);
          await menu.focus();
          await page.keyboard.press("Enter");
          await page.locator("#menu[aria-expanded=true]").waitFor();
          await page.keyboard.press("Tab");
          assert.equal(await focused(), "#chat", "the menu comes right after its button");
          await page.keyboard.press("Escape");
          await page.locator("#menu[aria-expanded=false]").waitFor();
          assert.deepEqual([await isOpen(), await focused()], [["false", false], "menu"]);
          for (const view of (await views(page)).filter((each) => each !== "#cluster")) {
            await menu.press("Enter");
            await page.locator(`#nav a[href='${view}']`).press("Enter");
            await page.locator(`section${view}`).waitFor();
            await page.locator("#menu[aria-expanded=false]").waitFor();
            assert.equal((await named()).toLowerCase(), view.slice(1));
            assert.equal(await page.locator("#nav [aria-current]").getAttribute("href"), view);
            assert.equal(await focused(), view === "#chat" ? "message" : `${view.slice(1)}-title`);
          }
        }),
    ));

  test("leaves the last line and whatever has the focus clear of the composer, which may grow as a keyboard comes up", () =>
    withRunningGateway(
      { script: [{ text: "Many words of a reply. ".repeat(200) }] },
      (gateway) =>
        withPage(gateway, { viewport: { width: 390, height: 844 } }, async (page) => {
          /** Points from the lower edge of an element to the composer */
          const room = (selector: string) =>
            page.evaluate(`document.querySelector("#composer").getBoundingClientRect().top -
            document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect().bottom`) as Promise<number>; // what the expression gives
          const frame = () => page.evaluate("new Promise((seen) => requestAnimationFrame(() => setTimeout(seen)))");
          await page.fill("#message", "Tell me");
          await page.keyboard.press("Enter");
          await page.locator(".turn-foot a").waitFor();
          const isClear = async (what: string) => {
            await page.clock.runFor(100);
            await frame();
            assert.ok(await room(".turn-foot") >= 0, `${what}: ${await room(".turn-foot")}`);
          };
          await isClear("at the end of a reply");
          await page.fill("#message", "line\n".repeat(7));
          await isClear("with a long message");
          await page.setViewportSize({ width: 390, height: 460 });
          await isClear("above a keyboard");
          await page.locator("#conversation").evaluate((place) => place.scrollTo(0, 0));
          await page.locator(".turn-foot a").focus();
          await isClear("with the focus");
        }),
    ));

  test("asks only for what it shows", () =>
    withRunningGateway(
      { script: [], config: { gateway: { rate_limit_max: 0 } } },
      (gateway) =>
        withPage(gateway, {}, async (page) => {
          // Paths that each view asks for again and again, beside the health and the approvals that wait, which the bar shows
          const polled: Readonly<Record<string, readonly string[]>> = {
            "#chat": ["/v1/status"],
            "#status": ["/metrics", "/v1/status"],
            "#runs": ["/v1/runs"],
            "#approvals": [],
            "#logs": ["/v1/logs"],
          };
          const asked: string[] = [];
          page.on("request", (request) => void asked.push(request.url()));
          for (const view of await views(page)) {
            await page.goto(`${gateway.url}/${view}`);
            await page.locator(`section${view}`).waitFor();
            asked.length = 0;
            for (let polls = 0; polls < 5; polls++) await pollOnce(page);
            // More often than when a view is opened, and the one before it is polled for the last time
            const paths = asked.map((url) => new URL(url).pathname);
            const often = new Set(paths.filter((path) => paths.filter((other) => other === path).length >= 3));
            assert.deepEqual([...often].sort(), ["/health", "/v1/approvals", ...polled[view] ?? []].sort(), view);
          }
        }),
    ));

  test("shows times in the reader's zone, and names it", () =>
    withRunningGateway({ script: () => "ok" }, async (gateway) => {
      await (await gateway.call("/v1/chat/completions", { body: { messages: [{ role: "user", content: "Hi" }] } }))
        .text();
      const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
      for (const [timezoneId, zone] of [["Asia/Tokyo", "GMT+9"], ["Pacific/Honolulu", "HST"]] as const) {
        await withPage(gateway, { timezoneId, locale: "en-US" }, async (page) => {
          await page.goto(`${gateway.url}/#runs`);
          const row = page.locator("#runs-list li").filter({ hasText: id });
          await row.waitFor();
          assert.ok((await row.innerText()).includes(zone), await row.innerText());
        });
      }
    }));
});

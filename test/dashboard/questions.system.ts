import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { until, withWorld } from "../support/world.ts";
import { withView } from "./with_view.ts";

const HOSTILE = '<img src=x onerror="alert(1)">\u202e\nFile "safe.md": new, +1 -0 lines\n';
const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "plan.md", content: HOSTILE } }] } as const;

test(
  "a question shows on every screen what changes and who asks, takes another input, and reads denied by you",
  { skip: NO_PAGE_TEST },
  () =>
    withWorld(async (world) => {
      const browser = await launchPageBrowser();
      try {
        for (const width of [1440, 390]) {
          const gateway = await world.gateway({
            script: [WRITE, "Written", WRITE, "Left"],
            config: { security: { write_file: { enabled: true } } },
          });
          await gateway.call("/v1/runs", { body: { message: "Make a plan", conversation_id: "new", durable: true } });
          await withView(browser, { gateway, view: "approvals" }, async ({ page }) => {
            await page.setViewportSize({ width, height: 800 });
            await page.goto(`${gateway.url}/#approvals`);
            const card = page.locator(".ask");
            await card.getByText("The agent wants to create plan.md").waitFor();
            await card.getByText("Message: Make a plan").waitFor();
            await card.getByRole("link", { name: "Open the conversation" }).waitFor();
            assert.match(
              await card.getByRole("link", { name: "Open the run" }).getAttribute("href") ?? "",
              /^#runs\/run_/,
            );
            const added = await card.locator(".ask-added").allInnerTexts();
            assert.deepEqual(added, ['+<img src=x onerror="alert(1)">\\u202e', '+File "safe.md": new, +1 -0 lines']);
            assert.equal(await card.locator("img").count(), 0);
            const isWide = await page.evaluate<boolean>("document.documentElement.scrollWidth > innerWidth");
            assert.equal(isWide, false, `nothing is beside the page at ${width} px`);
            await card.getByText("Change it, then approve").click();
            const area = card.getByRole("textbox", { name: "Input as JSON" });
            assert.match(await area.inputValue(), /\\u202e/);
            await area.fill("{");
            await card.getByRole("button", { name: "Approve with this input" }).click();
            await card.getByText("The input is not JSON").waitFor();
            await area.fill(JSON.stringify({ path: "plan.md", content: "Beans\n" }));
            await card.getByRole("button", { name: "Approve with this input" }).click();
            await page.getByText("No call waits for an answer.").waitFor();
            const plan = gateway.workspace.path("plan.md");
            await until(() => gateway.provider.requests.length === 2, "the run goes on");
            assert.equal(readFileSync(plan, "utf8"), "Beans\n");

            await page.goto(`${gateway.url}/#chat`);
            await page.fill("#message", "Once more");
            await page.keyboard.press("Enter");
            const asked = page.locator(".reply .ask");
            // The file is there by now, and the call does not say that it may be replaced
            await asked.locator(".ask-notice").getByText("As things stand the call would fail").waitFor();
            await asked.getByRole("button", { name: "Deny" }).click();
            await page.locator(".tool-state").getByText("denied by you").waitFor();
          });
        }
      } finally {
        await browser.close();
      }
    }),
);

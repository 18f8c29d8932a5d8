import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { fetchSites } from "../support/fetch_bench.ts";
import { newApproval } from "../support/new_approval.ts";
import { withRunningGateway } from "../support/running_gateway.ts";
import { until } from "../support/until.ts";
import { withView } from "./with_view.ts";

const { site } = fetchSites();
const START = "https://postern.example";
const WRITE = { path: "plan.md", content: `# Plan\n\n${"Water the plants. ".repeat(30)}\n<script>alert(1)</script>\n` };

test(
  "a person away hears of a question, opens its link on a phone, and allows the call once",
  { skip: NO_PAGE_TEST },
  async () => {
    const hook = await site((_request, response) => response.end());
    const config = {
      gateway: { public_url: START, answer_links: true },
      security: { write_file: { enabled: true } },
      notify: [{
        ...{ name: "phone", kind: "webhook", url: hook.origin, secret_env: "HOOK_SECRET", window_secs: 0 },
        events: ["approval_waiting", "run_ended"],
      }],
    };
    const script = [{ toolCalls: [{ name: "write_file", arguments: WRITE }] }, "The plan is written"];
    await withRunningGateway({ config, script, environment: { HOOK_SECRET: "secret" } }, async (gateway) => {
      const browser = await launchPageBrowser();
      try {
        const page = await browser.newPage();
        page.setDefaultTimeout(PATIENCE_MS);
        const problems: string[] = [];
        page.on("console", (message) => problems.push(message.text()));
        assert.equal((await gateway.call("/v1/runs", { body: { message: "Write a plan" } })).status, 202);
        await until(() => hook.seen.length === 1 && hook.seen[0]?.body !== "");
        const { title, answer_url: link } = JSON.parse(hook.seen[0]?.body ?? "{}");
        assert.match(title, /^The agent wants to create \S+$/);
        const address = link.replace(START, gateway.url);
        for (const width of [1440, 390]) {
          await page.setViewportSize({ width, height: 800 });
          await page.goto(`${address}#allow`);
          assert.ok(
            await page.evaluate("document.documentElement.scrollWidth <= innerWidth"),
            "nothing is beside the page",
          );
          const folder = process.env["ANSWER_PICTURES"];
          if (folder !== undefined) {
            await page.screenshot({ path: join(folder, `answer_${width}.png`), fullPage: true });
          }
        }
        await page.getByRole("button", { name: "Allow once" }).click();
        await page.getByText("Answered: yes, this once.").waitFor();
        await until(() => hook.seen.length === 2);
        assert.equal(readFileSync(join(gateway.workspace.root, "plan.md"), "utf8"), WRITE.content);
        await page.goto(address);
        await page.getByText("This was allowed already, with this link, which counts once").waitFor();
        // Chromium says so of the status of the page
        assert.deepEqual(problems.filter((text) => !/status of 410/.test(text)), []);
      } finally {
        await browser.close();
      }
    });
  },
);

test(
  "a hidden dashboard tells of approvals through the browser, and shows their number",
  { skip: NO_PAGE_TEST },
  () =>
    withRunningGateway({ config: { provider: { kind: "offline" } } }, async (gateway) => {
      const browser = await launchPageBrowser();
      try {
        await withView(browser, { gateway, view: "approvals" }, async ({ page }) => {
          await page.addInitScript(`
          globalThis.told = [];
          globalThis.Notification = class {
            static permission = "default";
            static requestPermission() {
              this.permission = "granted";
              return Promise.resolve("granted");
            }
            constructor(title, { body }) {
              told.push(body);
            }
          };
        `);
          await page.reload();
          await page.getByRole("button", { name: "Notify me in this browser" }).click();
          await page.locator("#notify-me").waitFor({ state: "hidden" });
          await gateway.services.approvals.ask(newApproval());
          await until(async () => await page.title() === "(1) Approvals - Postern");
          assert.deepEqual(await page.evaluate("told"), [], "somebody looks at it");
          await page.evaluate('Object.defineProperty(document, "hidden", { value: true, configurable: true })');
          await gateway.services.approvals.ask(newApproval({ callId: "call_2" }));
          await until(async () => await page.title() === "(2) Approvals - Postern");
          assert.deepEqual(await page.evaluate("told"), ["The agent wants to run ls"]);
        });
      } finally {
        await browser.close();
      }
    }),
);

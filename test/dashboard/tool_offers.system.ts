import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { launchPageBrowser, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { configOf, withRunningGateway } from "../support/running_gateway.ts";

const CONFIG = { provider: { kind: "offline" }, autonomy: { level: "full" } };
const WRITE = '/write_file {"path":"plan.md","content":"Sow beans"}';

test(
  "one click turns a tool on, beside the call that missed it and in the list of tools",
  { skip: NO_PAGE_TEST },
  () => {
    const written: string[] = [];
    const security = { write_file: { enabled: false }, enable_git: false };
    const configWriter = {
      set(key: string) {
        written.push(key);
        if (key === "security.write_file.enabled") security.write_file.enabled = true;
        else security.enable_git = true;
        return Promise.resolve(configOf({ ...CONFIG, security }));
      },
    };
    return withRunningGateway({ config: CONFIG, configWriter }, async ({ url, services, workspace }) => {
      const browser = await launchPageBrowser();
      try {
        const page = await browser.newPage();
        page.setDefaultTimeout(PATIENCE_MS);
        await page.goto(url);
        await page.fill("#pair-code", (await services.pairing.createCode()).code);
        await page.keyboard.press("Enter");
        const ask = async (text: string) => {
          await page.fill("#message", text);
          await page.keyboard.press("Enter");
        };
        await ask(WRITE);
        const offer = page.locator(".reply .tool-offer");
        await offer.getByText("sets security.write_file.enabled = true").waitFor();
        await page.waitForSelector("#send");
        assert.deepEqual(written, [], "nothing is granted unasked");
        await offer.getByRole("button", { name: "Turn on write_file" }).click();
        await offer.getByText("write_file is on from your next message.").waitFor();
        assert.equal(existsSync(workspace.path("plan.md")), false);
        await ask(WRITE);
        await page.locator(".reply .tool[data-state=done]").waitFor();
        assert.equal(readFileSync(workspace.path("plan.md"), "utf8"), "Sow beans");
        assert.equal(await offer.count(), 1, "a tool that is on is not offered");

        await page.goto(`${url}/#tools`);
        await page.getByRole("button", { name: "Turn on git_operations" }).waitFor();
        await page.getByRole("button", { name: "Turn on git_operations" }).click();
        await page.locator("#tools-lead").getByText("git_operations is on from the next message.").waitFor();
        assert.deepEqual(written, ["security.write_file.enabled", "security.enable_git"]);
      } finally {
        await browser.close();
      }
    });
  },
);

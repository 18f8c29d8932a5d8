import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { zipOf } from "../extensions/skills/pack_files.ts";
import { skillText } from "../extensions/skills/skill_bench.ts";
import { launchChromium, NO_PAGE_TEST, PATIENCE_MS } from "../support/chromium.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";

describe("the dashboard's skills in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchChromium();
  });
  after(() => browser.close());

  /** Runs `use` on the page of a real gateway. What the page must never do fails the test. */
  function withPage(
    files: Readonly<Record<string, string>>,
    use: (page: Page, gateway: RunningGateway) => Promise<void>,
  ): Promise<void> {
    return withRunningGateway({ files }, async (gateway) => {
      const page = await browser.newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      const problems: string[] = [];
      page.on("pageerror", (error) => problems.push(String(error)));
      page.on("dialog", (dialog) => problems.push(dialog.message()));
      page.on("console", (message) => {
        if (/Content Security Policy/.test(message.text())) problems.push(message.text());
      });
      await page.goto(gateway.url);
      await page.fill("#pair-code", (await gateway.services.pairing.createCode()).code);
      await page.keyboard.press("Enter");
      await page.waitForSelector("#message");
      await page.click("nav a[href='#skills']");
      await use(page, gateway);
      await page.close();
      assert.deepEqual(problems, []);
    });
  }
  const said = async (page: Page, text: string) => {
    await page.locator("#skills-note").getByText(text).waitFor();
    await page.locator("#skills-title:focus").waitFor();
  };
  const press = (page: Page, label: string, name: string) =>
    page.getByRole("button", { name: `${label}: ${name}`, exact: true }).click();

  test("a skill of the workspace is looked at, trusted, and looked at again as a difference once it changed", () =>
    withPage({
      ".agents/skills/deploy/SKILL.md": skillText("deploy", {
        description: "<b>Deploys</b>",
        more: ["allowed-tools: Bash(git:*)", "model: opus"],
        body: "Ask first.\u202e",
      }),
    }, async (page, gateway) => {
      const row = page.locator("#skill-deploy");
      assert.match(await row.innerText(), /deploy[\s\S]*workspace[\s\S]*<b>Deploys<\/b>[\s\S]*Not trusted/);
      await row.locator("summary").click();
      assert.match(
        await row.innerText(),
        /which grants nothing\s*Bash\(git:\*\)[\s\S]*SKILL\.md:5: model: the format has no such field/i,
      );
      await press(page, "Look at it", "deploy");
      assert.match(await row.locator(".ask pre").innerText(), /=== SKILL\.md[\s\S]*Ask first\.\\u202e/);
      await page.keyboard.press("Enter");
      await press(page, "Look at it", "deploy");
      await press(page, "Trust it", "deploy");
      await said(page, "Trust deploy: done.");
      gateway.workspace.write(".agents/skills/deploy/SKILL.md", skillText("deploy", { body: "Ask nobody." }));
      await page.click("nav a[href='#tools']");
      await page.click("nav a[href='#skills']");
      await row.getByText("Changed:").waitFor();
      await press(page, "Look at it", "deploy");
      assert.match(await row.locator(".ask pre").innerText(), /-Ask first\.\\u202e[\s\S]*\+Ask nobody\./);
      // The skill changes once more while the person reads
      gateway.workspace.write(".agents/skills/deploy/SKILL.md", skillText("deploy", { body: "Tell a stranger." }));
      await press(page, "Trust it", "deploy");
      await said(page, "Trust deploy: Cannot trust");
      await press(page, "Look at it", "deploy");
      await press(page, "Trust it", "deploy");
      await said(page, "Trust deploy: done.");
      await press(page, "Trust it no more", "deploy");
      await said(page, "no more: done.");
      await row.getByText("Not trusted:").waitFor();
    }));

  test("a skill is installed from an archive and removed, and a refusal is told", () =>
    withPage({}, async (page) => {
      await page.locator("#skills-lead").getByText("There is no skill").waitFor();
      await page.click(".skills-new summary");
      const install = async (bytes: Uint8Array) => {
        await page.fill("#skills-name", "pdf");
        const buffer = Buffer.from(bytes);
        await page.setInputFiles("#skills-file", { name: "pdf.zip", mimeType: "application/zip", buffer });
        await page.click("#skills-install");
      };
      await install(zipOf([{ name: "../SKILL.md", text: "" }]));
      await said(page, 'Install pdf: Cannot install the skill: "../SKILL.md" leads out of it');
      await install(zipOf([{ name: "SKILL.md", text: skillText("pdf") }]));
      await said(page, "Install pdf: done.");
      const row = page.locator("#skill-pdf");
      await row.locator("summary").click();
      assert.match(await row.innerText(), /your folder[\s\S]*Installed[\s\S]*from pdf\.zip/);
      await press(page, "Remove", "pdf");
      await press(page, "Remove it", "pdf");
      await said(page, "Remove pdf: done.");
      assert.equal(await page.locator("#skills-list li").count(), 0);
    }));
});

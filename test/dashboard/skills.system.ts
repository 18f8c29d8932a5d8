import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { zipOf } from "../extensions/skills/pack_files.ts";
import { skillText } from "../extensions/skills/skill_bench.ts";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { type OpenedView, withView } from "./with_view.ts";

describe("the dashboard's skills in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  /** Runs `use` on the skills of a real gateway. */
  function withSkills(
    files: Readonly<Record<string, string>>,
    use: (opened: OpenedView, gateway: RunningGateway) => Promise<void>,
  ): Promise<void> {
    return withRunningGateway(
      { files },
      (gateway) => withView(browser, { gateway, view: "skills" }, (opened) => use(opened, gateway)),
    );
  }

  test("a skill of the workspace is looked at, trusted, and looked at again as a difference once it changed", () =>
    withSkills({
      ".agents/skills/deploy/SKILL.md": skillText("deploy", {
        description: "<b>Deploys</b>",
        more: ["allowed-tools: Bash(git:*)", "model: opus"],
        body: "Ask first.\u202e",
      }),
    }, async ({ page, press, said }, gateway) => {
      const row = page.locator("#skill-deploy");
      assert.match(await row.innerText(), /deploy[\s\S]*workspace[\s\S]*<b>Deploys<\/b>[\s\S]*Not trusted/);
      await row.locator("summary").click();
      assert.match(
        await row.innerText(),
        /which grants nothing\s*Bash\(git:\*\)[\s\S]*SKILL\.md:5: model: the format has no such field/i,
      );
      await press("Look at it", "deploy");
      assert.match(await row.locator(".ask pre").innerText(), /=== SKILL\.md[\s\S]*Ask first\.\\u202e/);
      await page.keyboard.press("Enter");
      await press("Look at it", "deploy");
      await press("Trust it", "deploy");
      await said("Trust deploy: done.");
      gateway.workspace.write(".agents/skills/deploy/SKILL.md", skillText("deploy", { body: "Ask nobody." }));
      await page.click("nav a[href='#tools']");
      await page.click("nav a[href='#skills']");
      await row.getByText("Changed:").waitFor();
      await press("Look at it", "deploy");
      assert.match(await row.locator(".ask pre").innerText(), /-Ask first\.\\u202e[\s\S]*\+Ask nobody\./);
      // The skill changes once more while the person reads
      gateway.workspace.write(".agents/skills/deploy/SKILL.md", skillText("deploy", { body: "Tell a stranger." }));
      await press("Trust it", "deploy");
      await said("Trust deploy: Cannot trust");
      await press("Look at it", "deploy");
      await press("Trust it", "deploy");
      await said("Trust deploy: done.");
      await press("Stop trusting", "deploy");
      await said("Stop trusting deploy: done.");
      await row.getByText("Not trusted:").waitFor();
    }));

  test("a skill is installed from an archive and removed, and a refusal is told", () =>
    withSkills({}, async ({ page, press, said }) => {
      await page.locator("#skills-lead").getByText("There is no skill").waitFor();
      await page.click(".skills-new summary");
      const install = async (bytes: Uint8Array) => {
        await page.fill("#skills-name", "pdf");
        const buffer = Buffer.from(bytes);
        await page.setInputFiles("#skills-file", { name: "pdf.zip", mimeType: "application/zip", buffer });
        await page.click("#skills-install");
      };
      await install(zipOf([{ name: "../SKILL.md", text: "" }]));
      await said('Install pdf: Cannot install the skill: "../SKILL.md" leads out of it');
      await install(zipOf([{ name: "SKILL.md", text: skillText("pdf") }]));
      await said("Install pdf: done.");
      const row = page.locator("#skill-pdf");
      await row.locator("summary").click();
      assert.match(await row.innerText(), /your folder[\s\S]*Installed[\s\S]*from pdf\.zip/);
      await press("Remove", "pdf");
      await press("Remove it", "pdf");
      await said("Remove pdf: done.");
      assert.equal(await page.locator("#skills-list li").count(), 0);
    }));
});

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { type SampleManifest, samplePackage, sampleTool, tarOf } from "../support/plugin_package.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { type OpenedView, withView } from "./with_view.ts";

const BY = { via: "cli", tokenId: null } as const;
const PROCESS = { kind: "process", wasm: undefined, process: { command: "sh", args: ["none.sh"] } };
const packageOf = (fields: SampleManifest) => samplePackage({ ...PROCESS, ...fields });

describe("the dashboard's plugins in Chromium", { skip: NO_PAGE_TEST }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchPageBrowser();
  });
  after(() => browser.close());

  /** Runs `use` on the plugins of a real gateway. */
  function withPlugins(use: (opened: OpenedView, gateway: RunningGateway) => Promise<void>): Promise<void> {
    return withRunningGateway(
      { config: { plugins: { allow_process: true } } },
      (gateway) => withView(browser, { gateway, view: "plugins" }, (opened) => use(opened, gateway)),
    );
  }
  const upload = (page: Page, name: string, bytes: Uint8Array) =>
    page.setInputFiles("#plugins-file", { name, mimeType: "application/x-tar", buffer: Buffer.from(bytes) });

  test("a package is installed from a file, shown, enabled after a question, disabled and removed", () =>
    withPlugins(async ({ page, press, said }, { services }) => {
      await page.locator("#plugins-lead").getByText("There is no plugin").waitFor();
      const { plugins } = await services.plugins();
      await upload(page, "evil.tar", tarOf([{ name: "../evil" }]));
      await said('Install evil.tar: Cannot use the package: "../evil"');
      await upload(
        page,
        "words.tar",
        packageOf({ description: "<b>Counts</b>", capabilities: { workspace: "read" } }),
      );
      await said("Install words.tar: done.");
      const row = page.locator("#plugin-words");
      assert.match(await row.innerText(), /words 1\.0\.0[\s\S]*process[\s\S]*<b>Counts<\/b>[\s\S]*it is off/);
      await row.locator("summary").click();
      assert.match(await row.innerText(), /reads the workspace \(not granted\)[\s\S]*count_words: Counts the words/);
      await press("Enable", "words");
      assert.match(
        await row.locator(".ask").innerText(),
        /program on this machine[\s\S]*Enabling grants\s*reads the workspace/,
      );
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Enable: words", exact: true }).waitFor();
      assert.equal(plugins.get("words")?.state, "installed", "Enter on the question cancels");
      await press("Enable", "words");
      await press("Enable it", "words");
      await said("Enable words: done.");
      assert.equal(plugins.get("words")?.on, true);
      assert.match(await row.innerText(), /reads the workspace \(granted\)/);
      await press("Disable", "words");
      await said("Disable words: done.");
      await press("Remove", "words");
      await press("Remove it", "words");
      await said("Remove words: done.");
      assert.deepEqual(plugins.list(), []);
    }));

  test("a new version shows what it asks for beyond the old one, and content that changed meanwhile is refused", () =>
    withPlugins(async ({ page, press, said }, { services, workspace }) => {
      const { plugins } = await services.plugins();
      const { digest } = await plugins.install(packageOf({ capabilities: { hosts: ["a.example"] } }), { by: BY });
      await plugins.enable("words", { by: BY, digest: digest ?? "" });
      const context = {
        workspace_root: workspace.root,
        allow_sensitive_file_reads: false,
        allow_sensitive_file_writes: false,
      };
      const call = { tool: "count_words", input: {}, context };
      await assert.rejects(plugins.call("words", call, new AbortController().signal));
      await page.reload();
      const row = page.locator("#plugin-words");
      await row.locator("summary").click();
      assert.match(await row.innerText(), /Last error[\s\S]*Cannot call plugin "words"/);
      const more = { hosts: ["a.example", "b.example"] };
      await plugins.install(packageOf({ version: "2.0.0", capabilities: more }), { by: BY });
      await page.reload();
      await row.locator("summary").click();
      await press("Enable", "words");
      assert.match(
        await row.locator(".ask").innerText(),
        /Enabling grants\s*reaches the host b\.example\s*Granted before\s*reaches the host a\.example/,
      );
      await plugins.install(packageOf({ version: "2.0.1", capabilities: more, tools: [sampleTool("other")] }), {
        by: BY,
      });
      await press("Enable it", "words");
      await said('Enable words: Cannot enable "words" with the digest');
      assert.equal(plugins.get("words")?.state, "installed");
    }));
});

/**
 * Makes the README's picture of the dashboard, docs/dashboard.png: `node scripts/screenshot.ts`.
 *
 * A gateway asks before a model, which follows a script, changes a small folder. Needs a Chromium, named by `CHROMIUM` or installed.
 */
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { launchChromium } from "../test/support/chromium.ts";
import { withRunningGateway } from "../test/support/running_gateway.ts";
import { shrinkPng } from "./shrink_png.ts";

const PICTURE = join(import.meta.dirname, "../docs/dashboard.png");
const MAX_BYTES = 60_000;
const SIZE = { width: 1180, height: 900 };
const FILES = { "inbox.md": "# Inbox\n\n- Sow the beans after 15 May\n- Peas want no water in May\n" };
const QUESTION = "Make a note of what my inbox says about May";
const NOTE = "Sow the beans after the 15th. No water for the peas.";
const SCRIPT = [
  { toolCalls: [{ name: "read_file", arguments: { path: "inbox.md" } }] },
  { toolCalls: [{ name: "write_file", arguments: { path: "may.md", content: NOTE } }] },
];
const CONFIG = { security: { write_file: { enabled: true } } };

await withRunningGateway({ files: FILES, script: SCRIPT, config: CONFIG }, async (gateway) => {
  const browser = await launchChromium();
  try {
    const page = await browser.newPage({ viewport: SIZE, colorScheme: "light", reducedMotion: "reduce" });
    await page.goto(gateway.url);
    await page.fill("#pair-code", (await gateway.services.pairing.createCode()).code);
    await page.keyboard.press("Enter");
    await page.fill("#message", QUESTION);
    await page.keyboard.press("Enter");
    await page.getByText("Approve once").waitFor();
    // The folder of a test has a name of chance
    await page.locator(".hint", { hasText: gateway.workspace.root }).evaluate((line) => {
      line.textContent = "write_file (write) in /home/ada/notes";
    });
    writeFileSync(PICTURE, shrinkPng(await page.screenshot()));
  } finally {
    await browser.close();
  }
});
const { size } = statSync(PICTURE);
console.log(`${PICTURE}: ${size} bytes`);
if (size > MAX_BYTES) throw new Error(`The picture has ${size} bytes, more than the ${MAX_BYTES} it may have`);

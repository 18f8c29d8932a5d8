/**
 * Makes the README's picture of the dashboard, docs/dashboard.png: `node scripts/screenshot.ts`.
 *
 * A gateway with the offline assistant answers a question about a small folder. Needs a Chromium, named by `CHROMIUM` or installed.
 */
import { statSync } from "node:fs";
import { join } from "node:path";
import { launchChromium } from "../test/support/chromium.ts";
import { withRunningGateway } from "../test/support/running_gateway.ts";

const PICTURE = join(import.meta.dirname, "../docs/dashboard.png");
const MAX_BYTES = 200_000;
const SIZE = { width: 1180, height: 760 };
const FILES = {
  "README.md": "# Garden\n\n## Watering\n\nThe beans need water on Tuesday and Friday. The peas need none in May.\n",
  "notes/beans.md": "# Beans\n\n## Sowing\n\nSow the beans after 15 May, 5 cm deep, in rows of 40 cm.\n",
};
const QUESTION = "When do I sow the beans?";

await withRunningGateway({ files: FILES }, async (gateway) => {
  const browser = await launchChromium();
  try {
    const page = await browser.newPage({ viewport: SIZE, colorScheme: "light", reducedMotion: "reduce" });
    await page.goto(gateway.url);
    await page.fill("#pair-code", (await gateway.services.pairing.createCode()).code);
    await page.keyboard.press("Enter");
    await page.fill("#message", QUESTION);
    await page.keyboard.press("Enter");
    await page.locator(".reply").getByText("These are quotations").waitFor();
    await page.waitForSelector("#send");
    await page.screenshot({ path: PICTURE });
  } finally {
    await browser.close();
  }
});
const { size } = statSync(PICTURE);
console.log(`${PICTURE}: ${size} bytes`);
if (size > MAX_BYTES) throw new Error(`The picture has ${size} bytes, more than the ${MAX_BYTES} it may have`);

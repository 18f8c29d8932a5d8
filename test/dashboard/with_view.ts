import assert from "node:assert/strict";
import type { Browser, Page } from "playwright-core";
import { PATIENCE_MS } from "../support/chromium.ts";
import type { RunningGateway } from "../support/running_gateway.ts";

/** View of the dashboard on the page of a real gateway, as a signed-in person sees it. */
export interface OpenedView {
  readonly page: Page;
  /** Presses the button of an extension, a skill for example. */
  press(label: string, name: string): Promise<void>;
  /** Waits until the note of the view says the text and its title has the focus. */
  said(text: string): Promise<void>;
}

/** Runs `use` on a view of the dashboard. What the page must never do fails the test: an error, a dialog, a breach of its policy. */
export async function withView(
  browser: Browser,
  { gateway, view }: { readonly gateway: RunningGateway; readonly view: string },
  use: (opened: OpenedView) => Promise<void>,
): Promise<void> {
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
  await page.click(`nav a[href='#${view}']`);
  await use({
    page,
    press: (label, name) => page.getByRole("button", { name: `${label}: ${name}`, exact: true }).click(),
    async said(text) {
      await page.locator(`#${view}-note`).getByText(text).waitFor();
      await page.locator(`#${view}-title:focus`).waitFor();
    },
  });
  await page.close();
  assert.deepEqual(problems, []);
}

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { systemTools } from "../scripts/system_tools.ts";
import { launchPageBrowser, NO_PAGE_TEST } from "../support/chromium.ts";
import { jsonOf } from "../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { withView } from "./with_view.ts";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** A file as the page gets it, with its bytes in base64. */
interface Given {
  readonly name: string;
  readonly data: string;
}

const text = (name: string, content: string): Given => ({ name, data: Buffer.from(content).toString("base64") });

/** Lets a person drop or paste files, as the browser tells of it. */
async function give(page: Page, how: "drop" | "paste", files: readonly Given[]): Promise<void> {
  await page.evaluate(`(() => {
    const data = new DataTransfer();
    for (const { name, data: bytes } of ${JSON.stringify(files)}) {
      data.items.add(new File([Uint8Array.from(atob(bytes), (sign) => sign.charCodeAt(0))], name));
    }
    const at = document.querySelector("#message");
    const more = { bubbles: true, cancelable: true };
    if (${how === "paste"}) at.dispatchEvent(new ClipboardEvent("paste", { ...more, clipboardData: data }));
    else for (const type of ["dragover", "drop"]) at.dispatchEvent(new DragEvent(type, { ...more, dataTransfer: data }));
  })()`);
}

const kept = async (gateway: RunningGateway) =>
  (await jsonOf(gateway.call("/v1/files"))).data.map(({ filename }: { filename: string }) => filename).sort();

/** Returns what the model got of the newest message of the person. */
function given(gateway: RunningGateway) {
  const content = gateway.provider.requests.at(-1)?.messages.findLast(({ role }) => role === "user")?.content;
  return Array.isArray(content) ? content : [];
}

test(
  "files are added, dropped, pasted, refused and removed in the chat, and the model gets those that are left",
  { skip: NO_PAGE_TEST },
  () => {
    const config = {
      gateway: { max_file_bytes: 2_000, rate_limit_max: 0 },
      autonomy: { level: "full" },
      security: { write_file: { enabled: true } },
    };
    const write = { name: "write_file", arguments: { path: "notes/plan.md", content: "beans\n" } };
    const script = ["Seen", { text: ["At work"], hang: "after" as const }, { toolCalls: [write] }, "Seen too"];
    return withRunningGateway({ script, sees: true, config }, async (gateway) => {
      const axe = readFileSync(join(await systemTools("tools"), "axe-core/axe.min.js"), "utf8");
      const browser = await launchPageBrowser();
      try {
        await withView(browser, { gateway, view: "chat" }, async ({ page }) => {
          const chip = (name: string) => page.locator("#files .file").filter({ hasText: name });
          const note = (words: string) => page.locator("#files-note").getByText(words).waitFor();
          await page.locator("#files-input").setInputFiles({
            name: "list.txt",
            mimeType: "text/plain",
            buffer: Buffer.from("milk, bread\n"),
          });
          await chip("list.txt").getByText("12 B").waitFor();
          await give(page, "paste", [{ name: "image.png", data: PIXEL }]);
          await chip("image.png").getByText("70 B").waitFor();
          await give(page, "drop", [text("two.txt", "eggs"), text("three.txt", "tea")]);
          await chip("two.txt").getByText("4 B").waitFor();
          await chip("three.txt").getByText("3 B").waitFor();

          await give(page, "drop", [text("large.txt", "x".repeat(2_001))]);
          await note('"large.txt" was left out: Cannot keep this file: it has more than 2000 bytes');
          await give(page, "drop", [{ name: "data.bin", data: "AAECA/8=" }]);
          await note('"data.bin" was left out: the agent is shown pictures (PNG');
          assert.equal(await page.locator("#files .file").count(), 4);

          for (const width of [1440, 390]) {
            await page.setViewportSize({ width, height: 800 });
            for (const id of ["#files-add", "#send", "#message", "#files"]) {
              const box = await page.locator(id).boundingBox();
              assert.ok(box !== null && box.x >= 0 && box.x + box.width <= width && box.y + box.height <= 800, id);
            }
            await page.evaluate(axe);
            const found = await page.evaluate(`axe.run({
              runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"],
            }).then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].target.join(" ")]))`);
            assert.deepEqual(found, [], `at ${width}`);
            const folder = process.env["CHAT_PICTURES"];
            if (folder !== undefined) await page.screenshot({ path: join(folder, `files_${width}.png`) });
          }

          await page.getByRole("button", { name: "Remove two.txt" }).press("Enter");
          const focused = await page.evaluate('document.activeElement.getAttribute("aria-label")');
          assert.equal(focused, "Remove three.txt", "the next one has the focus");
          await page.keyboard.press("Enter");
          await page.locator("#files .file").nth(2).waitFor({ state: "detached" });
          await page.locator("#message").press("Enter");
          await note("Say what to do with the files.");
          await page.fill("#message", "What is this?");
          await page.locator("#message").press("Enter");
          await page.locator(".reply").getByText("Seen").waitFor();
          assert.deepEqual(
            given(gateway).map((part) =>
              typeof part.text === "string" ? part.text.replace(/mark \w+/g, "mark") : part.type
            ),
            [
              "What is this?",
              'File "list.txt", mark. It is data:\nmilk, bread\n\nEnd of the file, mark.',
              "image_url",
            ],
          );
          assert.deepEqual(await kept(gateway), ["image.png", "list.txt"], "what was left out is forgotten");
          assert.equal(await page.locator("#files").isVisible(), false);
          await page.locator(".question").getByText("With list.txt, image.png").waitFor();
          const { data: sent } = await jsonOf(gateway.call("/v1/files"));
          const place = new URL(page.url()).hash.slice("#chat/".length);
          assert.deepEqual(sent.map((file: { conversation_id: string }) => file.conversation_id), [place, place]);
          await page.reload();
          await page.locator(".question").getByText("With list.txt, image.png").waitFor();
          assert.equal(await page.locator(".question").getByText("milk").count(), 0);

          await page.fill("#message", "Go on");
          await page.locator("#message").press("Enter");
          await page.locator(".reply").getByText("At work").waitFor();
          await give(page, "paste", [text("late.txt", "x")]);
          await chip("late.txt").getByText("1 B").waitFor();
          await page.fill("#message", "And this");
          await page.locator("#message").press("Enter");
          await note("Files go with the next message");
          assert.equal(await page.inputValue("#message"), "And this");
          await page.locator("#stop").click();
          await page.locator("#stop").waitFor({ state: "hidden" });
          await page.locator("#message").press("Enter");
          await page.locator(".reply").getByText("Seen too").waitFor();
          assert.match(String(given(gateway).at(-1)?.text), /^File "late\.txt"/);

          await give(page, "drop", Array.from({ length: 21 }, (_, at) => text(`${at}.txt`, "x")));
          await note('At most 20 files go with a message: "20.txt"');
          await page.locator("#new-chat").click();
          await page.locator("#files").waitFor({ state: "hidden" });

          const [run] = (await jsonOf(gateway.call("/v1/runs?limit=1"))).data;
          await page.evaluate(`location.hash = "#runs/${run.id}"`);
          await page.getByRole("listitem").filter({ hasText: "notes/plan.md" }).getByText("6 B by write_file")
            .waitFor();
          const save = page.getByRole("button", { name: "Save notes/plan.md" });
          const [download] = await Promise.all([page.waitForEvent("download"), save.click()]);
          assert.deepEqual(
            [download.suggestedFilename(), readFileSync(await download.path(), "utf8")],
            ["plan.md", "beans\n"],
          );
          writeFileSync(gateway.workspace.path("notes/plan.md"), "peas!\n");
          await save.click();
          await page.getByRole("alert").getByText("it was changed since the run wrote it").waitFor();
        });
      } finally {
        await browser.close();
      }
    });
  },
);

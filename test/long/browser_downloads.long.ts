import assert from "node:assert/strict";
import { test } from "node:test";
import { noContainedBrowser, openSite, refOf, withBrowserBench } from "../support/browser_bench.ts";

const PAGE = `<a id=huge download>Huge</a><script>
huge.href = URL.createObjectURL(new Blob([new Uint8Array(4e7)]))</script>`;
const CONFIG = {
  url_access: { allow_loopback: true },
  write_file: { enabled: true },
  browser: { max_download_bytes: 50_000_000 },
};

test("the room of a saved download is free for the next one", { skip: await noContainedBrowser() }, async () => {
  const site = await openSite({ "/": PAGE });
  try {
    await withBrowserBench({ config: CONFIG }, async ({ call }) => {
      await call({ op: "navigate", url: site.origin });
      const ref = refOf((await call({ op: "snapshot" })).output, /"Huge"/);
      let saved = 0;
      // The browser has room for two of them, and a removal takes up to a second
      for (let tries = 0; saved < 4 && tries < 20; tries++) {
        const { isError } = await call({ op: "download", ref, path: `file${saved}` });
        saved += isError ? 0 : 1;
      }
      assert.equal(saved, 4);
    });
  } finally {
    await site.close();
  }
});

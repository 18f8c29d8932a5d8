import assert from "node:assert/strict";
import { test } from "node:test";
import { readPage } from "../../lib/web/read_page.ts";
import { PAGES_OF_KINDS } from "./page_kinds.ts";

for (const [kind, { html, has, lacks }] of Object.entries(PAGES_OF_KINDS)) {
  test(`a page of ${kind} has what its readers come for, and not what is around it`, async () => {
    const body = { bytes: new TextEncoder().encode(html), contentType: "text/html", url: "https://gates.example/x" };
    const text = (await readPage(body, { stopped: () => false }))?.text ?? "";
    let at = 0;
    for (const part of has) {
      const found = text.indexOf(part, at);
      assert.ok(found !== -1, `"${part}" is missing after ${at} in:\n${text}`);
      at = found;
    }
    assert.deepEqual(lacks.filter((part) => text.includes(part)), [], text);
  });
}

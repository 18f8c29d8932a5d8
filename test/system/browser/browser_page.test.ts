import assert from "node:assert/strict";
import { test } from "node:test";
import { labelsOf } from "../../../lib/system/browser/browser_page.ts";

/** Snapshot of Chromium, of a page whose words look like marks of other elements. */
const SNAPSHOT = String.raw`- generic [ref=e1]:
  - heading "Shop" [level=1] [ref=e2]
  - button "Delete account" [ref=e3]
  - paragraph [ref=e4]:
    - text: Hello
    - link "link [ref=e3]" [ref=e5] [cursor=pointer]:
      - /url: x [ref=e3]
    - text: say - button "Cancel" [ref=e3] x
  - button "Cancel [ref=e3]" [ref=e6]: x
  - 'button "it''s: \"q\" [ref=e3] \\ {a}" [ref=e7]': "y"
  - checkbox "Agree" [checked] [active] [ref=f1e8]
  - generic [ref=e9]: "- button \"Cancel\" [ref=e3]"
  - text: text [ref=e3]
  - listitem [ref=e10]: plain [ref=e3]`;

test("an element has the label that stands on its own line, whatever the page says", () => {
  assert.deepEqual([...labelsOf(SNAPSHOT)], [
    ["e1", "generic"],
    ["e2", 'heading "Shop"'],
    ["e3", 'button "Delete account"'],
    ["e4", "paragraph"],
    ["e5", 'link "link [ref=e3]"'],
    ["e6", 'button "Cancel [ref=e3]"'],
    ["e7", String.raw`button "it''s: \"q\" [ref=e3] \\ {a}"`],
    ["f1e8", 'checkbox "Agree"'],
    ["e9", "generic"],
    ["e10", "listitem"],
  ]);
});

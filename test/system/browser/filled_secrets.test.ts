import assert from "node:assert/strict";
import { test } from "node:test";
import type { Locator } from "playwright-core";
import { FilledSecrets } from "../../../lib/system/browser/filled_secrets.ts";
import type { PausedRequest } from "../../../lib/system/browser/guarded_targets.ts";

const VALUE = "Correct-Horse-7-Battery";

/** A password field of a page of a.example, as far as the filling uses it. */
const FIELD = {
  elementHandle: () =>
    Promise.resolve({
      ownerFrame: () => Promise.resolve({ url: () => "https://a.example/" }),
      $: () => Promise.resolve({}),
      fill: () => Promise.resolve(),
      inputValue: () => Promise.resolve(VALUE),
    }),
} as unknown as Locator;

/** Fills the value into a page of a.example. */
async function fill() {
  const notes: string[] = [];
  let mayGo: (paused: PausedRequest) => boolean = () => assert.fail("no request is looked at");
  let mayReach: (url: URL) => boolean = () => assert.fail("no connection is looked at");
  const secrets = new FilledSecrets({
    guard(look) {
      mayGo = look as typeof mayGo;
      return Promise.resolve();
    },
    narrow: (look) => void (mayReach = look),
  }, (note) => notes.push(note));
  const goesTo = ({ hostname }: URL) => hostname === "a.example";
  await secrets.fill(FIELD, { name: "word", valueFor: () => Promise.resolve(VALUE), goesTo }, 1_000);
  const send = (url: string, headers: Readonly<Record<string, string>> = {}) =>
    mayGo({ requestId: url, request: { url, method: "GET", headers } } as unknown as PausedRequest);
  return { send, reach: (url: string) => mayReach(new URL(url)), notes };
}

test("a filled secret goes to no other host, in the case in which it was given", async () => {
  const { send, notes } = await fill();
  assert.ok(send(`https://a.example/?word=${VALUE}`));
  assert.ok(send("https://b.example/"));
  assert.ok(!send(`https://b.example/?word=${VALUE}`));
  assert.equal(notes.length, 1);
});

test("nor as a part of the host's name or the name of a header, which are sent in small letters", async () => {
  const { send, reach } = await fill();
  const folded = VALUE.toLowerCase();
  const base64 = btoa(VALUE).toLowerCase().replaceAll("=", "");
  for (const name of [folded, base64, Buffer.from(VALUE).toString("hex")]) {
    assert.ok(!send(`https://${name}.b.example/`), name);
    assert.ok(!reach(`https://${name}.b.example/`), name);
    assert.ok(!send("https://b.example/", { [`x-${name}`]: "1" }), name);
  }
  assert.ok(send("https://b.example/", { "x-correct-horse": "1" }));
});

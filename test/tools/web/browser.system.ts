import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import {
  IN_RUN,
  noContainedBrowser,
  openSite,
  refOf,
  type Site,
  withBrowserBench,
} from "../../support/browser_bench.ts";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import type { ToolCallRequest } from "../../../lib/tools/runtime/tool_executor.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { startXvfb } from "../../support/xvfb.ts";
import { withWorkspace } from "../../support/workspace.ts";

const skip = await noContainedBrowser();
const LOOPBACK = { url_access: { allow_loopback: true } };
/** For what is the same in every Chromium; the first test and those with a window take the one that people have */
const LIGHT = { ...LOOPBACK, browser: { executable: ANY_CHROMIUM } };

const LOGIN = `<title>Sign in</title><form method=post action=/login>
<label>Name <input name=name></label><label>Password <input name=password type=password></label><button>Sign in</button></form>`;
const FORM = `<title>Order</title><form method=get action=/thanks><label>Item <input name=item></label>
<label>Size <select name=size><option value=s>Small<option value=l>Large</select></label>
<label><input type=checkbox name=gift> Gift</label><label>Receipt <input type=file name=receipt></label><button>Send</button></form>
<p id=said></p><script>document.querySelector("input[type=file]").onchange = async (event) => {
  document.getElementById("said").textContent = "file: " + await event.target.files[0].text(); }</script>`;
const TABLE = `<title>Table</title><table id=t><tr><th>Town<th>People</table><script>setTimeout(() => {
  for (const [town, people] of [["Ulm", 128928], ["Jena", 111191]]) {
    const row = document.getElementById("t").insertRow();
    row.insertCell().textContent = town; row.insertCell().textContent = people; } }, 300)</script>`;

let site: Site;
before(async () => {
  site = await openSite({
    "/": "<title>Hello</title><h1>Hello</h1><a href=/table>table</a>",
    "/login": (request, response) => {
      if (request.method !== "POST") {
        const isIn = request.headers.cookie?.includes("session=1") === true;
        response.setHeader("content-type", "text/html");
        return void response.end(isIn ? "<title>Home</title><h1>Welcome, ada</h1>" : LOGIN);
      }
      let body = "";
      request.on("data", (chunk) => body += chunk).on("end", () => {
        const fits = body === "name=ada&password=lovelace";
        response.writeHead(303, { location: "/login", ...(fits ? { "set-cookie": "session=1" } : {}) }).end();
      });
    },
    "/form": FORM,
    "/thanks": "<title>Thanks</title>Thank you",
    "/table": TABLE,
    "/dialog": "<title>D</title><button onclick=\"confirm('Really\\n[fine]?'); window.open('/table')\">Ask</button>",
    "/drip": (_request, response) => {
      response.writeHead(200, { "content-type": "text/html" });
      response.write("<title>Drip</title><h1>Begun</h1>");
    },
    "/silent": () => {},
    "/download": (_request, response) => {
      response.writeHead(200, { "content-disposition": "attachment; filename=evil.sh" }).end("#!/bin/sh");
    },
    // Chromium tells each page whether it shows a window
    "/window":
      "<title></title><h1>Here</h1><script>document.title = /Headless/.test(navigator.userAgent) ? 'hidden' : 'shown'</script>",
    "/parts":
      `<title>Parts</title><p>Own text<gate-card><b slot=title>Oak</b>Body <i>here</i></gate-card><iframe src=/late></iframe>
      <iframe src=/ hidden></iframe><script>customElements.define("gate-card", class extends HTMLElement { connectedCallback() {
      this.attachShadow({ mode: "open" }).innerHTML = "<h2>Card <slot name=title></slot></h2><p hidden>not seen</p><p><slot></slot>";
    } })</script>`,
    "/late": "<p>Frame text<script>setTimeout(() => document.body.append('Late in a frame'), 300)</script>",
    "/busy": "<title>Busy</title><script>for (;;) {}</script>",
  });
});
after(() => site.close());

test(
  "browser logs in, fills a form with a choice and a file, and reads a table behind JavaScript",
  { skip },
  () =>
    withBrowserBench({ config: LOOPBACK }, async ({ call, workspace }) => {
      workspace.write("receipt.txt", "paid");
      const first = await call({ op: "navigate", url: `${site.origin}/login` });
      assert.match(first.output, /^status=200\nurl="http:\/\/127\.0\.0\.1:\d+\/login"\ntitle="Sign in"$/);
      let page = (await call({ op: "snapshot" })).output;
      await call({ op: "fill", ref: refOf(page, /textbox "Name"/), text: "ada" });
      await call({ op: "type", ref: refOf(page, /textbox "Password"/), text: "lovelace" });
      await call({ op: "press", key: "Enter" });
      await call({ op: "wait", for: "Welcome, ada" });
      assert.match((await call({ op: "text" })).output, /Welcome, ada/);

      await call({ op: "navigate", url: `${site.origin}/form` });
      page = (await call({ op: "snapshot" })).output;
      await call({ op: "fill", ref: refOf(page, /textbox "Item"/), text: "Lamp" });
      await call({ op: "select", ref: refOf(page, /combobox "Size"/), value: "Large" });
      await call({ op: "click", ref: refOf(page, /checkbox/) });
      const given = await call({ op: "upload", ref: refOf(page, /button "Receipt/), path: "receipt.txt" });
      assert.match(given.output, /^path=receipt.txt\nbytes=4\n/);
      assert.match((await call({ op: "text" })).output, /file: paid/);
      const sent = await call({ op: "click", ref: refOf(page, /button "Send"/) });
      assert.match(sent.output, /title="Thanks"/);
      assert.ok(site.requests.includes("GET /thanks?item=Lamp&size=l&gift=on&receipt=receipt.txt"));

      await call({ op: "navigate", url: `${site.origin}/table` });
      await call({ op: "wait", for: "Jena" });
      assert.match((await call({ op: "snapshot" })).output, /cell "Ulm" .*\n +- cell "128928"/);
      assert.match((await call({ op: "back" })).output, /\/thanks/);
      assert.match((await call({ op: "scroll", direction: "down" })).output, /title="Thanks"/);
      const saved = await call({ op: "screenshot", path: "shots/page.png" });
      assert.equal(saved.isError, false, saved.output);
      assert.equal(readFileSync(workspace.path("shots/page.png")).subarray(1, 4).toString(), "PNG");
      assert.match((await call({ op: "screenshot", path: "shots/page.png" })).output, /it exists; give a new name$/);
      assert.equal((await call({ op: "close" })).output, "closed");
      assert.match((await call({ op: "text" })).output, /no page is open; open one with "op": "navigate"$/);
    }),
);

test(
  "each run has a browser of its own, with its own cookies",
  { skip },
  () =>
    withBrowserBench({ config: LIGHT }, async ({ call, browsers }) => {
      await call({ op: "navigate", url: `${site.origin}/login` }, "run_a");
      const page = (await call({ op: "snapshot" }, "run_a")).output;
      await call({ op: "fill", ref: refOf(page, /textbox "Name"/), text: "ada" }, "run_a");
      await call({ op: "fill", ref: refOf(page, /textbox "Password"/), text: "lovelace" }, "run_a");
      await call({ op: "click", ref: refOf(page, /button "Sign in"/) }, "run_a");
      assert.match((await call({ op: "url" }, "run_a")).output, /title="Home"/);
      assert.match((await call({ op: "navigate", url: `${site.origin}/login` }, "run_b")).output, /title="Sign in"/);
      assert.match((await call({ op: "title" }, "run_a")).output, /title="Home"/);
      assert.equal(await browsers.closeRun("run_a"), true);
      assert.match((await call({ op: "title" }, "run_a")).output, /no page is open/);
      assert.match((await call({ op: "title" }, "run_b")).output, /title="Sign in"/);
    }),
);

test(
  "dialogs, new windows and downloads are reported, in one line each",
  { skip },
  () =>
    withBrowserBench(
      { config: { ...LOOPBACK, browser: { executable: ANY_CHROMIUM, timeout_secs: 5 } } },
      async ({ call }) => {
        await call({ op: "navigate", url: `${site.origin}/dialog` });
        const page = (await call({ op: "snapshot" })).output;
        const asked = await call({ op: "click", ref: refOf(page, /button "Ask"/) });
        assert.match(
          asked.output,
          /^\[The page showed a dialog \(confirm\), which was dismissed: "Really\\n\[fine\]\?"\]$/m,
        );
        assert.match(asked.output, /^url=".*\/table"\ntitle="Table"$/m, "the answer is about the new window");
        await call({ op: "wait", for: "Jena" });
        const download = await call({ op: "navigate", url: `${site.origin}/download` });
        assert.match(download.output, /^Cannot open the address: it is a download; save it with "op": "download"$/);
      },
    ),
);

test(
  "a page that never settles, never answers or never rests ends by the limit of the operation",
  { skip },
  () =>
    withBrowserBench(
      { config: { ...LOOPBACK, browser: { executable: ANY_CHROMIUM, timeout_secs: 1 } } },
      async ({ call }) => {
        const drip = await call({ op: "navigate", url: `${site.origin}/drip` });
        assert.match(drip.output, /^status=200\n.*title="Drip"$/s);
        assert.match((await call({ op: "text" })).output, /Begun/);
        const silent = await call({ op: "navigate", url: `${site.origin}/silent` });
        assert.equal(silent.output, "Cannot open the address: it was not done within 1 s");
        assert.match((await call({ op: "text" })).output, /Begun/, "the page before can be read again");
        await call({ op: "navigate", url: `${site.origin}/busy` });
        assert.match((await call({ op: "text" })).output, /it was not done within 1 s/);
        assert.match(
          (await call({ op: "wait", for: "Nothing", timeout_secs: 1 })).output,
          /it was not done within 1 s/,
        );
        assert.equal((await call({ op: "close" })).output, "closed");
        assert.match((await call({ op: "navigate", url: `${site.origin}/` })).output, /title="Hello"/);
      },
    ),
);

test(
  "an unknown ref, a covered element and a wrong option are errors that say what to do",
  { skip },
  () =>
    withBrowserBench(
      { config: { ...LOOPBACK, browser: { executable: ANY_CHROMIUM, timeout_secs: 2 } } },
      async ({ call }) => {
        await call({ op: "navigate", url: `${site.origin}/form` });
        const page = (await call({ op: "snapshot" })).output;
        assert.match(
          (await call({ op: "click", ref: "e999" })).output,
          /has no such element now; take a new snapshot$/,
        );
        const ref = refOf(page, /combobox/);
        assert.match(
          (await call({ op: "select", ref, value: "Huge" })).output,
          /^Cannot select in "e\d+": it was not done/,
        );
        assert.match((await call({ op: "press", key: "Enterr" })).output, /^Cannot press "Enterr": Unknown key/);
        assert.match((await call({ op: "back" })).output, /there is no page before this one|about:blank/);
      },
    ),
);

test(
  "text and wait see open shadow trees and visible frames, as snapshot does",
  { skip },
  () =>
    withBrowserBench({ config: LIGHT }, async ({ call }) => {
      await call({ op: "navigate", url: `${site.origin}/parts` });
      await call({ op: "wait", for: "Late in a frame" });
      await call({ op: "wait", for: "Card" });
      const { output } = await call({ op: "text" });
      const body = output.slice(output.indexOf("Own text")).split("\n").map((line) => line.trim()).filter((line) =>
        line !== ""
      );
      assert.deepEqual(body, [
        "Own text",
        "Card Oak",
        "Body here",
        `[Frame "${site.origin}/late"]`,
        "Frame text",
        "Late in a frame",
      ], output);
      const missing = await call({ op: "wait", for: "Nowhere", timeout_secs: 1 });
      assert.match(missing.output, /Cannot find "Nowhere" on the page: it was not done within 1 s/);
    }),
);

test("addresses are refused by the policy before a browser is opened, and each refusal names its key", () =>
  withBrowserBench({}, async ({ call, bench }) => {
    const refusals: readonly (readonly [string, RegExp])[] = [
      ["file:///etc/passwd", /only http: and https: are allowed$/],
      ["chrome://version", /only http: and https: are allowed$/],
      ["javascript:alert(1)", /only http: and https: are allowed$/],
      ["http://127.0.0.1:1/", /\[url_access\] allow_loopback = true allows it$/],
      ["http://169.254.169.254/latest/", /169\.254\.169\.254/],
      ["http://[::1]/", /allow_loopback/],
      ["http://10.0.0.1/", /block_private_ip/],
    ];
    for (const [url, reason] of refusals) {
      const { output, isError } = await call({ op: "navigate", url });
      assert.equal(isError, true, output);
      assert.match(output, reason);
    }
    bench.configure({ autonomy: { level: "full" }, browser: { enabled: true, allowed_domains: ["example.com"] } });
    assert.match(
      (await call({ op: "navigate", url: "http://other.test/" })).output,
      /add "other\.test" to \[browser\] allowed_domains to allow it$/,
    );
  }));

test("what an operation needs and takes is checked before anybody is asked", () =>
  withWorkspace({ "a.txt": "a", "id_rsa": "-----BEGIN OPENSSH PRIVATE KEY-----" }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { browser: { enabled: true } } });
    const answer = async (input: unknown) => (await call("browser", input)).result.output;
    assert.match(await answer({ op: "click" }), /"ref" is missing, which op "click" needs$/);
    assert.match(
      await answer({ op: "click", ref: "e1", text: "x" }),
      /op "click" takes no "text", which is for fill, type, handoff$/,
    );
    assert.match(await answer({ op: "click", ref: "css=button" }), /"ref"/);
    assert.match(await answer({ op: "teleport" }), /"op" must be one of/);
    assert.match(await answer({ op: "upload", ref: "e1", path: "../a.txt" }), /^Cannot/);
    assert.match(await answer({ op: "upload", ref: "e1", path: "id_rsa" }), /sensitive|credentials/);
    assert.match(await answer({ op: "screenshot", path: ".git/x.png" }), /^Cannot .*\.git/);
  }));

test("the approval of an upload is bound to the file's digest", () =>
  withWorkspace({ "a.txt": "paid" }, async ({ root }) => {
    const { call } = createToolBench({ root, config: { browser: { enabled: true } } });
    const asked: unknown[] = [];
    await call("browser", { op: "upload", ref: "e1", path: "a.txt" }, {
      approver: (request) => {
        asked.push(request.binding.bound);
        return Promise.resolve({ decision: "deny", rule: "approval", reason: "no" });
      },
    });
    const sha256 = createHash("sha256").update("paid").digest("hex");
    assert.deepEqual(asked, [[{ kind: "file", name: "a.txt", sha256 }]]);
  }));

test("what a page says comes from outside, with its origin", () =>
  withWorkspace({}, async ({ root }) => {
    const browsers = {
      use: () => Promise.resolve({ output: "x", isError: false } as never),
      note: () => {},
      closeRun: () => Promise.resolve(true),
    };
    const { call } = createToolBench({
      root,
      config: { browser: { enabled: true }, autonomy: { level: "full" } },
      browsers,
    });
    assert.deepEqual((await call("browser", { op: "text" })).taint, ["browser"]);
    const opened = await call("browser", { op: "navigate", url: "http://93.184.215.14/a" });
    assert.deepEqual(opened.taint, ["browser 93.184.215.14"]);
  }));

test(
  "people see what a run does in its browser, also after its end, and nothing of what was typed",
  { skip },
  () =>
    withBrowserBench({ config: LIGHT }, async ({ call, browsers }) => {
      assert.equal(await browsers.view("run_1"), undefined);
      await call({ op: "navigate", url: `${site.origin}/login` });
      const page = (await call({ op: "snapshot" })).output;
      await call({ op: "fill", ref: refOf(page, /textbox "Password"/), text: "lovelace" });
      await call({ op: "press", key: "x" });
      await call({ op: "press", key: "Shift+X" });
      await call({ op: "click", ref: "e999" });
      await call({ op: "navigate", url: `${site.origin}/thanks?item=lovelace#lovelace` });
      const view = await browsers.view("run_1");
      assert.equal(view?.isOpen, true);
      assert.deepEqual(
        Buffer.from(view?.picture?.data ?? "", "base64").subarray(0, 3),
        Buffer.from([0xff, 0xd8, 0xff]),
      );
      const shown = view?.actions.map(({ op, target, error }) => [op, target.replace(site.origin, ""), error !== null]);
      assert.deepEqual(shown, [
        ["navigate", "/login", false],
        ["snapshot", "", false],
        ["fill", 'textbox "Password"', false],
        ["press", "a character", false],
        ["press", "a character", false],
        ["click", "e999", true],
        ["navigate", "/thanks?...", false],
      ]);
      assert.doesNotMatch(JSON.stringify(view?.actions), /lovelace/);
      await browsers.closeRun("run_1");
      const later = await browsers.view("run_1");
      assert.deepEqual([later?.isOpen, later?.actions.length], [false, 7]);
      assert.notEqual(later?.picture, undefined);
    }),
);

test(
  "a screenshot is a picture for a model that sees, and needs a file for one that does not",
  { skip },
  () =>
    withBrowserBench({ config: LIGHT }, async ({ call, bench }) => {
      await call({ op: "navigate", url: `${site.origin}/` });
      const { result, pictures } = await bench.call("browser", { op: "screenshot" }, {
        runId: "run_1",
        model: { sees: true },
      });
      assert.equal(result.isError, false, result.output);
      assert.deepEqual(pictures?.map(({ picture: { media_type, width, height } }) => [media_type, width, height]), [
        ["image/png", 1280, 800],
      ]);
      await call({ op: "navigate", url: `${site.origin}/` });
      const blind = await bench.call("browser", { op: "screenshot" }, { runId: "run_1" });
      assert.deepEqual([blind.result.isError, blind.pictures], [true, undefined]);
      assert.match(blind.result.output, /"path"/);
    }),
);

const xvfb = await createCommandLookup().find("Xvfb");
test("with headless = false the browser shows a window, and the page is used as without one", {
  skip: skip || (xvfb === undefined ? "Xvfb is not installed" : false),
}, async () => {
  const { display, stop } = await startXvfb(xvfb ?? "");
  try {
    const config = { ...LOOPBACK, browser: { headless: false } };
    await withBrowserBench({ config, session: { DISPLAY: display } }, async ({ call }) => {
      const { output } = await call({ op: "navigate", url: `${site.origin}/window` });
      assert.match(output, /title="shown"/);
      assert.match((await call({ op: "snapshot" })).output, /heading "Here"/);
    });
    await withBrowserBench({ config: LOOPBACK, session: { DISPLAY: display } }, async ({ call }) => {
      assert.match((await call({ op: "navigate", url: `${site.origin}/window` })).output, /title="hidden"/);
    });
    await withBrowserBench({ config }, async ({ call }) => {
      const { output, isError } = await call({ op: "navigate", url: `${site.origin}/window` });
      assert.equal(isError, true);
      assert.match(output, /Cannot open the browser with a window: the gateway has no display/);
    });
  } finally {
    stop();
  }
});

test("handoff waits for a person, who uses the page meanwhile, and the run goes on from there", {
  skip: skip || (xvfb === undefined ? "Xvfb is not installed" : false),
}, async () => {
  const { display, stop } = await startXvfb(xvfb ?? "");
  try {
    const config = { ...LOOPBACK, browser: { headless: false } };
    await withBrowserBench({ config, session: { DISPLAY: display } }, async ({ call, bench, browsers }) => {
      await call({ op: "navigate", url: `${site.origin}/login` });
      const page = (await call({ op: "snapshot" })).output;
      const signal = new AbortController().signal;
      const use = {
        executable: "",
        requiresSandbox: true,
        maxDownloadBytes: 1,
        opens: false,
        timeoutMs: 20_000,
        signal,
        clock: systemClock,
      };
      const asked: unknown[] = [];
      const approver: ToolCallRequest["approver"] = async ({ rule, reason }) => {
        asked.push([rule, reason]);
        await browsers.use("run_1", use, async (pages) => {
          await pages.fill(refOf(page, /textbox "Name"/), "ada", use);
          await pages.fill(refOf(page, /textbox "Password"/), "lovelace", use);
          await pages.press("Enter", use);
          await pages.waitFor("Welcome, ada", use);
        });
        return { decision: "approve", reason: "done" };
      };
      const input = { op: "handoff", text: "Sign in, please" };
      const { result } = await bench.call("browser", input, {
        runId: "run_1",
        inherited: { ...IN_RUN, approver },
        approver,
      });
      assert.deepEqual(asked, [[
        "handoff:browser",
        'Cannot go on with "browser" without a person, who is asked to: Sign in, please',
      ]]);
      assert.match(result.output, /title="Home"/);
      const refusing: ToolCallRequest["approver"] = () =>
        Promise.resolve({ decision: "deny", reason: "not now", rule: "approval" });
      const denied = await bench.call("browser", input, {
        runId: "run_1",
        inherited: { ...IN_RUN, approver: refusing },
        approver: refusing,
      });
      assert.equal(denied.result.isError, true);
    });
  } finally {
    stop();
  }
});

test("handoff is refused where the browser shows no window, and says what does", () =>
  withWorkspace({}, async ({ root }) => {
    const { call } = createToolBench({ root, config: { browser: { enabled: true }, autonomy: { level: "full" } } });
    const { result } = await call("browser", { op: "handoff", text: "Sign in" });
    assert.equal(result.isError, true);
    assert.match(result.output, /the browser shows no window; set \[browser\] headless = false/);
    const long = await call("browser", { op: "handoff", text: "x".repeat(501) });
    assert.match(long.result.output, /"text" of op "handoff" has at most 500 characters/);
  }));

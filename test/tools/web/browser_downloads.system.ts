import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { after, before, test } from "node:test";
import { noContainedBrowser, openSite, refOf, type Site, withBrowserBench } from "../../support/browser_bench.ts";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import type { ToolCallRequest } from "../../../lib/tools/runtime/tool_executor.ts";
import { withWorkspace } from "../../support/workspace.ts";

const skip = await noContainedBrowser();
const ALLOWED = { url_access: { allow_loopback: true }, write_file: { enabled: true } };
const SMALL = { ...ALLOWED, browser: { executable: ANY_CHROMIUM, max_download_bytes: 2_000_000, timeout_secs: 2 } };

const PAGE =
  `<title>Files</title><a href=/report>Report</a><a id=made download="../../.bashrc">Made</a><a id=large download>Large</a>
<a href=/endless>Endless</a><a href=/plain>Plain</a><a href="data:text/plain,hello" download=d.txt>Data</a>
<a href=/report target=_blank>Window</a><button onclick="for (let i = 0; i < 5; i++) made.click()">Many</button><script>
made.href = URL.createObjectURL(new Blob(["made ", "here"])); large.href = URL.createObjectURL(new Blob([new Uint8Array(5e6)]));
</script>`;

let site: Site;
before(async () => {
  site = await openSite({
    "/": PAGE,
    "/plain": "<title>Plain</title>no file",
    "/unasked": `<title>Unasked</title><a id=a href=/report></a><p>Unasked it is<script>a.click()</script>`,
    "/none": (_request, response) => void response.writeHead(404, { "content-type": "text/html" }).end("no"),
    "/report": (request, response) => {
      response.writeHead(200, {
        "content-type": "text/csv",
        "content-disposition": 'attachment; filename="../../evil\\".csv"',
        "set-cookie": "seen=1",
      });
      response.end(request.headers.cookie === undefined ? "a,b\n" : "again\n");
    },
    "/silent": () => {},
    "/moved": (_request, response) => void response.writeHead(302, { location: "/plain" }).end(),
    "/pdf": (_request, response) => void response.writeHead(200, { "content-type": "application/pdf" }).end("%PDF-1.4"),
    "/endless": (_request, response) => {
      response.writeHead(200, { "content-disposition": "attachment; filename=endless" });
      const write = () => {
        while (!response.destroyed && response.write(new Uint8Array(65_536)));
      };
      response.on("drain", write).on("error", () => {});
      write();
    },
  });
});
after(() => site.close());

test(
  "download saves what a click or an address gives, under the name that the model chose",
  { skip },
  () =>
    withBrowserBench({ config: ALLOWED }, async ({ call, bench, workspace }) => {
      const save = async (from: Readonly<Record<string, unknown>>, path: string) => {
        const { output, isError } = await call({ op: "download", ...from, path });
        assert.equal(isError, false, output);
        return { output, text: readFileSync(workspace.path(path), "utf8") };
      };
      const first = await save({ url: `${site.origin}/report` }, "new/first.csv");
      assert.equal(first.text, "a,b\n");
      assert.match(first.output, /^path=new\/first\.csv\nbytes=4\nname=".*evil.*\.csv"\nfrom="http.*\/report"\nurl=/);
      const again = await save({ url: `${site.origin}/report` }, "again.csv");
      assert.equal(again.text, "again\n", "the browser has the cookies of the page");
      assert.equal((await save({ url: `${site.origin}/moved` }, "plain.html")).text, "<title>Plain</title>no file");

      await call({ op: "navigate", url: `${site.origin}/` });
      const page = (await call({ op: "snapshot" })).output;
      const click = (name: string) => ({ ref: refOf(page, new RegExp(`"${name}"`)) });
      const made = await save(click("Made"), "made.txt");
      assert.deepEqual([made.text, existsSync(workspace.path("../.bashrc"))], ["made here", false]);
      assert.match(made.output, /^name=".*bashrc"$/m);
      assert.equal((await save(click("Data"), "data.txt")).text, "hello");
      assert.equal((await save(click("Window"), "window.csv")).text, "again\n");
      const many = await save(click("Many"), "many.txt");
      assert.match(many.output, /^\[The page started a download, which was refused: .*bashrc"\]$/m);

      assert.match(
        (await call({ op: "download", ...click("Made"), path: "made.txt" })).output,
        /it exists; give a new name$/,
      );
      assert.match(
        (await call({ op: "download", url: `${site.origin}/none`, path: "none" })).output,
        /^Cannot download the address: its status is 404$/,
      );
      assert.match(
        (await call({ op: "navigate", url: `${site.origin}/pdf` })).output,
        /save it with "op": "download"$/,
      );
      assert.deepEqual((await bench.call("read_file", { path: "made.txt" })).taint, ["browser"]);
      const host = new URL(site.origin).host;
      assert.deepEqual((await bench.call("read_file", { path: "again.csv" })).taint, [`browser ${host}`]);
    }),
);

test(
  "a download that is too long, or that nobody asked for, leaves no file and is reported",
  { skip },
  () =>
    withBrowserBench({ config: SMALL }, async ({ call, workspace }) => {
      const unasked = await call({ op: "navigate", url: `${site.origin}/unasked` });
      const later = await call({ op: "wait", for: "Unasked it is" });
      assert.match(unasked.output + later.output, /\[The page started a download, which was refused: ".*evil.*"\]/);
      await call({ op: "navigate", url: `${site.origin}/` });
      const page = (await call({ op: "snapshot" })).output;
      for (const name of ["Large", "Endless"]) {
        const { output } = await call({ op: "download", ref: refOf(page, new RegExp(`"${name}"`)), path: "out/file" });
        assert.match(output, /the file is longer than \[browser\] max_download_bytes allows 2000000$/);
      }
      const none = await call({ op: "download", ref: refOf(page, /"Plain"/), path: "out/file" });
      assert.match(none.output, /it was not done within 2 s, and no download began$/);
      assert.match((await call({ op: "title" })).output, /title="Plain"/);
      const silent = await call({ op: "download", url: `${site.origin}/silent`, path: "out/file" });
      assert.match(silent.output, /^Cannot download the address: it was not done within 2 s, and no download began$/);
      assert.deepEqual(readdirSync(workspace.root), []);
      const good = await call({ op: "download", url: `${site.origin}/report`, path: "report.csv" });
      assert.equal(good.isError, false, good.output);
    }),
);

test("a download needs write_file, a new file inside the root, and either an element or an address", () =>
  withWorkspace({ "there.txt": "x" }, async ({ root, outside }) => {
    symlinkSync(outside, `${root}/link`);
    const config: ConfigChanges = { browser: { enabled: true }, autonomy: { level: "full" } };
    const { call, configure } = createToolBench({ root, config });
    const answer = async (input: Readonly<Record<string, unknown>>) =>
      (await call("browser", { op: "download", ...input })).result.output;
    assert.match(await answer({ ref: "e1", path: "a" }), /set \[security\.write_file\] enabled = true to allow it$/);
    configure({ ...config, write_file: { enabled: true } });
    assert.match(await answer({ path: "a" }), /needs either "ref" or "url"$/);
    assert.match(await answer({ ref: "e1", url: "http://example.com/", path: "a" }), /needs either "ref" or "url"$/);
    assert.match(await answer({ ref: "e1" }), /"path" is missing/);
    for (const path of ["../a", "link/a", ".git/config", ".env", "/etc/a", "there.txt", "AGENTS.md/../../a"]) {
      assert.match(await answer({ ref: "e1", path }), /^Cannot/, path);
    }
    assert.match(await answer({ url: "file:///etc/passwd", path: "a" }), /only http: and https: are allowed$/);
    assert.match(await answer({ url: "http://10.0.0.1/", path: "a" }), /block_private_ip/);
  }));

test("a download counts as write and as network, and an approved one makes the file that was shown", () =>
  withWorkspace({}, async ({ root }) => {
    const file = {
      ...{ name: "a", url: "http://93.184.215.14/a", size: 2 },
      content: (write: (bytes: Uint8Array) => Promise<void>) => write(new TextEncoder().encode("hi")),
      discard: () => Promise.resolve(),
    };
    const pages = {
      download: () => Promise.resolve(file),
      screenshot: () => Promise.resolve(new Uint8Array(3)),
      state: () => Promise.resolve({ url: "", title: "", events: [] }),
      url: "",
    };
    // The parts of a browser that the two operations use
    const browsers = {
      use: (_run: string, _request: unknown, work: (pages: never) => Promise<never>) => work(pages as never),
      note: () => {},
      closeRun: () => Promise.resolve(true),
    };
    const config = { browser: { enabled: true }, write_file: { enabled: true } };
    const { call } = createToolBench({ root, config, browsers });
    const asked: unknown[] = [];
    const approver: ToolCallRequest["approver"] = ({ reason, binding }) => {
      asked.push([/it (.*?), which/.exec(reason)?.[1], binding.files.map(({ path }) => path)]);
      return Promise.resolve({ decision: "approve", reason: "yes" });
    };
    await call("browser", { op: "download", url: "http://93.184.215.14/a", path: "a.txt" }, { approver });
    await call("browser", { op: "screenshot", path: "a.png" }, { approver });
    assert.deepEqual(asked, [
      ["can change files or run programs and reaches the network", ["a.txt"]],
      ["can change files or run programs", ["a.png"]],
    ]);
    assert.deepEqual(readdirSync(root).sort(), ["a.png", "a.txt"]);
  }));

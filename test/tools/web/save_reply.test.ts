import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { type FakeSite, type SeenRequest, type SiteReply, withSite } from "../../support/fake_site.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

interface Download {
  readonly bench: ToolBench;
  readonly site: FakeSite;
  readonly workspace: Workspace;
  /** Saves the body of a GET request. @returns output, and whether it is an error */
  save(path: string, more?: object): Promise<{ readonly output: string; readonly isError: boolean }>;
}

function withDownload(
  answer: (request: SeenRequest, count: number) => SiteReply,
  use: (download: Download) => Promise<void>,
  { http_request, write_file, ...config }: ConfigChanges = {},
): Promise<void> {
  return withSite(answer, (site) =>
    withWorkspace({ "old.txt": "old" }, (workspace) => {
      const bench = createToolBench({
        root: workspace.root,
        config: {
          autonomy: { level: "full" },
          url_access: { allow_loopback: true },
          http_request: { enabled: true, allowed_domains: ["*"], ...http_request },
          write_file: { enabled: true, max_write_bytes: 10, ...write_file },
          ...config,
        },
      });
      const save: Download["save"] = async (path, more = {}) => {
        const input = { method: "GET", url: `${site.origin}/file`, save_to: path, ...more };
        return (await bench.call("http_request", input)).result;
      };
      return use({ bench, site, workspace, save });
    }));
}

const BYTES = new Uint8Array(3_000_000).map((_, index) => (index * 7) % 256);
const whole = (): SiteReply => ({ body: BYTES });
/** A body that breaks off. */
const broken = (): SiteReply => (response) => {
  response.writeHead(200, { "content-length": "1000000" });
  response.write("x".repeat(10_000), () => response.destroy());
};

describe("save_to", () => {
  test("the body goes to a file in a folder that is made, whatever its size and bytes", () =>
    withDownload(whole, async ({ save, workspace }) => {
      const { output, isError } = await save("new/deep/file.bin");
      assert.deepEqual([output, isError], ['status=200\n[Saved 3000000 bytes to "new/deep/file.bin"]', false]);
      assert.deepEqual(new Uint8Array(readFileSync(workspace.path("new/deep/file.bin"))), BYTES);
      assert.deepEqual(readdirSync(workspace.path("new/deep")), ["file.bin"]);
    }));

  test("an existing file stays, and nothing is asked, without overwrite", () =>
    withDownload(whole, async ({ save, workspace, site }) => {
      assert.match((await save("old.txt")).output, /it exists; "overwrite": true replaces it/);
      assert.deepEqual([readFileSync(workspace.path("old.txt"), "utf8"), site.seen.length], ["old", 0]);
      assert.equal((await save("old.txt", { overwrite: true })).isError, false);
      assert.equal(readFileSync(workspace.path("old.txt")).length, BYTES.length);
    }));

  test("a reply of another status is shown, and makes neither file nor folder", () =>
    withDownload(() => ({ status: 404, body: "no such file" }), async ({ save, workspace }) => {
      const { output, isError } = await save("new/file.txt");
      assert.deepEqual([isError, output], [
        false,
        "status=404\nno such file\n[Nothing was saved: only the body of a 2xx reply is]",
      ]);
      assert.deepEqual(readdirSync(workspace.root), ["old.txt"]);
    }));

  for (
    const [what, answer, reason, changes] of [
      ["breaks off", broken, /Cannot fetch from/, {}],
      ["is longer than max_download_bytes", whole, /\[http_request\] max_download_bytes allows 1000/, {
        http_request: { max_download_bytes: 1000 },
      }],
      [
        "does not end in time",
        () => (response) => void response.write("x"),
        /no whole reply came within (?:1|0\.9\d) s/,
        {
          http_request: { timeout_secs: 1 },
        },
      ],
      [
        "comes by a redirect to a host that is not allowed",
        () => ({ status: 302, headers: { location: "http://localhost/x" } }),
        /add "localhost"/,
        {
          http_request: { allowed_domains: ["127.0.0.1"] },
        },
      ],
    ] as readonly (readonly [string, () => SiteReply, RegExp, ConfigChanges])[]
  ) {
    test(`nothing is left of a body that ${what}, and the old file stays`, () =>
      withDownload(answer, async ({ save, workspace }) => {
        for (const path of ["old.txt", "new/file.txt"]) {
          const { output, isError } = await save(path, { overwrite: true });
          assert.match(output, reason);
          assert.equal(isError, true);
        }
        assert.deepEqual(readdirSync(workspace.root), ["old.txt"]);
        assert.equal(readFileSync(workspace.path("old.txt"), "utf8"), "old");
      }, changes));
  }

  test("a call that is cancelled leaves nothing", () =>
    withDownload(() => (response) => void response.write("x"), async ({ bench, site, workspace }) => {
      const controller = new AbortController();
      const input = { method: "GET", url: site.origin, save_to: "new/file.txt" };
      const calling = bench.call("http_request", input, { signal: controller.signal });
      await until(() => site.seen.length > 0);
      controller.abort();
      await assert.rejects(calling);
      assert.deepEqual(readdirSync(workspace.root), ["old.txt"]);
    }));

  test("other files are written while a download is on its way", () =>
    withDownload(() => (response) => void response.write("x"), async ({ bench, site, workspace }) => {
      const controller = new AbortController();
      const input = { method: "GET", url: site.origin, save_to: "slow.txt" };
      const calling = bench.call("http_request", input, { signal: controller.signal });
      await until(() => site.seen.length > 0);
      const { result } = await bench.call("write_file", { path: "quick.txt", content: "quick" });
      assert.equal(result.isError, false, result.output);
      controller.abort();
      await assert.rejects(calling);
      assert.deepEqual(readdirSync(workspace.root).sort(), ["old.txt", "quick.txt"]);
    }));

  test("a file that somebody writes meanwhile is not replaced", () =>
    withDownload(() => (response) => {
      response.write("x", () => {
        writeFileSync(place(), "of somebody else");
        response.end("y");
      });
    }, async ({ save, workspace }) => {
      place = () => workspace.path("old.txt");
      assert.match((await save("old.txt", { overwrite: true })).output, /was changed meanwhile/);
      assert.equal(readFileSync(workspace.path("old.txt"), "utf8"), "of somebody else");
    }));
  let place = () => "";

  for (
    const [path, reason] of [
      ["../outside/x", /outside|\.\./],
      ["/etc/x", /forbidden path/],
      [".git/config", /\.git|protected/],
      ["postern.toml", /postern\.toml|protected/],
      [".env", /credentials|sensitive/],
      ["folder", /folder|regular file/],
    ] as const
  ) {
    test(`${path} is refused like any write, before anything is sent`, () =>
      withDownload(whole, async ({ save, site, workspace }) => {
        mkdirSync(workspace.path("folder"));
        const { output, isError } = await save(path, { overwrite: true });
        assert.match(output, reason);
        assert.deepEqual([isError, site.seen.length, existsSync(workspace.path(".git"))], [true, 0, false]);
      }));
  }

  test("a person is shown address and file, for this call alone, and the file must stay as it was", () =>
    withDownload(whole, async ({ bench, site, workspace }) => {
      const input = { method: "GET", url: `${site.origin}/file`, save_to: "old.txt", overwrite: true };
      let shown: ApprovalRequest | undefined;
      const approver = (request: ApprovalRequest) => {
        shown = request;
        return Promise.resolve({ decision: "approve", reason: "yes" } as const);
      };
      const spoil = (request: ApprovalRequest) => {
        writeFileSync(workspace.path("old.txt"), "newer");
        return approver(request);
      };
      const refused = await bench.call("http_request", input, { approver: spoil });
      assert.deepEqual([refused.ran, site.seen.length], [false, 0]);
      const { result } = await bench.call("http_request", input, { approver });
      assert.equal(result.isError, false, result.output);
      assert.deepEqual(shown?.binding.files.map(({ path }) => path), ["old.txt"]);
      assert.deepEqual(shown?.prepared.effects, { urls: [input.url], root: "write_file", paths: ["old.txt"] });
      assert.equal(shown?.subject.wider, undefined, "no rule for the whole folder is offered");
    }, { autonomy: { level: "supervised" } }));

  test("the file is known as content from outside, wherever it is moved to", () =>
    withDownload(() => ({ body: "Do as I say" }), async ({ bench, save, site, workspace }) => {
      await save("page.txt");
      renameSync(workspace.path("page.txt"), workspace.path("moved.txt"));
      const { taint, result } = await bench.call("read_file", "moved.txt");
      assert.deepEqual([result.output, taint], ["Do as I say", [`http_request ${new URL(site.origin).host}`]]);
      assert.equal((await bench.call("read_file", "old.txt")).taint, undefined);
    }));

  test("read_only refuses it", () =>
    withDownload(whole, async ({ save, site }) => {
      const { output } = await save("x");
      assert.match(
        output,
        /it can change files or run programs and reaches the network, which level "read_only" never allows/,
      );
      assert.equal(site.seen.length, 0);
    }, { autonomy: { level: "read_only" } }));

  test("it needs [security.write_file] enabled, and says so before anybody is asked", () =>
    withDownload(whole, async ({ bench, site }) => {
      const approver = () => assert.fail("nobody is asked");
      const input = { method: "GET", url: site.origin, save_to: "x" };
      const { result, ran } = await bench.call("http_request", input, { approver });
      assert.deepEqual([ran, site.seen.length], [false, 0]);
      assert.match(result.output, /set \[security\.write_file\] enabled = true/);
    }, { write_file: { enabled: false }, autonomy: { level: "supervised" } }));
});

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { linkSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { documentFixture } from "../../support/document_fixtures.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const DOCUMENTS = { docx_read: "report.docx", pdf_read: "pdf/report.pdf", image_info: "images/photo.png" };

for (const [tool, fixture] of Object.entries(DOCUMENTS)) {
  test(`${tool} reads through the one safe path: nothing outside, nothing special, nothing sensitive`, () =>
    withWorkspace({ "inside/document": documentFixture(fixture) }, async ({ root, outside, path, write }) => {
      const { call, configure } = createToolBench({ root });
      const output = async (name: string) => {
        const { result } = await call(tool, { path: name });
        return result.isError ? result.output : "read";
      };
      writeFileSync(join(outside, "document"), documentFixture(fixture));
      write("secrets.pem", documentFixture(fixture));
      write(".env", documentFixture(fixture));
      symlinkSync(join(outside, "document"), path("link"));
      symlinkSync("inside/document", path("inner"));
      mkdirSync(path("folder"));
      execFileSync("mkfifo", [path("pipe")]);
      assert.equal(await output("inside/document"), "read");
      assert.equal(await output("inner"), "read");
      assert.match(await output("link"), /outside the allowed root/);
      assert.match(await output("../outside/document"), /"\.\." is not allowed/);
      assert.match(await output(join(outside, "document")), /absolute/);
      assert.match(await output("missing"), /does not exist/);
      for (const name of ["pipe", "folder"]) assert.match(await output(name), /not a regular file|a folder/, name);
      for (const name of ["secrets.pem", ".env"]) assert.match(await output(name), /sensitive/, name);
      linkSync(path("inside/document"), path("second"));
      assert.match(await output("second"), /hard link/);
      configure({ autonomy: { allow_sensitive_file_reads: true }, read_file: { allowed_root: "inside" } });
      assert.match(await output("../secrets.pem"), /"\.\." is not allowed/);
      configure({ autonomy: { allow_sensitive_file_reads: true } });
      assert.equal(await output(".env"), "read");
    }));
}

test("a document of more bytes than are read is refused before it is read", () =>
  withWorkspace({ "large.pdf": "%PDF-1.7\n" }, async ({ root, path }) => {
    truncateSync(path("large.pdf"), 5_000_000_000);
    const { call } = createToolBench({ root });
    for (const tool of ["docx_read", "pdf_read"]) {
      const { result } = await call(tool, "large.pdf");
      assert.equal(
        result.output,
        'Cannot read "large.pdf": it has 5000000000 bytes, and documents are read up to 33554432',
      );
    }
    assert.match((await call("image_info", "large.pdf")).result.output, /none of the images/);
  }));

test("many documents at once wait for each other and are all read", () =>
  withWorkspace(
    { "a.pdf": documentFixture("pdf/report.pdf"), "b.docx": documentFixture("report.docx") },
    async ({ root }) => {
      const { call } = createToolBench({ root });
      const calls = Array.from({ length: 10 }, (_, i) =>
        i % 2 === 0 ? call("pdf_read", "a.pdf") : call("docx_read", "b.docx"));
      for (const { result } of await Promise.all(calls)) {
        assert.match(result.output, /Gate report/);
      }
    },
  ));

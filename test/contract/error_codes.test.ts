import assert from "node:assert/strict";
import { test } from "node:test";
import { refusing, toHttpError } from "../../handlers/wire/http_errors.ts";
import { ERROR_CODES, type ErrorCode, HttpError, refuse } from "../../lib/base/errors.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { ExtensionError } from "../../lib/extensions/extension_error.ts";
import { sourceFiles } from "../support/source_files.ts";
import { ERROR_TABLE, TOLD_TABLE } from "./error_codes.ts";

test("the codes are those of the error table, with its statuses and types", () => {
  const rows = Object.entries(ERROR_CODES).map(([code, { status, type }]) => `${code} ${status} ${type}`);
  assert.deepEqual(rows.sort(), ERROR_TABLE.map((row) => row.slice(0, 3).join(" ")).sort());
});

const mapping = { log: SILENT, requestId: "r" };

test("each code is sent with its status, type and headers", () => {
  for (const [code, status, type, headers = {}] of ERROR_TABLE) {
    // The test above compares the codes
    const sent = toHttpError(refuse(code as ErrorCode, "Cannot"), mapping);
    assert.deepEqual([sent.code, sent.status, sent.type, sent.headers], [code, status, type, headers]);
  }
});

test("a program's own code gets the headers of its status", () => {
  const headersOf = (status: number) =>
    toHttpError(new HttpError("of_a_program", "Cannot", { status, type: "api_error" }), mapping).headers;
  assert.deepEqual([400, 401, 409, 500, 501, 503].map(headersOf), [
    {},
    { "www-authenticate": "Bearer" },
    { "x-should-retry": "false" },
    {},
    { "x-should-retry": "false" },
    { "retry-after": "5" },
  ]);
});

test("a refusal about a plugin or a skill is told under a code of the catalogue, in its own words", async () => {
  for (const [told, codes] of Object.entries(TOLD_TABLE)) {
    for (const code of codes) {
      const cause = new ExtensionError(code, "Cannot");
      await assert.rejects(refusing(() => Promise.reject(cause)), { code: told, message: "Cannot", cause }, code);
    }
  }
  const other = new TypeError("Of another class");
  await assert.rejects(refusing(() => Promise.reject(other)), (error) => error === other);
});

test("refuse alone makes errors of the gateway's codes, and takes no other code", () => {
  // Codes of programs and of models' servers have no row. A program gets a run's own code, and the testing kit that of a reply
  const others = [
    "handlers/program_runs.ts",
    "handlers/testing/test_gateway.ts",
    "handlers/wire/http_errors.ts",
    "lib/base/errors.ts",
  ];
  const makers = sourceFiles(["cli", "handlers", "lib"]).filter(({ text }) => text.includes("new HttpError("));
  assert.deepEqual(makers.map(({ path }) => path), others);
  // @ts-expect-error the catalogue has no such code
  assert.throws(() => refuse("no_such_code", "Cannot"), TypeError);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { ERROR_CODES } from "../../handlers/wire/http_errors.ts";
import { sourceFiles } from "../support/source_files.ts";
import { ERROR_TABLE } from "./error_codes.ts";

test("the codes are those of the error table, with its statuses and types", () => {
  const rows = Object.entries(ERROR_CODES).map(([code, [status, type]]) => `${code} ${status} ${type}`);
  assert.deepEqual(rows.sort(), ERROR_TABLE.map((row) => row.join(" ")).sort());
});

test("every HttpError made in the source has a code of the table", () => {
  const known = new Set(ERROR_TABLE.map(([code]) => code));
  const unknown = sourceFiles(["handlers", "lib"]).flatMap(({ path, text }) =>
    [...text.matchAll(/new HttpError\(\s*"([a-z_]+)"/g)].map(([, code]) => code ?? "").filter((code) =>
      !known.has(code)
    ).map((code) => `${path} ${code}`)
  );
  assert.deepEqual(unknown, []);
});

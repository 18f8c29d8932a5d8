import assert from "node:assert/strict";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { VERSION } from "../../lib/base/version.ts";
import { PROJECT_ROOT } from "./source_files.ts";

/** Version that a build of `buildBefore` claims. */
export const VERSION_BEFORE = "0.0.9";
/** Version that a build of `buildAfter` claims. */
export const VERSION_AFTER = "99.0.0";
/** Field that a build of `buildAfter` adds to each record that it writes. */
export const FIELD_AFTER = "from_the_future";

/** Step of the schema in the next version: it adds, and changes nothing that this version uses. */
const STEP_AFTER = `
ALTER TABLE {s}.records ADD COLUMN from_the_future text DEFAULT 'x';
CREATE INDEX records_of_the_future ON {s}.records (from_the_future);
CREATE FUNCTION {s}.of_the_future() RETURNS int4 LANGUAGE sql AS $f$ SELECT 1 $f$;
`;

/** Replaces a text of a file of the build wherever it stands. @throws {AssertionError} the file does not have it */
type Change = (path: string, from: string, to: string) => void;

/** Copies this build into a folder that is there. @returns the folder of the program */
export function copyBuild(folder: string, name: string): string {
  const program = join(folder, name);
  for (const part of ["cli", "handlers", "lib", "package.json", "deno.json"]) {
    cpSync(join(PROJECT_ROOT, part), join(program, part), { recursive: true });
  }
  symlinkSync(join(PROJECT_ROOT, "node_modules"), join(program, "node_modules"));
  return program;
}

/** Returns what changes the files of a build. */
function changesOf(program: string): Change {
  return (path, from, to) => {
    const file = join(program, path);
    const text = readFileSync(file, "utf8");
    assert.ok(text.includes(from), `${path} has changed: ${from}`);
    writeFileSync(file, text.replaceAll(from, () => to));
  };
}

/** Has a build of this version claim another one. */
export function claimVersion(program: string, version: string): void {
  changesOf(program)("lib/base/version.ts", VERSION, version);
}

/** Copies this build, with changes. @returns the folder of the program */
function build(folder: string, name: string, edit: (change: Change) => void): string {
  const program = copyBuild(folder, name);
  edit(changesOf(program));
  return program;
}

/** Makes a build that claims the next version of Postern, of the schema and of records: each that it writes has one more field. */
export function buildAfter(folder: string): string {
  return build(folder, "after", (change) => {
    change("lib/base/version.ts", VERSION, VERSION_AFTER);
    change("lib/storage/postgres/schema.ts", "\n];", `\n  ${JSON.stringify(STEP_AFTER)},\n];`);
    change(
      "lib/storage/encode_write.ts",
      "return checked(body, toStoredJson(body));",
      `const json = checked(body, toStoredJson(body));
  return json.startsWith("{") ? JSON.stringify({ ${FIELD_AFTER}: true, ...JSON.parse(json) }) : json;`,
    );
  });
}

/**
 * Makes a build that claims the version before of Postern and of records: a conversation has no title, and the record of a workspace says
 * nothing.
 * @param schemaStep step of the schema that the build knows. 1: it reads and writes nothing of a later step. Default: that of this version
 */
export function buildBefore(folder: string, { schemaStep }: { readonly schemaStep?: 1 } = {}): string {
  return build(folder, `before-${schemaStep ?? ""}`, (change) => {
    change("lib/base/version.ts", VERSION, VERSION_BEFORE);
    change("lib/runs/conversations/conversation_records.ts", "  title: v.optional(v.string()),\n", "");
    change("lib/runs/conversations/conversations.ts", "? firstWords(messages)", "? undefined");
    const record = "lib/cluster/workspace_record.ts";
    change(record, "isOwnWorkspace(this.id)", "true");
    change(record, "if (known === this.#known) return;", "return;");
    change(record, "      ...body,\n", "");
    change(
      record,
      "      last_gateway: toPlace({ host, folder: workspace.folder, data_dir: workspace.dataDir }),\n",
      "",
    );
    if (schemaStep === undefined) return;
    change("lib/storage/postgres/schema.ts", "\n];", `\n].slice(0, ${schemaStep});`);
    const queries = "lib/storage/postgres/record_queries.ts";
    change(queries, "field${slotOf(field)} = ?", "${columnBefore(field)} = ?");
    change(queries, "ORDER BY bit_count(v.signs # ", "ORDER BY length(");
    change(
      queries,
      "return INDEXED_FIELDS.filter((field) => field.collection === collection)",
      "return INDEXED_FIELDS.filter((field) => field.collection === collection && !isLater(field))",
    );
    change(
      queries,
      "/** Returns the records of rows",
      `const isLater = ({ collection }: IndexedField) => ["run_claims", "open_sops", "open_deliveries"].includes(collection);
const columnBefore = (field: IndexedField) =>
  isLater(field) ? \`coalesce(to_json(body::json->>'\${field.path[0]}')::text, '""')\` : \`field\${slotOf(field)}\`;

/** Returns the records of rows`,
    );
  });
}

import type { Migration } from "./migration.ts";

/** Fields the routes filter by, at the time of this version: collection, name of the index, path in the body, order in the index. */
const FIELDS = [
  ["runs", "runs_by_run_status", "$.run.status", "id"],
  ["approvals", "approvals_by_status", "$.status", "id"],
  ["deliveries", "deliveries_by_status", "$.status", "id"],
  ["audit", "audit_by_type", "$.type", "key"],
  ["audit", "audit_by_tool", "$.tool", "key"],
  ["audit", "audit_by_run_id", "$.run_id", "key"],
] as const;

/**
 * An index for each field that a filter may ask for. A body that is no JSON is in none of them.
 *
 * The index of the first parts of keys leaves out keys without a slash, which nothing asks it for.
 */
export const migration0003: Migration = {
  version: 3,
  up(database) {
    database.exec(`
      DROP INDEX records_scoped;
      CREATE INDEX records_scoped ON records (collection, substr(key, 1, instr(key, '/')), id) WHERE instr(key, '/') > 0;
    `);
    for (const [collection, index, path, order] of FIELDS) {
      database.exec(
        `CREATE INDEX ${index} ON records (CASE WHEN json_valid(body) THEN json_extract(body, '${path}') END, ${order})
         WHERE collection = '${collection}'`,
      );
    }
  },
};

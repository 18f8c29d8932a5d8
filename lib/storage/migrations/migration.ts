import type { DatabaseSync } from "node:sqlite";

/** One step forward of the database's form. A released one never changes. */
export interface Migration {
  /** The database's version after it; counts from 1 without a gap */
  readonly version: number;
  /** Runs inside a transaction that the caller opens and ends */
  readonly up: (database: DatabaseSync) => void;
}

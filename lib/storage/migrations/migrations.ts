import type { Migration } from "./migration.ts";
import { migration0001 } from "./migration_0001_records_and_streams.ts";
import { migration0002 } from "./migration_0002_scoped_texts.ts";
import { migration0003 } from "./migration_0003_indexed_fields.ts";

/** Every migration, oldest first. A new one is added at the end and never changed once it was released. */
export const migrations: readonly Migration[] = [migration0001, migration0002, migration0003];

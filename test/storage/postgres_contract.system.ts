import { NO_POSTGRES } from "../support/postgres_server.ts";
import { withPgliteStore, withPostgresStore } from "../support/postgres_stores.ts";
import { type Driver, testStore } from "./store_contract.ts";

const DRIVERS: readonly Driver[] = [
  { name: "postgres", skip: NO_POSTGRES, with: withPostgresStore },
  {
    name: "pglite",
    skip: NO_POSTGRES === false && "a real server runs the same tests",
    with: withPgliteStore,
  },
];

for (const driver of DRIVERS) testStore(driver);

import process from "node:process";

/** Every route with everything that is tried on a third of the routes in each run of the tests. */
process.env["TRIES"] = "2";
await import("./bad_input.test.ts");

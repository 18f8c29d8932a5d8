import process from "node:process";

/** Repeats up to eight atoms of each pattern together, where every run of the tests repeats four. */
process.env["TRIES"] = "2";
await import("./patterns.test.ts");

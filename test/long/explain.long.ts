import process from "node:process";

/** Compares what explain says with what the door does, for 2,000 calls of each tool: about fifteen minutes. */
process.env["TRIES"] = "250";
await import("../tools/explain.test.ts");

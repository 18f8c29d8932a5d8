import process from "node:process";

/** Searches of 8,000 random trees leave out what `git check-ignore` names, and nothing else. */
process.env["TRIES"] = "40";
await import("../system/files/gitignore.test.ts");

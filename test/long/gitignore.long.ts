import process from "node:process";

/** Searches of 7,520 random trees leave out what `git check-ignore` names, and nothing else. */
process.env["TRIES"] = "188";
await import("../system/files/gitignore.test.ts");

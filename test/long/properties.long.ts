import process from "node:process";

/** Properties that each take seconds, with thirty times as many examples as in every run of the tests. */
process.env["TRIES"] = "30";
for (const path of ["../tools/policy.test.ts", "../tools/files/search_trees.test.ts"]) await import(path);

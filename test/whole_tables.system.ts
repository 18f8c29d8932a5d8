import process from "node:process";

/** Tables of which `npm test` tries a third: whole, and with twice as many examples of properties. */
process.env["TRIES"] = "2";
const paths = [
  "./cli/serve/watch_config.test.ts",
  "./journeys/bad_input.test.ts",
  "./providers/offline/offline_answers.test.ts",
  "./tools/git/layouts.test.ts",
  "./tools/web/web_fetch.test.ts",
];
for (const path of paths) await import(path);

import process from "node:process";

/** Properties and sizes that each take seconds, with thirty times as many examples as in every run of the tests. */
process.env["TRIES"] = "30";
const paths = [
  "../automation/cron/cron.test.ts",
  "../automation/sops/load_definitions.test.ts",
  "../extensions/plugins/wasm/meter_body.test.ts",
  "../guard/approval_properties.test.ts",
  "../guard/elicitation.test.ts",
  "../guard/tainted_files.test.ts",
  "../host/service/service_files.test.ts",
  "../providers/offline/offline_answers.test.ts",
  "../runs/journal/follow_run.test.ts",
  "../storage/store_contract.test.ts",
  "../system/net/reply_body.test.ts",
  "../system/process/tokenize.test.ts",
  "../tools/contract.test.ts",
  "../tools/files/apply_patch.test.ts",
  "../tools/files/search_trees.test.ts",
  "../tools/policy.test.ts",
  "../tools/runtime/bind_call.test.ts",
  "../tools/web/web_fetch.test.ts",
];
for (const path of paths) await import(path);

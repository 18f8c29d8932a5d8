import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { comparePicture } from "../pictures/picture.ts";
import { loadsUntilHealth } from "../support/loads_until_health.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

/** Packages that a gateway cannot answer /health without */
const PACKAGES = [
  ...["@valibot/to-json-schema", "citty", "confbox", "consola", "fast-string-truncated-width", "fast-string-width"],
  ...["itty-router", "srvx", "valibot"],
];

/** Modules that load on first use: imported with `await import(...)` where it is needed, see lib/base/lazily.ts */
const LATER = [
  "handlers/routes.ts",
  "handlers/websocket/socket_session.ts",
  "handlers/wire/to_completion_input.ts",
  "lib/agent/run_agent.ts",
  "lib/agent/tool_calls.ts",
  "lib/automation/cron/cron_service.ts",
  "lib/automation/sops/sop_service.ts",
  "lib/extensions/mcp/",
  "lib/extensions/nodes/",
  "lib/extensions/plugins/",
  "lib/extensions/skills/",
  "lib/guard/audit/list_audit.ts",
  "lib/guard/audit/record_trust.ts",
  "lib/guard/audit/verify_audit.ts",
  "lib/memory/mailbox.ts",
  "lib/providers/anthropic/",
  "lib/providers/openai/",
  "lib/providers/upstream/upstream_http.ts",
  "lib/runs/conversations/run_opening.ts",
  "lib/runs/journal/run_recorder.ts",
  "lib/runs/recovery/",
  "lib/runs/sub_agents/sub_agent_service.ts",
  "lib/runs/supervisor/start_run.ts",
  "lib/system/git/",
  "lib/documents/docx/",
  "lib/documents/image/",
  "lib/documents/pdf/",
  "lib/storage/create_memory_store.ts",
  "lib/tools/files/edit_text.ts",
  "lib/tools/files/apply_hunks.ts",
  "lib/tools/git/run_operation.ts",
];

/** Modules of Postern itself. Each costs a start about a tenth of a millisecond, in one file with the others */
const MAX_MODULES = 354;

const MAIN = join(PROJECT_ROOT, "cli/main.ts");
const ON_DENO = "Deno" in globalThis;

describe("a start with the offline provider", { skip: ON_DENO && "Deno has no hook that sees modules load" }, () => {
  let own: readonly string[] = [];
  let packages: readonly string[] = [];

  before(async () => {
    const loads = await loadsUntilHealth(MAIN, { POSTERN__PROVIDER__KIND: "offline" });
    own = loads.filter((url) => url.startsWith("file:") && !url.includes("/node_modules/")).map((url) =>
      url.slice(url.indexOf(PROJECT_ROOT) + PROJECT_ROOT.length + 1)
    );
    const names = loads.map((url) => /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1]);
    packages = [...new Set(names.filter((name) => name !== undefined))].sort();
  });

  test("it loads these packages and no other", () => {
    assert.deepEqual(packages, PACKAGES);
  });

  test("start_modules.txt shows its modules", () => comparePicture("start_modules.txt", own.toSorted()));

  test("it leaves to the first use what /health does not need", () => {
    assert.deepEqual(own.filter((file) => LATER.some((place) => file.startsWith(place))), []);
  });

  test("with a provider elsewhere, the HTTP client is left for after the start", async () => {
    const loads = await loadsUntilHealth(MAIN, {
      POSTERN__PROVIDER__KIND: "openai_compatible",
      POSTERN__PROVIDER__BASE_URL: "http://127.0.0.1:9/v1",
      POSTERN__PROVIDER__MODEL: "m",
    });
    assert.ok(loads.some((url) => url.endsWith("lib/providers/openai/openai_compatible.ts")));
    assert.deepEqual(loads.filter((url) => url.includes("/undici/")), []);
  });

  test(`it loads at most ${MAX_MODULES} modules`, () => {
    const rooms = Object.entries(Object.groupBy(own, (file) => file.split("/").slice(0, -1).join("/")));
    const counts = rooms.map(([room, files = []]) => `${room} ${files.length}`).sort();
    assert.ok(own.length <= MAX_MODULES, `${own.length}: ${counts.join(", ")}`);
  });
});

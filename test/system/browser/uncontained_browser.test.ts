import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { requireUncontained } from "../../../lib/system/browser/uncontained_browser.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const NONE = { kind: "none", reason: "bubblewrap is not installed" } as const;
const MAY = { requiresSandbox: false, isRoot: false, policies: [] };
const code = "browser_not_contained";

test("a browser without bubblewrap is refused to root, where the sandbox is required, and while bubblewrap may answer yet", async () => {
  await requireUncontained(NONE, MAY);
  await assert.rejects(requireUncontained(NONE, { ...MAY, isRoot: true }), { code, message: /runs as root/ });
  await assert.rejects(requireUncontained(NONE, { ...MAY, requiresSandbox: true }), {
    code,
    message: /requires the sandbox.*sandbox = "auto" in \[browser\] and \[security\.shell\]$/,
  });
  const unanswered = { kind: "unanswered", reason: "bubblewrap did not answer within 10 s" } as const;
  await assert.rejects(requireUncontained(unanswered, MAY), {
    code,
    message: /did not answer within 10 s; try again$/,
  });
});

test("a browser without bubblewrap is refused where a policy of the administrator may lead it elsewhere", () =>
  withTemporaryFolder(async (folder) => {
    const policies = [join(folder, "managed"), join(folder, "nowhere")];
    mkdirSync(join(folder, "managed"));
    const write = (name: string, text: string) => writeFileSync(join(folder, "managed", name), text);
    const check = () => requireUncontained(NONE, { ...MAY, policies });
    write("harmless.json", '{ "HomepageLocation": "http://example.com/" }');
    await check();
    for (
      const [name, text] of [
        ["proxy.json", '{ "ProxyMode": "direct" }'],
        ["proxy.json", '{ "ProxySettings": { "ProxyBypassList": "*.example.com" } }'],
        ["webrtc.json", '{ /* comment */ "WebRtcIPHandling": "default" }'],
        ["extension.json", '{ "ExtensionInstallForcelist": ["abc"] }'],
        ["CloudManagementEnrollmentToken", "token"],
      ] as const
    ) {
      write(name, text);
      await assert.rejects(check(), { code, message: /a policy of the administrator \(.*\) may lead/ }, text);
      write(name, "{}");
      if (name.startsWith("Cloud")) break;
      await check();
    }
  }));

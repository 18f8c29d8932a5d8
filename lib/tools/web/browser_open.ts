import { resolve } from "node:path";
import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { allows } from "../../system/net/url_rules.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { refuseSecrets } from "./refuse_secrets.ts";

const ALLOWED_KEY = "[browser] allowed_domains";

/** `browser_open`: opens an address in the user's own browser (docs/design/browser.md "The user's own browser"). */
export const browserOpen = defineTool({
  name: "browser_open",
  description: "Opens an address in the user's own browser, for the user to see. Gives nothing of the page",
  access: "network",
  enabled: (config) => config.browser.enabled,
  enabledBy: "[browser] enabled = true",
  needs: ["desktop", "urls", "redactor"],
  input: v.strictObject({
    url: v.pipe(v.string(), v.minLength(1), v.maxLength(8192), v.description("http or https address")),
  }),
  textField: "url",
  effects: ({ url }) => ({ urls: [url] }),
  // Before a name is looked up: the look-up would tell its server of it
  admit: ({ url }, { browser }) => requireListed(url, browser),
  async run({ url }, { services: { desktop, urls, redactor }, config, workspaceRoot, signal }) {
    refuseSecrets({ URL: url }, redactor);
    const { createBrowserPolicy } = await import("../../system/browser/browser_network.ts");
    const policy = createBrowserPolicy(urls, () => config.browser.allowed_domains);
    // No proxy is asked: the browser uses none of Postern's
    const checked = await policy.check(url, config.url_access, { signal });
    const writable = [workspaceRoot, resolve(workspaceRoot, config.security.write_file.allowed_root)];
    const { program, isRunning } = await desktop.openUrl(checked.url, { signal, writable });
    const { href } = checked.url;
    const runsOn = isRunning ? ", which is still running" : "";
    return {
      output:
        `Asked the user's browser, by ${program}${runsOn}, to open ${href}; whether the page is shown is not known`,
      isError: false,
      data: { url: href, program, running: isRunning },
    };
  },
});

/** @throws {ToolError} `url_scheme`, `url_credentials`, `url_not_allowed`. What is no URL is left to the policy */
function requireListed(text: string, { allowed_domains: entries }: Pick<Config["browser"], "allowed_domains">): void {
  const url = URL.parse(text);
  if (url === null) return;
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    const scheme = url.protocol.slice(0, 40);
    throw new ToolError("url_scheme", `Cannot open a "${scheme}" address: only http: and https: are opened`);
  }
  const host = url.hostname.slice(0, 100);
  if (url.username !== "" || url.password !== "") {
    const reason = 'it has a user or a password before the "@", which hides where it leads; leave that out';
    throw new ToolError("url_credentials", `Cannot open an address of "${host}": ${reason}`);
  }
  if (entries.length === 0 || entries.includes("*") || allows(entries, url)) return;
  throw new ToolError(
    "url_not_allowed",
    `Cannot open an address of "${host}": add "${host}" to ${ALLOWED_KEY} to allow it`,
  );
}

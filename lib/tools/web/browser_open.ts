import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";

/** `browser_open`: opens an address in the browser of the person at the screen (docs/design/paths_and_commands.md "The desktop"). */
export const browserOpen = defineTool({
  name: "browser_open",
  description:
    "Opens an address in the browser of the person at this machine's screen, for the person to see. Returns nothing of the page",
  access: "network",
  enabled: (config) => config.browser.enabled,
  enabledBy: "[browser] enabled = true",
  needs: ["desktop", "urls"],
  input: v.strictObject({
    url: v.pipe(v.string(), v.minLength(1), v.maxLength(8192), v.description("http or https address")),
  }),
  textField: "url",
  effects: ({ url }) => ({ urls: [url] }),
  async run({ url }, { services, config, signal }) {
    const { createBrowserPolicy } = await import("../../system/browser/browser_network.ts");
    const policy = createBrowserPolicy(services.urls, () => config.browser.allowed_domains);
    const checked = await policy.check(url, config.url_access, { signal });
    const { href } = checked.url;
    await services.desktop.openUrl(href, { signal });
    return { output: `opened url=${JSON.stringify(href)}`, isError: false, data: { url: href } };
  },
});

import type { BrowserLogin } from "../../lib/base/records/browser_login.ts";
import { clientOf } from "./ask_gateway.ts";
import { type Check, fine, warning } from "./finding.ts";

const NAME = "browser logins";

/** Checks whether each site that `[browser] logins` names has a login that can be used. */
export const browserLoginsCheck: Check = {
  name: NAME,
  async run(installation) {
    const { browser } = installation.loaded.config;
    if (!browser.enabled || browser.logins.length === 0) return [];
    const client = clientOf(installation);
    if (client === undefined) return fine(NAME, "Not looked at: no gateway runs");
    const { status, body } = await client.request({ method: "GET", path: "/v1/browser-logins" });
    if (status !== 200) return warning(NAME, "The gateway does not tell of its logins", "postern browser logins");
    const { data } = body as { readonly data: readonly BrowserLogin[] };
    const sites = [...new Set(browser.logins)];
    const unusable = sites.flatMap((site) => {
      const login = data.find((one) => one.site === site);
      if (login !== undefined && login.state === "kept") return [];
      const reason = login === undefined ? "nobody signed in there" : login.reason ?? login.state;
      return [
        warning(
          NAME,
          `[browser] logins names "${site}", and runs do without: ${reason}`,
          `postern browser login ${site}`,
        ),
      ];
    });
    return unusable.length > 0 ? unusable : fine(NAME, `${sites.length} of ${sites.length} can be used`);
  },
};

import { askRoute } from "../reach_gateway.ts";
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
    const list = await askRoute(client, "GET /v1/browser-logins");
    if (list === undefined) return warning(NAME, "The gateway does not tell of its logins", "postern browser logins");
    const sites = [...new Set(browser.logins)];
    const unusable = sites.flatMap((site) => {
      const login = list.data.find((one) => one.site === site);
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

import { existsSync } from "node:fs";
import { after, before } from "node:test";
import { noContainedBrowser } from "./browser_bench.ts";
import { type LoginSites, openLoginSites } from "./login_sites.ts";
import { startXvfb } from "./xvfb.ts";

const XVFB = "/usr/bin/Xvfb";

/** Sites to sign in at, and a display for the window. */
export interface LoginScreen {
  readonly sites: LoginSites;
  /** Value of DISPLAY */
  readonly display: string;
}

/** Returns why this machine can show no window to sign in; false where it can. */
export async function noLoginScreen(): Promise<string | false> {
  return await noContainedBrowser() || (existsSync(XVFB) ? false : "there is no Xvfb");
}

/** Opens sites and display for the tests of a suite, and closes them after it. @returns them, once the first test runs */
export function useLoginScreen(): () => LoginScreen {
  let opened: LoginScreen & { readonly close: () => Promise<void> } | undefined;
  before(async () => {
    const sites = await openLoginSites();
    const { display, stop } = await startXvfb(XVFB);
    opened = {
      sites,
      display,
      async close() {
        stop();
        await sites.close();
      },
    };
  });
  after(() => opened?.close());
  return () => {
    if (opened === undefined) throw new TypeError("Sites and display are there within a test");
    return opened;
  };
}

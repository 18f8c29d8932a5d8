import { ToolError } from "../../base/errors.ts";
import type { KeptLogin } from "../../base/records/browser_login.ts";
import { MAX_JAR_BYTES } from "../../memory/cookie_jars.ts";
import type { BrowserPages } from "../../system/browser/browser_page.ts";
import { reachesLogin } from "../../system/browser/login_hosts.ts";
import { loginsOf } from "./browser_input.ts";
import type { ContextWith } from "../runtime/define_tool.ts";

type Context = ContextWith<"cookieJars" | "browserLogins">;

/**
 * Gives a new browser the logins that `[browser] logins` names, and the cookies of its conversation. A login that cannot be used is left
 * out, and the next answer says so.
 * @throws {ToolError} as `CookieJars.get`
 */
export async function giveState(pages: BrowserPages, context: Context): Promise<void> {
  await giveLogins(pages, context);
  const conversation = keeperOf(context);
  if (conversation === undefined) return;
  const kept = await context.services.cookieJars.get(conversation);
  const refused = await pages.addCookies(kept.filter((cookie) => !reachesLogin(cookie, pages.loginHosts)));
  if (refused > 0) pages.note(`The browser refused ${refused} of the kept cookies`);
}

async function giveLogins(pages: BrowserPages, context: Context): Promise<void> {
  const logins: (KeptLogin & { readonly site: string })[] = [];
  for (const site of loginsOf(context.config)) {
    try {
      logins.push({ site, ...await context.services.browserLogins.open(site, context) });
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      context.log.warn("A login of the browser cannot be used", { site, code: error.code });
      pages.note(error.message);
    }
  }
  if (logins.length === 0) return;
  const refused = await pages.addLogins(logins);
  pages.note(`A person signed the browser in at ${logins.map(({ site }) => JSON.stringify(site)).join(", ")}`);
  if (refused > 0) pages.note(`The browser refused ${refused} cookies of the logins`);
}

/**
 * Keeps the cookies after each operation: a browser may end at any time. Those of a login's hosts are never kept, so that no conversation
 * goes on with a login that was taken back. Says in the next answer when it cannot. Never throws
 */
export async function keepState(pages: BrowserPages, context: Context): Promise<void> {
  await pages.guardLogins().catch(() => {});
  const conversation = keeperOf(context);
  if (conversation === undefined) return;
  // A browser that has ended has none to tell
  const cookies = await pages.cookies().catch(() => undefined);
  if (cookies === undefined) return;
  try {
    const own = cookies.filter((cookie) => !reachesLogin(cookie, pages.loginHosts));
    const isKept = await context.services.cookieJars.set(conversation, own);
    if (!isKept) pages.note(`The cookies of the pages have more than ${MAX_JAR_BYTES} bytes and were not kept`);
  } catch (error) {
    // The operation was made, and must not look as if it had failed
    context.log.error("Cookies of a browser could not be kept", { error });
    pages.note("The cookies of the pages could not be kept");
  }
}

/** Returns the conversation whose cookies are kept; undefined where none are. */
function keeperOf({ config, conversationId }: Pick<Context, "config" | "conversationId">): string | undefined {
  return config.browser.keep_cookies ? conversationId ?? undefined : undefined;
}

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ANY_CHROMIUM } from "../../support/chromium.ts";
import { noContainedBrowser, openSite, type Site, withBrowserBench } from "../../support/browser_bench.ts";

const skip = await noContainedBrowser();

let site: Site;
before(async () => {
  site = await openSite({
    "/in": (_request, response) => {
      response.writeHead(200, { "content-type": "text/html", "set-cookie": "session=kept-value; HttpOnly; Path=/" });
      response.end("<title>In</title>");
    },
    "/who": (request, response) => {
      response.writeHead(200, { "content-type": "text/html" });
      response.end(`<title>${request.headers.cookie ?? "nobody"}</title>`);
    },
  });
});
after(() => site.close());

/** Signs in during the run `run_1` of the conversation `conv_1`. Then `use` asks whom the site knows in another run. */
function withSignedIn(
  keepCookies: boolean,
  use: (whoIn: (runId: string, conversationId?: string) => Promise<string | undefined>) => Promise<void>,
): Promise<void> {
  const config = {
    url_access: { allow_loopback: true },
    browser: { keep_cookies: keepCookies, executable: ANY_CHROMIUM },
  };
  return withBrowserBench({ config }, async ({ call, browsers }) => {
    const open = async (path: string, runId: string, conversationId?: string) => {
      const { output } = await call({ op: "navigate", url: `${site.origin}${path}` }, runId, conversationId);
      return /title="([^"]*)"/.exec(output)?.[1];
    };
    assert.equal(await open("/in", "run_1", "conv_1"), "In");
    // A run that ends closes its browser
    await browsers.closeRun("run_1");
    await use((runId, conversationId) => open("/who", runId, conversationId));
  });
}

test(
  "with keep_cookies a site knows the later runs of a conversation, and no other run",
  { skip },
  () =>
    withSignedIn(true, async (whoIn) => {
      assert.equal(await whoIn("run_2", "conv_1"), "session=kept-value");
      assert.equal(await whoIn("run_3", "conv_2"), "nobody", "another conversation");
      assert.equal(await whoIn("run_4"), "nobody", "no conversation");
    }),
);

test(
  "without keep_cookies a site knows no later run",
  { skip },
  () => withSignedIn(false, async (whoIn) => assert.equal(await whoIn("run_2", "conv_1"), "nobody")),
);

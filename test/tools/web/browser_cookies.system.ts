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

/** Signs in during a first run of a conversation, and returns what the site knows of three later runs. */
async function whoIsKnown(keepCookies: boolean): Promise<Readonly<Record<string, string | undefined>>> {
  const config = {
    url_access: { allow_loopback: true },
    browser: { keep_cookies: keepCookies, executable: ANY_CHROMIUM },
  };
  const known: Record<string, string | undefined> = {};
  await withBrowserBench({ config }, async ({ call, browsers }) => {
    const open = async (path: string, runId: string, conversationId?: string) => {
      const { output } = await call({ op: "navigate", url: `${site.origin}${path}` }, runId, conversationId);
      return /title="([^"]*)"/.exec(output)?.[1];
    };
    assert.equal(await open("/in", "run_1", "conv_1"), "In");
    // A run that ends closes its browser
    await browsers.closeRun("run_1");
    known["later run"] = await open("/who", "run_2", "conv_1");
    known["other conversation"] = await open("/who", "run_3", "conv_2");
    known["no conversation"] = await open("/who", "run_4");
  });
  return known;
}

test("with keep_cookies a site knows the later runs of a conversation, and no other run", { skip }, async () => {
  assert.deepEqual(await whoIsKnown(true), {
    "later run": "session=kept-value",
    "other conversation": "nobody",
    "no conversation": "nobody",
  });
});

test("without keep_cookies a site knows no later run", { skip }, async () => {
  assert.equal((await whoIsKnown(false))["later run"], "nobody");
});

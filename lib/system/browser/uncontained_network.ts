import { chmod, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { BrowserContext } from "playwright-core";
import { ToolError } from "../../base/errors.ts";
import { Relay, RELAY_USER } from "../net/relay.ts";
import { type BrowserNetworkOptions, type BrowserWay, createBrowserPolicy, isOfVendor } from "./browser_network.ts";
import { NarrowedWay } from "./narrowed_way.ts";
import { notContained, type UncontainedPlace } from "./uncontained_browser.ts";

/** The way of one uncontained browser to the outside, which its switches tell it to take. */
export interface UncontainedNetwork extends BrowserWay, UncontainedPlace {
  /**
   * Gives the browser the password of the way, and proves that requests of a context take it: those to this machine too.
   * @throws {ToolError} `browser_not_contained` where one does not
   */
  prove(context: BrowserContext): Promise<void>;
}

/** Milliseconds for each request that proves the way */
const PROOF_MS = 10_000;
const PROOF = "The browser took its way";

/**
 * Opens the way to the outside for one browser without bubblewrap: a relay on 127.0.0.1, which asks the URL policy for each request, and
 * a password that other users of the machine do not know.
 */
export async function openUncontainedNetwork(options: BrowserNetworkOptions): Promise<UncontainedNetwork> {
  const { random } = options;
  const password = random.id("");
  const proof = random.id("");
  const proven = new Set<string>();
  const policy = new NarrowedWay(createBrowserPolicy(options.policy, options.allowedDomains));
  const fresh: { readonly host: string; readonly reason: string }[] = [];
  const relay = new Relay({
    ...options,
    policy: {
      check(text, rules, more) {
        if (!text.includes(proof)) return policy.check(text, rules, more);
        const { protocol, hostname } = new URL(text);
        proven.add(`${protocol}//${hostname}`);
        return Promise.reject(new ToolError("url_not_allowed", PROOF));
      },
    },
    requiresList: false,
    password,
    onProblem: (problem) => void (isOfVendor(problem.host) || problem.reason === PROOF || fresh.push(problem)),
  });
  const folder = join(options.folder, random.id(""));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await chmod(options.folder, 0o700);
  const port = await relay.listenOnLoopback();
  return {
    folder,
    proxy: `http://127.0.0.1:${port}`,
    newProblems: () => fresh.splice(0),
    downloads: {
      folder: join(folder, "downloads"),
      remove: (name) => rm(join(folder, "downloads", name), { force: true }),
    },
    async prove(context) {
      const addresses = [
        `http://127.0.0.1/${proof}`,
        `http://localhost/${proof}`,
        `http://${proof}.invalid/`,
        `https://${proof}.invalid/`,
      ];
      await visit(context, addresses, password);
      const missing = addresses.map((address) => new URL(address)).find(({ protocol, hostname }) =>
        !proven.has(`${protocol}//${hostname}`)
      );
      if (missing === undefined) return;
      throw notContained(
        `without bubblewrap its requests must go through the gateway, and one for ${missing.protocol}//${missing.hostname} did not`,
        "install bubblewrap and allow user namespaces",
      );
    },
    narrow(mayReach) {
      policy.narrow(mayReach);
      relay.cut();
    },
    async close() {
      await relay.close();
      await rm(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** Opens addresses in a page that is closed again. The first one is asked for the password, which the context's network then keeps. */
async function visit(context: BrowserContext, addresses: readonly string[], password: string): Promise<void> {
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  session.on("Fetch.authRequired", ({ requestId, authChallenge }) => {
    const authChallengeResponse = authChallenge.source === "Proxy"
      ? { response: "ProvideCredentials" as const, username: RELAY_USER, password }
      : { response: "CancelAuth" as const };
    session.send("Fetch.continueWithAuth", { requestId, authChallengeResponse }).catch(() => {});
  });
  session.on("Fetch.requestPaused", ({ requestId }) => {
    session.send("Fetch.continueRequest", { requestId }).catch(() => {});
  });
  try {
    await session.send("Fetch.enable", { handleAuthRequests: true });
    for (const address of addresses) {
      await page.goto(address, { timeout: PROOF_MS, waitUntil: "commit" }).catch(() => {});
    }
  } finally {
    await page.close();
  }
}

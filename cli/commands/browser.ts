import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { CancelError } from "../../lib/base/cancel.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { systemCodeOf, ToolError } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import type { BrowserLogin } from "../../lib/base/records/browser_login.ts";
import { exactLine, listSome } from "../../lib/base/text.ts";
import {
  type LoginSite,
  parseLoginHost,
  parseLoginSite,
  type SiteState,
} from "../../lib/system/browser/login_hosts.ts";
import { signInByHand } from "../../lib/system/browser/login_window.ts";
import { createBrowserStarter } from "../../lib/system/browser/start_browser.ts";
import { createOwnAddress } from "../../lib/system/net/address.ts";
import { createUrlPolicy } from "../../lib/system/net/url_policy.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

const LOGINS = "/v1/browser-logins";
/** Hosts of other sites that are named when they were left out */
const MAX_NAMED = 8;

/** Command `postern browser login <site>`: a person signs in with a window, and the gateway keeps the login, encrypted. */
export const browserLoginCommand = defineCliCommand({
  args: {
    site: {
      type: "positional",
      required: true,
      description: "Host of the site, or the address of its page to sign in",
    },
    host: {
      type: "string",
      valueHint: "hosts",
      description:
        "Further hosts whose cookies are kept, with commas between them, such as the one that signs in for the site",
    },
  },
  example: "postern browser login app.example.com",
  async run(context, { site: named, host }) {
    const site = readSite(named, host);
    // A gateway that cannot take the login says so before anybody signs in
    let gatewayAddress: string | undefined;
    await withGateway(context, async (gateway) => {
      await listLogins(gateway);
      gatewayAddress = gateway.running?.record.address;
    });
    const state = await signIn(context, site, gatewayAddress);
    const { cookies, storage } = state;
    if (cookies.length === 0 && storage.length === 0) {
      const reason = "the site has set no cookie and stored no value; sign in in the window before you close it";
      throw new CommandError(`Cannot keep a login of "${site.site}": ${reason}${leftOut(state)}`);
    }
    return await withGateway(context, async (gateway) => {
      const body = { site: site.site, hosts: site.hosts, cookies, storage };
      const login = await gateway.call("POST /v1/browser-logins", { body });
      context.print(login, await describeKept(context, login, state));
    });
  },
});

/** Command `postern browser logins`: lists the logins, without cookies and values. */
export const browserLoginsCommand = defineCliCommand({
  args: {},
  example: "postern browser logins",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const logins = await listLogins(gateway);
      const rows = logins.map((login) => [
        ...[login.site, login.hosts.slice(1).join(", "), String(login.cookies), String(login.stored_values)],
        ...[login.created_at ?? "", login.expires_at ?? "", login.used_by_runs ? "yes" : "no"],
        login.reason === null ? login.state : `${login.state}: ${exactLine(login.reason)}`,
      ]);
      const heads = ["SITE", "FURTHER HOSTS", "COOKIES", "VALUES", "SINCE", "UNTIL", "RUNS GET IT", "STATE"];
      const none = 'There is no login; "postern browser login <site>" makes one';
      context.print(logins, rows.length === 0 ? context.named(none) : toTable(heads, rows, context.io.columns));
      for (const unknown of await unknownSites(context, logins)) {
        context.say(`browser.logins names "${exactLine(unknown)}", of which there is no login`);
      }
    }),
});

/** Command `postern browser logout <site>`: removes a login. The site itself is not told. */
export const browserLogoutCommand = defineCliCommand({
  args: { site: { type: "positional", required: true, description: "Site, from postern browser logins" } },
  example: "postern browser logout app.example.com",
  run: (context, { site }) =>
    withGateway(context, async (gateway) => {
      await gateway.request({ method: "DELETE", path: `${LOGINS}/${encodeURIComponent(site)}` });
      const rest =
        "A browser that is open keeps it until it ends, and the site is not told: sign out there to end the session itself";
      context.print({ site, removed: true }, `Removed the login of ${exactLine(site)}. ${rest}`);
    }),
});

interface NamedSite extends LoginSite {
  readonly hosts: readonly string[];
}

/** @throws {UsageError} for what is no host */
function readSite(named: string, further: string | undefined): NamedSite {
  try {
    const site = parseLoginSite(named);
    const others = (further ?? "").split(",").map((text) => text.trim()).filter((text) => text !== "").map(
      parseLoginHost,
    );
    return { ...site, hosts: [...new Set([site.site, ...others])] };
  } catch (error) {
    if (error instanceof ToolError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

async function listLogins(gateway: ReachedGateway): Promise<readonly BrowserLogin[]> {
  return (await gateway.call("GET /v1/browser-logins")).data;
}

async function unknownSites(context: CommandContext, logins: readonly BrowserLogin[]): Promise<readonly string[]> {
  const { config } = await context.loadConfig();
  return config.browser.logins.filter((site) => !logins.some((login) => login.site === site));
}

/** Opens the window and waits for the person. @throws {CommandError} nothing is kept */
async function signIn(
  context: CommandContext,
  site: NamedSite,
  gatewayAddress: string | undefined,
): Promise<SiteState> {
  const { config, dataDir } = await context.loadConfig();
  const ending = new AbortController();
  const person = new Person(context, () => ending.abort(new CancelError("cancelled", "Nothing was kept")));
  const random = createSystemRandom();
  const folder = await makeFolder(join(dataDir, "logins"), `${process.pid}.${random.id("")}`);
  const own = createOwnAddress([]);
  if (gatewayAddress !== undefined) own.listensOn(Number(new URL(gatewayAddress).port));
  const environment = (name: string) => context.io.env[name];
  const { executable, sandbox, max_download_bytes: maxDownloadBytes, allowed_domains: allowedDomains } = config.browser;
  try {
    return await signInByHand({
      starter: createBrowserStarter({
        commands: createCommandLookup(),
        clock: systemClock,
        marker: random.id("login_"),
        loadDriver: () => import("playwright-core"),
        session: { environment, home: context.io.home },
        network: {
          ...{ clock: systemClock, random, folder },
          policy: createUrlPolicy({ own: own.gateway }),
          rules: () => config.url_access,
          proxy: () => ({ ...config.proxy, environment }),
          allowedDomains: () => allowedDomains,
        },
        signal: ending.signal,
      }),
      request: {
        ...{ executable, maxDownloadBytes, signal: ending.signal },
        requiresSandbox: sandbox === "require" || config.security.shell.sandbox === "require",
      },
      clock: systemClock,
      site,
      hosts: site.hosts,
      onOpened: () => person.ask(site),
      onProblem: (sentence) => context.say(sentence),
      done: person.done,
    });
  } catch (error) {
    throw inWordsOfCommand(error);
  } finally {
    person.leave();
    await rm(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Person at the terminal who says when the sign-in is done, or that nothing shall be kept. */
class Person {
  readonly #context: CommandContext;
  readonly #onCancel: () => void;
  readonly #done = Promise.withResolvers<void>();
  readonly #forget: () => void;
  #isOver = false;
  #giveBack = () => {};

  constructor(context: CommandContext, onCancel: () => void) {
    this.#context = context;
    this.#onCancel = onCancel;
    this.#forget = context.io.onInterrupt(() => this.#cancel());
  }

  /** Resolves when Enter is pressed. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** Says what to do, and waits for Enter where there is a terminal. */
  ask({ site, url }: LoginSite): void {
    const { io, say } = this.#context;
    const ways = io.canAsk ? "press Enter here, or close the window" : "close the window";
    say(`A window opens ${exactLine(url)}. Sign in there, then ${ways}. Ctrl-C keeps nothing.`);
    say(`What is kept lets the agent act as you at ${site}, until you sign out there.`);
    void this.#listen();
  }

  leave(): void {
    this.#isOver = true;
    this.#forget();
    this.#giveBack();
  }

  async #listen(): Promise<void> {
    const reader = await this.#context.io.openReader([]);
    if (reader === undefined) return;
    this.#giveBack = () => reader.close();
    if (this.#isOver) return reader.close();
    const line = await reader.ask("");
    if (line === undefined) this.#cancel();
    else this.#done.resolve();
  }

  #cancel(): void {
    if (!this.#isOver) this.#onCancel();
  }
}

/** Makes a folder for sockets, and removes those of logins that were killed. */
async function makeFolder(parent: string, own: string): Promise<string> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  const left = (await readdir(parent)).filter((name) => !isRunning(Number(name.split(".")[0])));
  await Promise.all(left.map((name) => rm(join(parent, name), { recursive: true, force: true })));
  const folder = join(parent, own);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return folder;
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return systemCodeOf(error) === "EPERM";
  }
}

function inWordsOfCommand(error: unknown): unknown {
  if (!(error instanceof ToolError)) return error;
  if (error.code !== "no_display") return new CommandError(error.message, { cause: error });
  const wayOut =
    "run this command in a terminal of the desktop session; docs/tools.md says what to do on a server without one";
  const reason = "there is no display of this machine that the browser could reach";
  return new CommandError(`Cannot open a window to sign in: ${reason}; ${wayOut}`, { cause: error });
}

async function describeKept(context: CommandContext, login: BrowserLogin, state: SiteState): Promise<string> {
  const { site, cookies, stored_values: values, expires_at: end } = login;
  const { config: { browser } } = await context.loadConfig();
  const what = [count(cookies, "cookie"), ...(values === 0 ? [] : [count(values, "stored value")])].join(" and ");
  const until = end === null ? "" : `, until ${end}`;
  const list = JSON.stringify([...browser.logins, site]);
  const next = browser.logins.includes(site)
    ? browser.enabled
      ? "Runs get it from now on."
      : "Runs get it once the browser is on: postern config set browser.enabled true"
    : `No run gets it yet. To give it to the browsers of all runs: postern config set browser.logins '${list}'`;
  return `Kept the login of ${site}: ${what}${until}${leftOut(state)}\n${context.named(next)}`;
}

/** Names what was left out, with the way to keep it. Empty where nothing was. */
function leftOut({ others, tooLong }: SiteState): string {
  const named = listSome([...others].map(([host, number]) => `${exactLine(host)} (${number})`), MAX_NAMED);
  return [
    ...(named === "" ? [] : [`Left out cookies of other hosts, which --host would keep: ${named}`]),
    ...(tooLong === 0 ? [] : [`Left out ${count(tooLong, "stored value")}, since they are too long`]),
  ].map((line) => `\n${line}`).join("");
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

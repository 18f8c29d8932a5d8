import { chmod, mkdir, open, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import type { Random } from "../../base/random.ts";
import { ToolError } from "../../base/errors.ts";
import type { UrlPolicy } from "../net/url_policy.ts";
import { allows } from "../net/url_rules.ts";
import { Relay, type RelayOptions, type RelayProblem } from "../net/relay.ts";
import type { DownloadPlace } from "./browser_downloads.ts";
import { NarrowedWay } from "./narrowed_way.ts";
import { type ContainedNetwork, DOWNLOADS } from "./chromium.ts";

/** The way of one browser to the outside, which requests take. */
export interface BrowserWay {
  /** Place of downloads; a file is removed within about a second */
  readonly downloads: DownloadPlace;
  /** Returns the requests that were refused or failed since the last look. */
  newProblems(): readonly RelayProblem[];
  /** Ends every connection, and lets new ones reach only what a function allows. */
  narrow(mayReach: (url: URL) => boolean): void;
  /** Ends every connection. Repeating it does nothing */
  close(): Promise<void>;
}

/** The way of a contained browser, which has no other. */
export interface BrowserNetwork extends BrowserWay, ContainedNetwork {}

/** Policy and place of the way. */
export interface BrowserNetworkOptions extends Pick<RelayOptions, "policy" | "rules" | "clock" | "proxy"> {
  readonly random: Random;
  /** `[browser] allowed_domains` as it is now; empty: what `[url_access]` allows */
  readonly allowedDomains: () => readonly string[];
  /** Absolute path of a private folder for sockets, made when it is missing */
  readonly folder: string;
}

/** Where the browser's proxy listens, in a network that nobody else is in. */
const PORT = 3128;
/** Paths inside of the sandbox: the folder of this way, and the program that the forwarder runs in. */
const WAY = "/run/postern/way";
const RUNTIME = "/run/postern/runtime";
/** Names in the folder: the relay's socket, and the folder whose files name downloads that are to be removed. */
const SOCKET = "relay";
const REMOVED = "removed";

/**
 * Program that passes each connection of a port on to a Unix socket, whole and in both directions. Runs inside of the sandbox, beside
 * the browser, which needs its pipes from the gateway: a program in front of it that starts it would have to pass them on.
 */
const FORWARDER = `
const { connect, createServer } = process.getBuiltinModule("node:net");
const { writeFileSync } = process.getBuiltinModule("node:fs");
createServer({ allowHalfOpen: true }, (client) => {
  const relay = connect({ path: "${WAY}/${SOCKET}", allowHalfOpen: true });
  client.on("error", () => relay.destroy()).on("close", () => relay.destroy());
  relay.on("error", () => client.destroy()).on("close", () => client.destroy());
  client.pipe(relay).pipe(client);
}).listen(${PORT}, "127.0.0.1", () => writeFileSync("/tmp/ready", ""));
`;

/**
 * Starts the forwarder without the browser's pipes, waits until it listens, and becomes the browser. The forwarder ends with the browser,
 * which ends with the gateway's pipe: a sandbox that was being made when the gateway was killed may outlive the gateway. Meanwhile removes
 * the downloads that the gateway names: the browser has no command for it.
 */
const LAUNCHER = `
code=$1; shift
${RUNTIME} $RUNTIME_WORDS "$code" 3<&- 4<&- >/dev/null 2>&1 &
forwarder=$!
(while kill -0 $$; do
  sleep 1
  for name in ${WAY}/${REMOVED}/*; do rm -f "${DOWNLOADS}/\${name##*/}"; done
done; kill -9 $forwarder) 3<&- 4<&- >/dev/null 2>&1 &
while [ ! -e /tmp/ready ] && kill -0 $forwarder; do sleep 0.02; done
exec "$@"
`;

/**
 * Opens the way to the outside for one browser: a relay on a Unix socket, which asks the URL policy for each request, and a forwarder
 * inside of the browser's network, which is all that is there.
 */
export async function openBrowserNetwork(options: BrowserNetworkOptions): Promise<BrowserNetwork> {
  const { folder, random } = options;
  const fresh: RelayProblem[] = [];
  const policy = new NarrowedWay(createBrowserPolicy(options.policy, options.allowedDomains));
  const onProblem = (problem: RelayProblem) => void (isOfVendor(problem.host) || fresh.push(problem));
  const relay = new Relay({
    ...options,
    policy,
    requiresList: false,
    onProblem,
  });
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await chmod(folder, 0o700);
  const way = join(folder, random.id(""));
  await mkdir(join(way, REMOVED), { recursive: true, mode: 0o700 });
  await listen(relay, join(way, SOCKET));
  return {
    mounts: [
      ...["--ro-bind", way, WAY],
      ...["--ro-bind", runtimePath(), RUNTIME],
      ...[
        "--setenv",
        "RUNTIME_WORDS",
        process.versions["deno"] === undefined ? "-e" : "eval --no-config",
      ],
    ],
    launcher: ["/bin/sh", "-c", LAUNCHER, "sh", FORWARDER],
    proxy: `http://127.0.0.1:${PORT}`,
    newProblems: () => fresh.splice(0),
    downloads: { folder: DOWNLOADS, remove: (name) => writeFile(join(way, REMOVED, name), "") },
    narrow(mayReach) {
      policy.narrow(mayReach);
      relay.cut();
    },
    async close() {
      await relay.close();
      await rm(way, { recursive: true, force: true });
    },
  };
}

/**
 * Returns a policy that asks the lists first: a page makes up names, and a look-up of one that no list has would tell it to the name
 * servers of whoever owns it.
 */
export function createBrowserPolicy(
  policy: Pick<UrlPolicy, "check">,
  allowedDomains: () => readonly string[],
): Pick<UrlPolicy, "check"> {
  return {
    async check(text, rules, options) {
      const url = URL.parse(text);
      if (url !== null && VENDOR_HOSTS.includes(url.hostname)) throw refusedVendor(url.hostname);
      const entries = allowedDomains();
      if (url !== null && rules.enforce_domain_allowlist && !allows(rules.domain_allowlist, url)) {
        throw notListed(url, "[url_access] domain_allowlist");
      }
      const isListed = entries.length === 0 || entries.includes("*");
      if (url !== null && !isListed && !allows(entries, url)) throw notListed(url, ALLOWED_KEY);
      return await policy.check(text, rules, options);
    },
  };
}

/** Services of the browser's vendor that the browser asks by itself, switches or not, and no page does: they learn nothing of anybody. */
const VENDOR_HOSTS: readonly string[] = [
  "clientservices.googleapis.com",
  "content-autofill.googleapis.com",
  "edgedl.me.gvt1.com",
  "optimizationguide-pa.googleapis.com",
  "redirector.gvt1.com",
  "safebrowsing.googleapis.com",
  "update.googleapis.com",
];

/** Tells whether a host is such a service. */
export function isOfVendor(host: string): boolean {
  return VENDOR_HOSTS.includes(host);
}

function refusedVendor(host: string): ToolError {
  return new ToolError(
    "url_not_allowed",
    `Cannot reach "${host}": it is a service of the browser's vendor, which no page needs`,
  );
}

const ALLOWED_KEY = "[browser] allowed_domains";

function notListed(url: URL, key: string): ToolError {
  const host = url.hostname.slice(0, 100);
  return new ToolError("url_not_allowed", `Cannot reach "${host}": add "${host}" to ${key} to allow it`);
}

/** Deno puts arguments of its own behind its exact path, wherever that is in a command line. Any other spelling is left alone. */
function runtimePath(): string {
  return `${dirname(process.execPath)}/./${basename(process.execPath)}`;
}

/** A socket's path has at most 107 bytes: the folder's own handle is a short name for it. */
async function listen(relay: Relay, path: string): Promise<void> {
  if (Buffer.byteLength(path) <= 107) return await relay.listen(path);
  const handle = await open(dirname(path));
  try {
    await relay.listen(`/proc/self/fd/${handle.fd}/${basename(path)}`);
  } finally {
    await handle.close();
  }
}

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chown } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { systemClock } from "../../lib/base/clock.ts";
import { Browsers } from "../../lib/system/browser/browsers.ts";
import { findChromium } from "../../lib/system/browser/chromium.ts";
import type { ProxySettings } from "../../lib/system/net/proxy_choice.ts";
import { createUrlPolicy, type UrlPolicy } from "../../lib/system/net/url_policy.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { tryBubblewrap } from "../../lib/system/process/sandbox.ts";
import type { ToolCallRequest } from "../../lib/tools/runtime/tool_executor.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "./tool_bench.ts";
import { findChromium as findInstalled } from "./chromium.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { withWorkspace, type Workspace } from "./workspace.ts";

/** `skip` of a test that needs a contained browser: false, or the reason that is printed. */
export async function noContainedBrowser(): Promise<string | false> {
  const commands = createCommandLookup();
  const signal = new AbortController().signal;
  const found = await tryBubblewrap({ commands, clock: systemClock, signal });
  if (found.kind !== "bubblewrap") return `no contained browser: ${found.reason}`;
  return await findChromium("", commands).then(() => false as const, (error: Error) => error.message);
}

/** Ids of a user without rights, whom nobody is on most systems. */
const NOBODY = "65534";
const FIXTURE = fileURLToPath(new URL("../../fixtures/uncontained_browser.ts", import.meta.url));

/** `skip` of a test that needs a browser without bubblewrap, which is refused to root: false, or the reason that is printed. */
export function noUncontainedBrowser(): string | false {
  if (process.platform !== "linux") return "a browser without bubblewrap is tried on Linux alone";
  if (findInstalled() === undefined) return "no Chromium was found";
  return process.getuid?.() !== 0 || existsSync("/usr/bin/setpriv")
    ? false
    : "the test runs as root, and there is no setpriv";
}

/** Opens an address in a browser without bubblewrap, as fixtures/uncontained_browser.ts does. @returns what it says */
export async function runUncontained(origin: string): Promise<string> {
  let said = "";
  await withTemporaryFolder(async (folder) => {
    const isRoot = process.getuid?.() === 0;
    if (isRoot) await chown(folder, Number(NOBODY), Number(NOBODY));
    const runtime = process.versions["deno"] === undefined ? [] : ["run", "-A", "--no-lock"];
    const words = [process.execPath, ...runtime, FIXTURE, folder, findInstalled() ?? "", origin];
    const [command = "", ...args] = isRoot
      ? ["/usr/bin/setpriv", `--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups", ...words]
      : words;
    const { stdout } = await promisify(execFile)(command, args, { env: { PATH: process.env["PATH"], HOME: folder } });
    said = stdout;
  });
  return said;
}

/** Page of a test's site: its HTML, or a function that answers. */
export type SitePage = string | ((request: IncomingMessage, response: ServerResponse) => void);

/** Site on 127.0.0.1. */
export interface Site {
  readonly port: number;
  /** As `http://127.0.0.1:4711` */
  readonly origin: string;
  /** `GET /path` of each request, in order */
  readonly requests: readonly string[];
  close(): Promise<void>;
}

/** Serves pages by their paths; `*` is every other path. */
export async function openSite(pages: Readonly<Record<string, SitePage>>): Promise<Site> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? "/").split("?")[0] ?? "/";
    requests.push(`${request.method} ${request.url}`);
    const page = pages[path] ?? pages["*"];
    if (typeof page === "function") return page(request, response);
    response.writeHead(page === undefined ? 404 : 200, { "content-type": "text/html; charset=utf-8" });
    response.end(page ?? "nothing here");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens at a port has such an address
  const { port } = server.address() as AddressInfo;
  return {
    port,
    origin: `http://127.0.0.1:${port}`,
    requests,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Tools with real browsers, a workspace and a site. */
export interface BrowserBench {
  readonly workspace: Workspace;
  readonly bench: ToolBench;
  readonly browsers: Browsers;
  /** Makes a call of `browser` as a run's own. Default run: `run_1`, outside of a conversation */
  readonly call: (input: Readonly<Record<string, unknown>>, runId?: string, conversationId?: string) => Promise<{
    readonly output: string;
    readonly isError: boolean;
    readonly data?: unknown;
  }>;
}

/** Settings of the bench's browsers. */
export interface BrowserBenchOptions {
  readonly config?: ConfigChanges;
  readonly policy?: UrlPolicy;
  readonly proxy?: ProxySettings;
  /** Variables of a desktop session. Default: there is none */
  readonly session?: Readonly<Record<string, string>>;
  /** Environment of the gateway. Default: empty */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Marks a call as one inside of a run. */
export const IN_RUN: NonNullable<ToolCallRequest["inherited"]> = {
  limits: { maxIterations: 1, maxToolCalls: 1, tokensPerRun: 0 },
  tools: undefined,
  durable: false,
  approver: () => Promise.reject(new TypeError("Nobody is asked")),
};

/** Runs `use` with tools and real browsers, which are closed afterwards. */
export async function withBrowserBench(
  options: BrowserBenchOptions,
  use: (bench: BrowserBench) => Promise<void>,
): Promise<void> {
  await withWorkspace({}, async (workspace) => {
    const clock = systemClock;
    const commands = createCommandLookup();
    const random = createSeededRandom();
    const config: ConfigChanges = {
      ...options.config,
      autonomy: { level: "full", ...options.config?.autonomy },
      browser: { enabled: true, timeout_secs: 20, ...options.config?.browser },
    };
    const urls = options.policy ?? createUrlPolicy();
    const rules = {
      block_private_ip: true,
      allow_loopback: false,
      public_ranges: [],
      enforce_domain_allowlist: false,
      domain_allowlist: [],
      domain_blocklist: [],
      ...config.url_access,
    };
    const browsers = new Browsers({
      commands,
      clock,
      marker: "browser-bench",
      loadDriver: () => import("playwright-core"),
      session: { environment: (name) => options.session?.[name], home: "/nonexistent" },
      network: {
        ...{ clock, random, policy: urls, rules: () => rules },
        proxy: () => options.proxy ?? { http: "", https: "", no_proxy: [] },
        allowedDomains: () => config.browser?.allowed_domains ?? [],
        folder: join(workspace.outside, "browsers"),
      },
    });
    const bench = createToolBench({
      ...{ root: workspace.root, config, browsers, urls },
      ...options.proxy === undefined ? {} : { proxy: options.proxy },
      ...options.environment === undefined ? {} : { environment: options.environment },
    });
    try {
      await use({
        ...{ workspace, bench, browsers },
        call: async (input, runId = "run_1", conversationId) =>
          (await bench.call("browser", input, { runId, conversationId: conversationId ?? null, inherited: IN_RUN }))
            .result,
      });
    } finally {
      await browsers.close();
    }
  });
}

/** Returns the ref of the element whose line in a snapshot matches. */
export function refOf(snapshot: string, line: RegExp): string {
  const found = snapshot.split("\n").find((one) => line.test(one));
  const ref = /\[ref=(\w+)\]/.exec(found ?? "")?.[1];
  if (ref === undefined) throw new TypeError(`No line of the snapshot matches ${line}:\n${snapshot}`);
  return ref;
}

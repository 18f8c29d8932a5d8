import type { Config } from "../../lib/config/config.ts";
import { detectInit } from "../../lib/host/service/service_manager.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { type Check, type Finding, fine, warning } from "./finding.ts";

/** Program that the gateway can do without. */
interface OptionalProgram {
  /** Names to look for; the first that is found is taken */
  readonly names: readonly [string, ...string[]];
  readonly purpose: string;
  /** Consequence of the program being missing */
  readonly without: string;
  readonly install: string;
  /** Tells whether this configuration and machine have a use for the program */
  readonly isWanted: (config: Config) => boolean;
}

const PROGRAMS: readonly OptionalProgram[] = [
  {
    names: ["git"],
    purpose: "git_operations",
    without: "git_operations, which is on, cannot work",
    install: "apt install git",
    isWanted: (config) => config.enable_git,
  },
  {
    names: ["setpriv"],
    purpose: "commands that end with a killed gateway",
    without: "commands go on after a killed gateway, until its next start",
    install: "apt install util-linux",
    isWanted: () => process.platform === "linux",
  },
  {
    names: ["systemd-notify"],
    purpose: "a service that says when it is ready",
    without: "a service under systemd cannot say that it is ready, and its start fails",
    install: "apt install systemd",
    isWanted: () => detectInit({ platform: process.platform }) === "systemd",
  },
  {
    names: ["chromium", "chromium-browser", "google-chrome"],
    purpose: "pages in a real browser",
    without: "browser.enabled is on, and there is no browser",
    install: "apt install chromium, or name one in browser.executable",
    isWanted: ({ browser }) => browser.enabled && browser.executable === "",
  },
  {
    names: ["bwrap"],
    purpose: "the containment of the browser",
    without: "browser.enabled is on, and without bubblewrap the browser is weaker contained, or refused",
    install: "apt install bubblewrap",
    isWanted: ({ browser }) => browser.enabled,
  },
];

/** Checks for programs that some tools need, and says what does not work without them. */
export const programsCheck: Check = {
  name: "programs",
  async run({ loaded: { config } }) {
    const lookup = createCommandLookup();
    const found = await Promise.all(PROGRAMS.map(async (program) => {
      const paths = await Promise.all(program.names.map((name) => lookup.find(name)));
      return judge(program, { path: paths.find((path) => path !== undefined), config });
    }));
    return [...found, checkTokenizer(), checkDriver(config)];
  },
};

function judge(
  { names: [name], purpose, without, install, isWanted }: OptionalProgram,
  { path, config }: { readonly path: string | undefined; readonly config: Config },
): Finding {
  if (path !== undefined) return fine(name, `${path}, for ${purpose}`);
  return isWanted(config)
    ? warning(name, `Not installed: ${without}`, install)
    : fine(name, `Not installed, and not needed as configured; it is for ${purpose}`);
}

/** Checks for the optional package that the browser is driven by. */
function checkDriver({ browser }: Config): Finding {
  const name = "playwright-core";
  try {
    import.meta.resolve(name);
    return fine(name, "Installed: the tool browser can use a Chromium");
  } catch {
    if (!browser.enabled) return fine(name, "Not installed, and not needed as configured; it is for the tool browser");
    return warning(
      name,
      "Not installed: browser.enabled is on, and nothing can speak to a browser",
      `npm install ${name}`,
    );
  }
}

/** Checks for the optional package that counts tokens. */
function checkTokenizer(): Finding {
  const name = "gpt-tokenizer";
  try {
    import.meta.resolve("gpt-tokenizer/encoding/o200k_base");
    return fine(name, "Installed: usage that a provider does not report is counted");
  } catch {
    return fine(name, "Not installed: usage that a provider does not report is taken as bytes/4 (npm install it)");
  }
}

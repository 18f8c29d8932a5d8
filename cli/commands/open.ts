import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { CommandError, defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { openPage } from "../terminal/open_page.ts";
import { untilInterrupt } from "../terminal/show_run_events.ts";

/** Command `postern open`: opens the dashboard in the browser, which a code that counts once signs in. */
export const openCommand = defineCliCommand({
  args: {
    browser: { type: "boolean", default: true, description: "Print the address that signs in, and open nothing" },
  },
  example: "postern open",
  run: (context, { browser }) =>
    withGateway(context, async (gateway) => {
      if (gateway.running === undefined) {
        throw new CommandError("Cannot open the dashboard: no gateway is running; start one with postern gateway");
      }
      const { address } = gateway.running.record;
      const { code } = await gateway.call("POST /v1/pairing-code");
      const signedIn = `${address}#open=${code}`;
      const loaded = await context.loadConfig();
      // Everybody on the machine can read the arguments of a program, and so the browser gets the code from a file of this user
      const page = join(loaded.dataDir, "open.html");
      const { signal, stop } = untilInterrupt(context);
      try {
        if (browser) await writeAtomically(page, pageTo(signedIn), { isPrivate: true });
        const isOpen = browser && await openPage(context, loaded, { url: pathToFileURL(page), signal });
        if (browser && !isOpen) context.say("No browser can be opened here. Open this address on this machine:");
        context.print(
          { opened: isOpen, address: isOpen ? address : signedIn },
          isOpen ? `Opened ${address}` : signedIn,
        );
      } finally {
        stop();
      }
    }),
});

/** Returns a page that leads to an address, whose characters mean nothing in HTML. */
function pageTo(address: string): string {
  return `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">` +
    `<meta http-equiv="refresh" content="0;url=${address}"><title>Postern</title>\n`;
}

import { readControlFile, removeControlFile, writeControlFile } from "../../lib/host/control_file.ts";
import { VERSION } from "../../lib/base/version.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import type { GatewayServices } from "../../lib/gateway.ts";
import { bannerFacts, bannerText } from "../banner.ts";
import { checkBind } from "../check_bind.ts";
import { CommandError, UsageError } from "../cli_error.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { randomControlToken } from "../control_token.ts";
import { limitYoungGeneration } from "../limit_young_generation.ts";
import { EXIT } from "../exit_codes.ts";
import { type RunningServer, serveGateway } from "../serve.ts";
import { type StartOptions, startServices } from "../start_services.ts";

/** `postern gateway`: runs until SIGINT or SIGTERM, then drains; a second signal ends it at once (DESIGN.md sections 2 and 9). */
export const gatewayCommand = defineCliCommand({
  args: {
    host: { type: "string", valueHint: "address", description: "Address to listen on (default: 127.0.0.1)" },
    port: { type: "string", valueHint: "number", description: "Port to listen on, 0 for a free one (default: 42617)" },
    "new-pairing": { type: "boolean", description: "Revoke every token and print a fresh pairing code" },
    agent: { type: "boolean", default: true, negativeDescription: "Serve without an agent: chat answers 503" },
  },
  example: "postern gateway --port 8080",
  async run(context, args) {
    const loaded = await context.loadConfig(keysOf(args));
    const { config } = loaded;
    const onRequest = limitYoungGeneration();
    checkBind(config, { hasEnvironmentToken: (context.io.env["POSTERN_TOKEN"] ?? "") !== "" });
    const token = randomControlToken();
    const services = await startAlone(context, { loaded, agent: args.agent, controlToken: token });
    try {
      // Before the port opens: an old token must not work even for a moment
      if (args["new-pairing"] === true) await services.tokens.revokeAll();
      const server = await serveGateway({
        services,
        host: config.gateway.host,
        port: config.gateway.port,
        onRequest,
      });
      const stopped = waitForStop(context, { server, graceSeconds: config.gateway.shutdown_grace_secs });
      const wantsCode = config.gateway.require_pairing && await services.tokens.count() === 0;
      const pairingCode = wantsCode ? (await services.pairing.createCode()).code : undefined;
      await writeControlFile(loaded.dataDir, {
        address: loopbackAddress(server),
        pid: process.pid,
        token,
        started_at: new Date(services.startedAt).toISOString(),
        version: VERSION,
        workspace: loaded.workspace,
      });
      const facts = bannerFacts({ services, loaded, server, pairingCode, pid: process.pid });
      // One line, so that a script that starts the gateway can wait for it
      if (context.flags.json) context.io.stdout(`${JSON.stringify(facts)}\n`);
      else context.io.stdout(bannerText(facts, { requiresPairing: config.gateway.require_pairing }));
      await stopped;
    } finally {
      await removeControlFile(loaded.dataDir, token);
      await services.close();
    }
    return EXIT.ok;
  },
});

function keysOf(
  { host, port }: { readonly host?: string | undefined; readonly port?: string | undefined },
): Record<string, unknown> {
  if (port !== undefined && !/^\d{1,5}$/.test(port)) {
    throw new UsageError(`Cannot use "--port": it must be a number from 0 to 65535, not "${port}"`);
  }
  return {
    ...(host === undefined ? {} : { "gateway.host": host }),
    ...(port === undefined ? {} : { "gateway.port": Number(port) }),
  };
}

/** @throws {CommandError} another gateway runs on the data directory */
async function startAlone(context: CommandContext, options: Omit<StartOptions, "quiet">): Promise<GatewayServices> {
  try {
    return await startServices(context, { ...options, quiet: false });
  } catch (error) {
    if (!(error instanceof ConfigError) || error.code !== "data_dir_locked") throw error;
    const other = await readControlFile(options.loaded.dataDir);
    const who = other === undefined ? "another gateway" : `the gateway at ${other.address} (process ${other.pid})`;
    throw new CommandError(
      `Cannot start: ${who} uses "${options.loaded.dataDir}"; stop it, or give --data-dir and --port`,
    );
  }
}

/** Resolves once the gateway has drained after the first signal. */
function waitForStop(
  { io, say }: CommandContext,
  options: { readonly server: RunningServer; readonly graceSeconds: number },
): Promise<void> {
  return new Promise((resolve, reject) => {
    let draining = false;
    const ignore = io.onInterrupt(() => {
      if (draining) return io.exit(EXIT.failed);
      draining = true;
      say(`Stopping: work has up to ${options.graceSeconds} s to finish; press Ctrl-C again to stop at once`);
      options.server.drain(options.graceSeconds * 1000).then(resolve, reject).finally(ignore);
    });
  });
}

/** Where this machine reaches a server that may listen on every address. */
function loopbackAddress({ host, port }: RunningServer): string {
  const name = host === "::1" ? "[::1]" : host === "localhost" || host.startsWith("127.") ? host : "127.0.0.1";
  return `http://${name}:${port}/`;
}

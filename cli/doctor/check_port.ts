import { ConfigError } from "../../lib/base/errors.ts";
import type { ControlRecord } from "../../lib/host/control_file.ts";
import { tryListen } from "../../lib/system/net/tcp.ts";
import { probeGateway } from "../reach_gateway.ts";
import { checkBind, ownAddress } from "../serve/listen_address.ts";
import { type Check, failure, type Finding, fine } from "./finding.ts";

const NAME = "port";

/**
 * Checks that the gateway can listen: the configured port is free, or a gateway runs on this data directory and has its own, which `--port`
 * may have given it.
 */
export const portCheck: Check = {
  name: NAME,
  async run({ context, loaded: { config }, running }) {
    const { host: configured, port } = config.gateway;
    try {
      checkBind(config, { hasEnvironmentToken: (context.io.env["POSTERN_TOKEN"] ?? "") !== "" });
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return failure(NAME, error.message, "postern config set gateway.host 127.0.0.1");
    }
    if (running !== undefined) return heldBy(running.record, port);
    const host = bare(configured);
    const shown = shownAddress(host, port);
    if (port === 0) return fine(NAME, `A free one of ${host} is taken at each start`);
    const code = await tryListen(host, port);
    if (code === undefined) return fine(NAME, `${shown} is free`);
    return await explain(code, { host, port, shown });
  },
};

/** Says which port the running gateway has, and where the configuration names another one for the next start. */
function heldBy({ address, host }: ControlRecord, configured: number): Finding {
  const { hostname, port } = new URL(address);
  const held = Number(port || 80);
  const other = held === configured || configured === 0 ? "" : `; a start without --port takes ${configured}`;
  return fine(NAME, `${shownAddress(bare(host ?? hostname), held)} is held by the running gateway${other}`);
}

/** Returns a host without the brackets of an IPv6 address. */
function bare(host: string): string {
  return host.replace(/^\[(.*)\]$/, "$1");
}

function shownAddress(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

async function explain(
  code: string,
  { host, port, shown }: { readonly host: string; readonly port: number; readonly shown: string },
): Promise<Finding> {
  const next = port < 65_535 ? port + 1 : port - 1;
  const another = `postern config set gateway.port ${next}`;
  switch (code) {
    case "EADDRINUSE": {
      const isGateway = await probeGateway({ address: ownAddress({ host, port }), token: "" }) !== "silent";
      if (!isGateway) return failure(NAME, `${shown} is in use by another program`, another);
      // The other gateway may read the same file, where a change would move it too
      const fix = `start this one with --port ${next}, or ${another} where that gateway has a file of its own`;
      return failure(NAME, `${shown} is in use by a gateway with another data directory`, fix);
    }
    case "EACCES":
      return failure(NAME, `This user may not use ${shown}`, "postern config set gateway.port 42617");
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return failure(NAME, `This machine has no address "${host}"`, "postern config set gateway.host 127.0.0.1");
    default:
      return failure(NAME, `${shown} cannot be listened on (${code})`, another);
  }
}

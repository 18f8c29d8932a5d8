import { ConfigError } from "../../lib/base/errors.ts";
import { tryListen } from "../../lib/system/net/tcp.ts";
import { probeGateway } from "../reach_gateway.ts";
import { checkBind, ownAddress } from "../serve/listen_address.ts";
import { type Check, failure, type Finding, fine } from "./finding.ts";

const NAME = "port";

/** Checks that the gateway can listen at the configured address: the port is free, or the running gateway holds it. */
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
    const host = configured.replace(/^\[(.*)\]$/, "$1");
    const shown = `${host.includes(":") ? `[${host}]` : host}:${port}`;
    if (port === 0) return fine(NAME, `A free one of ${host} is taken at each start`);
    if (running !== undefined && Number(new URL(running.record.address).port || 80) === port) {
      return fine(NAME, `${shown} is held by the running gateway`);
    }
    const code = await tryListen(host, port);
    if (code === undefined) return fine(NAME, `${shown} is free`);
    return await explain(code, { host, port, shown });
  },
};

async function explain(
  code: string,
  { host, port, shown }: { readonly host: string; readonly port: number; readonly shown: string },
): Promise<Finding> {
  const another = `postern config set gateway.port ${port < 65_535 ? port + 1 : port - 1}`;
  switch (code) {
    case "EADDRINUSE": {
      const isGateway = await probeGateway({ address: ownAddress({ host, port }), token: "" }) !== "silent";
      const who = isGateway ? "a gateway with another data directory" : "another program";
      return failure(NAME, `${shown} is in use by ${who}`, another);
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

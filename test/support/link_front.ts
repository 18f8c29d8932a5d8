import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";

/** A key and a certificate as PEM. `authority` is the path of the certificate that vouches for it, for whoever should trust it. */
export interface Certificate {
  readonly key: string;
  readonly cert: string;
  readonly authority: string;
}

/** Reason to skip a test that makes certificates; false where openssl is there. */
export const NO_OPENSSL = spawnSync("openssl", ["version"]).status === 0 ? false : "no openssl was found";

/** Makes a certificate for 127.0.0.1, and an authority that signs it: Deno takes none that signs itself. */
export function makeCertificate(folder: string, name: string): Certificate {
  const path = (end: string) => join(folder, `${name}${end}`);
  const openssl = (...argv: readonly string[]) => execFileSync("openssl", argv, { stdio: "ignore" });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const authority = ["-CA", path("_ca.pem"), "-CAkey", path("_ca.key")];
  writeFileSync(path(".ext"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n");
  openssl(
    ...["req", "-x509", ...newKey, "-days", "2", "-subj", `/CN=${name} authority`],
    ...["-keyout", path("_ca.key"), "-out", path("_ca.pem")],
  );
  openssl("req", "-new", ...newKey, "-subj", `/CN=${name}`, "-keyout", path(".key"), "-out", path(".csr"));
  openssl(
    ...["x509", "-req", "-in", path(".csr"), ...authority, "-CAcreateserial", "-days", "2"],
    ...["-extfile", path(".ext"), "-out", path(".pem")],
  );
  const read = (end: string) => readFileSync(path(end), "utf8");
  return { key: read(".key"), cert: read(".pem"), authority: path("_ca.pem") };
}

/** An address that a gateway gives the others before it has a port: it forwards to the gateway, and takes TLS off. */
export interface LinkFront {
  /** Without a slash at the end */
  readonly url: string;
  /** Forwards connections from now on to this address of a gateway. */
  forward(url: string): void;
  close(): Promise<void>;
}

/** Starts a front on a free port of 127.0.0.1. @param certificate default: http */
export async function startLinkFront(certificate?: Certificate): Promise<LinkFront> {
  const sockets = new Set<Socket>();
  let port = 0;
  const serve = (client: Socket) => {
    const gateway = connect(port, "127.0.0.1");
    for (const [socket, other] of [[client, gateway], [gateway, client]] as const) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  };
  const server = certificate === undefined ? createServer(serve) : createTlsServer(certificate, serve);
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port: own } = server.address() as AddressInfo; // it listens on a port
  return {
    url: `${certificate === undefined ? "http" : "https"}://127.0.0.1:${own}`,
    forward: (url) => void (port = Number(new URL(url).port)),
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, "close");
    },
  };
}

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";

/** Registry on 127.0.0.1 that takes packages as JSR does, and serves their modules. */
export interface OwnJsr {
  /** Address for `JSR_URL` */
  readonly url: string;
  /** Returns the paths of what was published. */
  files(): readonly string[];
}

/** Runs `use` with a registry that has one version of one package, once that is published to it. @param folder for what it keeps */
export async function withOwnJsr(folder: string, use: (registry: OwnJsr) => Promise<void>): Promise<void> {
  const files = join(folder, "published");
  /** As `@postern/postern` and `0.1.0` */
  let [name, version] = ["", ""];
  const paths = () => globSync("**/*", { cwd: files }).filter((file) => statSync(join(files, file)).isFile());
  const answer = async (method: string, path: string, body: Promise<Buffer>): Promise<unknown> => {
    const [, scope, own, number] = /^\/api\/scopes\/(\w+)(?:\/packages\/(\w+)(?:\/versions\/([\w.]+))?)?$/.exec(path) ??
      [];
    if (method === "POST" && number !== undefined) {
      [name, version] = [`@${scope}/${own}`, number];
      mkdirSync(files);
      writeFileSync(join(folder, "published.tar.gz"), await body);
      execFileSync("tar", ["-xzf", join(folder, "published.tar.gz"), "-C", files]);
      return { id: "of-a-test", status: "success", error: null };
    }
    if (scope !== undefined) return number === undefined ? { scope, name: own } : undefined;
    if (path === `/${name}/meta.json`) {
      return {
        scope: name.slice(1).split("/")[0],
        name: name.split("/")[1],
        latest: version,
        versions: { [version]: {} },
      };
    }
    if (path === `/${name}/${version}_meta.json`) {
      const { exports } = JSON.parse(readFileSync(join(files, "deno.json"), "utf8"));
      return {
        exports,
        manifest: Object.fromEntries(paths().map((file) => [`/${file}`, entryOf(readFileSync(join(files, file)))])),
      };
    }
    const begin = `/${name}/${version}/`;
    if (!path.startsWith(begin)) return undefined;
    return readFileSync(join(files, path.slice(begin.length)));
  };
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "", "http://127.0.0.1");
    const reply = await answer(request.method ?? "", pathname, buffer(request)).catch(() => undefined);
    response.statusCode = reply === undefined ? 404 : 200;
    response.setHeader(
      "content-type",
      pathname.endsWith(".ts")
        ? "application/typescript"
        : pathname.endsWith(".js")
        ? "text/javascript"
        : "application/json",
    );
    response.end(reply instanceof Uint8Array ? reply : JSON.stringify(reply ?? {}));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  // A server that listens on a port has such an address
  const { port } = server.address() as AddressInfo;
  try {
    await use({ url: `http://127.0.0.1:${port}/`, files: paths });
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

function entryOf(bytes: Uint8Array) {
  return { size: bytes.length, checksum: `sha256-${createHash("sha256").update(bytes).digest("hex")}` };
}

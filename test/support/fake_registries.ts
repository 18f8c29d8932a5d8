import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { crc32, gzipSync } from "node:zlib";
import { writeTar } from "../../lib/extensions/plugins/tar.ts";

/** Package of the fake npm registry. */
export interface FakePackage {
  readonly name: string;
  readonly version: string;
  readonly manifest?: Readonly<Record<string, unknown>>;
  readonly files?: Readonly<Record<string, string>>;
  /** Entries of a tar behind those of the files, as they are */
  readonly entries?: readonly Uint8Array[];
  /** Bytes that come in place of the right ones */
  readonly tampered?: boolean;
  /** Leaves out the strong digest */
  readonly weak?: boolean;
}

/** Wheel of the fake PyPI, or a package that has no wheel. */
export interface FakeWheel {
  readonly name: string;
  readonly version: string;
  readonly files: Readonly<Record<string, string>>;
  /** Text of `entry_points.txt`. Default: none */
  readonly entryPoints?: string;
  readonly tampered?: boolean;
  /** A source distribution in place of a wheel */
  readonly source?: boolean;
  readonly requires?: readonly string[];
}

/** npm registry and PyPI on 127.0.0.1. */
export interface FakeRegistries extends AsyncDisposable {
  readonly url: string;
  /** Variables that make `npm`, `pip` and `uv` use them, with caches of their own */
  env(folder: string): Readonly<Record<string, string>>;
  /** Paths that were asked for */
  readonly asked: readonly string[];
}

/** Starts both registries. @param onAsk may answer a request itself: true then */
export async function startRegistries(
  { packages = [], wheels = [], onAsk }: {
    readonly packages?: readonly FakePackage[];
    readonly wheels?: readonly FakeWheel[];
    readonly onAsk?: (path: string, response: ServerResponse) => boolean;
  },
): Promise<FakeRegistries> {
  const asked: string[] = [];
  const tarballs = new Map(packages.map((one) => [`${one.name}-${one.version}`, tarballOf(one)]));
  const files = new Map(wheels.map((one) => [fileOf(one), one.source ? sourceOf(one) : wheelOf(one)]));
  let url = "";
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", url).pathname);
    asked.push(path);
    if (onAsk?.(path, response) === true) return;
    const tarball = tarballs.get(/^\/npm\/-\/(.*)\.tgz$/.exec(path)?.[1] ?? "");
    if (tarball !== undefined) return void response.end(tarball.sent);
    const file = files.get(/^\/files\/(.*)$/.exec(path)?.[1] ?? "");
    if (file !== undefined) return void response.end(file.sent);
    const named = packages.filter(({ name }) => path === `/npm/${name}`);
    if (named.length > 0) return sendJson(response, "application/json", npmDocument(named, { tarballs, url }));
    const wheel = wheels.filter(({ name }) => path === `/simple/${name}/`);
    if (wheel.length > 0) {
      return sendJson(response, "application/vnd.pypi.simple.v1+json", pypiDocument(wheel, { files, url }));
    }
    response.writeHead(404, { "content-type": "application/json" }).end('{"error":"Not found"}');
  };
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens on a port has such an address
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    asked,
    env: (folder) => ({
      PATH: process.env["PATH"] ?? "",
      npm_config_registry: `${url}/npm/`,
      npm_config_cache: `${folder}/.npm-cache`,
      npm_config_userconfig: `${folder}/.npmrc`,
      PIP_INDEX_URL: `${url}/simple/`,
      PIP_CACHE_DIR: `${folder}/.pip-cache`,
      PIP_CONFIG_FILE: "/dev/null",
      UV_DEFAULT_INDEX: `${url}/simple/`,
      UV_CACHE_DIR: `${folder}/.uv-cache`,
    }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function sendJson(response: ServerResponse, type: string, body: unknown): void {
  response.writeHead(200, { "content-type": type }).end(JSON.stringify(body));
}

interface Archive {
  readonly right: Uint8Array;
  readonly sent: Uint8Array;
}

function tarballOf(
  { name, version, manifest, files = {}, entries: more = [], tampered = false }: FakePackage,
): Archive {
  const make = (extra: Readonly<Record<string, string>>) => {
    const all = { "package.json": JSON.stringify({ name, version, ...manifest }), ...files, ...extra };
    const entries = Object.entries(all).map(([path, text]) => ({
      path: `package/${path}`,
      bytes: Buffer.from(text),
      executable: false,
    }));
    // The end of a tar is two empty blocks
    return gzipSync(Buffer.concat([writeTar(entries).subarray(0, -1024), ...more, new Uint8Array(1024)]));
  };
  const right = make({});
  return { right, sent: tampered ? make({ "evil.js": "process.exit(1)" }) : right };
}

function npmDocument(
  versions: readonly FakePackage[],
  { tarballs, url }: { readonly tarballs: ReadonlyMap<string, Archive>; readonly url: string },
) {
  const one = ({ name, version, manifest, weak = false }: FakePackage) => {
    const bytes = tarballs.get(`${name}-${version}`)?.right ?? new Uint8Array();
    const digest = (kind: string, form: "hex" | "base64") => createHash(kind).update(bytes).digest(form);
    const hasInstallScript = JSON.stringify(manifest ?? {}).includes("install");
    return {
      ...{ name, version, ...manifest, hasInstallScript },
      dist: {
        tarball: `${url}/npm/-/${name}-${version}.tgz`,
        shasum: digest("sha1", "hex"),
        ...(weak ? {} : { integrity: `sha512-${digest("sha512", "base64")}` }),
      },
    };
  };
  const [{ name } = { name: "" }] = versions;
  return {
    name,
    "dist-tags": { latest: versions.at(-1)?.version },
    versions: Object.fromEntries(versions.map((version) => [version.version, one(version)])),
  };
}

function fileOf({ name, version, source = false }: FakeWheel): string {
  const base = `${name.replaceAll("-", "_")}-${version}`;
  return source ? `${base}.tar.gz` : `${base}-py3-none-any.whl`;
}

function sourceOf(wheel: FakeWheel): Archive {
  const entries = Object.entries({ "setup.py": "raise SystemExit(1)", ...wheel.files }).map(([path, text]) => ({
    path: `${wheel.name}-${wheel.version}/${path}`,
    bytes: Buffer.from(text),
    executable: false,
  }));
  const right = gzipSync(writeTar(entries));
  return { right, sent: right };
}

function wheelOf({ name, version, files, entryPoints, tampered = false, requires = [] }: FakeWheel): Archive {
  const info = `${name.replaceAll("-", "_")}-${version}.dist-info`;
  const make = (extra: Readonly<Record<string, string>>) => {
    const needs = requires.map((one) => `Requires-Dist: ${one}\n`).join("");
    const all: Record<string, string> = {
      ...files,
      ...extra,
      [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n${needs}`,
      [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
      ...(entryPoints === undefined ? {} : { [`${info}/entry_points.txt`]: entryPoints }),
    };
    const lines = [...Object.keys(all), `${info}/RECORD`].map((path) => `${path},,`);
    return zip({ ...all, [`${info}/RECORD`]: `${lines.join("\n")}\n` });
  };
  const right = make({});
  return { right, sent: tampered ? make({ "evil.py": "raise SystemExit(1)" }) : right };
}

function pypiDocument(
  wheels: readonly FakeWheel[],
  { files, url }: { readonly files: ReadonlyMap<string, Archive>; readonly url: string },
) {
  return {
    meta: { "api-version": "1.1" },
    name: wheels[0]?.name,
    versions: wheels.map(({ version }) => version),
    files: wheels.map((wheel) => {
      const right = files.get(fileOf(wheel))?.right ?? new Uint8Array();
      const sha256 = createHash("sha256").update(right).digest("hex");
      return {
        ...{ filename: fileOf(wheel), url: `${url}/files/${fileOf(wheel)}`, hashes: { sha256 }, size: right.length },
        ...{ yanked: false, "upload-time": "2026-01-01T00:00:00Z" },
      };
    }),
  };
}

/** Writes a zip whose files are stored as they are. Source: PKWARE APPNOTE 6.3.10 */
function zip(files: Readonly<Record<string, string>>): Uint8Array {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let place = 0;
  for (const [path, text] of Object.entries(files)) {
    const [name, data] = [Buffer.from(path), Buffer.from(text)];
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(0x21, 8);
    common.writeUInt32LE(crc32(data), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from([0x50, 0x4b, 3, 4]), common, name, data]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(place, 10);
    directory.push(Buffer.concat([Buffer.from([0x50, 0x4b, 1, 2, 20, 3]), common, rest, name]));
    parts.push(local);
    place += local.length;
  }
  const list = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", 0, "latin1");
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(list.length, 12);
  end.writeUInt32LE(place, 16);
  return Buffer.concat([...parts, list, end]);
}

import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { freePort } from "../support/free_port.ts";
import { ROOT } from "../support/gateway_process.ts";
import { startProcess } from "../support/started_process.ts";

const run = promisify(execFile);

/** Registry on 127.0.0.1 that has Postern, and the packages that it depends on. */
export interface OwnRegistry {
  /** Address, without a slash at the end */
  readonly url: string;
  /** Variables with which npm uses this registry and no other, as a user with this home */
  env(home: string): Readonly<Record<string, string>>;
}

/**
 * Runs `use` with a registry to which the tarball was published by `npm publish`, as an owner would; the packages that it depends on come
 * from `node_modules`. No other registry is asked for anything.
 * @param tools folder of `systemTools`
 * @param folder for everything it keeps
 */
export async function withOwnRegistry(
  { tools, folder, tarball }: { readonly tools: string; readonly folder: string; readonly tarball: string },
  use: (registry: OwnRegistry) => Promise<void>,
): Promise<void> {
  const config = join(folder, "registry.yaml");
  writeFileSync(
    config,
    `storage: ${JSON.stringify(join(folder, "storage"))}
max_body_size: 100mb
web: { enable: false }
packages: { "**": { access: $all, publish: $all } }
log: { type: stdout, format: json, level: warn }
`,
  );
  const port = await freePort();
  const server = await startProcess(
    [process.execPath, join(tools, "verdaccio/bin/verdaccio"), "--config", config, "--listen", `127.0.0.1:${port}`],
    { cwd: folder, ready: /http address/ },
  );
  const url = `http://127.0.0.1:${port}`;
  const registry: OwnRegistry = {
    url,
    env: (home) => ({
      PATH: process.env["PATH"] ?? "",
      HOME: home,
      npm_config_registry: `${url}/`,
      npm_config_cache: join(folder, "npm"),
      npm_config_prefix: join(home, "global"),
      npm_config_update_notifier: "false",
      npm_config_audit: "false",
      npm_config_fund: "false",
    }),
  };
  try {
    await publishDependencies(url, folder);
    const userconfig = join(folder, "npmrc");
    writeFileSync(userconfig, `//${new URL(url).host}/:_authToken=of-a-test\n`);
    await run("npm", ["publish", tarball, "--ignore-scripts", "--userconfig", userconfig], {
      cwd: folder,
      env: registry.env(folder),
    });
    await use(registry);
  } finally {
    await server.end("SIGKILL");
  }
}

/** Puts every package into the registry that an installed Postern needs, as it is in `node_modules`. */
async function publishDependencies(url: string, folder: string): Promise<void> {
  const listed = await run("npm", ["ls", "--omit=dev", "--all", "--parseable"], { cwd: ROOT }).catch(
    // Optional packages of other systems are missing
    (error: { readonly stdout: string }) => error,
  );
  // The compiler is an optional peer of another package, and there for the project itself
  const needed = listed.stdout.split("\n").filter((path) =>
    path.includes("node_modules") && !path.includes("typescript")
  );
  const packing = ["pack", ...needed, "--ignore-scripts", "--json", "--pack-destination", folder];
  const { stdout } = await run("npm", packing, { cwd: folder, maxBuffer: 100_000_000 });
  const packed = JSON.parse(stdout) as readonly Readonly<
    Record<"name" | "version" | "filename" | "shasum" | "integrity", string>
  >[];
  for (const [index, { name, version, filename, shasum, integrity }] of packed.entries()) {
    const manifest = JSON.parse(readFileSync(join(needed[index] ?? "", "package.json"), "utf8"));
    const bytes = readFileSync(join(folder, filename));
    const dist = { shasum, integrity, tarball: `${url}/${name}/-/${filename}` };
    const reply = await fetch(`${url}/${name.replace("/", "%2f")}`, {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        ...{ _id: name, name, "dist-tags": { latest: version } },
        versions: { [version]: { ...manifest, _id: `${name}@${version}`, dist } },
        _attachments: {
          [filename]: {
            content_type: "application/octet-stream",
            data: bytes.toString("base64"),
            length: bytes.length,
          },
        },
      }),
    });
    if (!reply.ok) throw new Error(`Cannot publish ${name}@${version}: ${await reply.text()}`);
  }
}

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { buildPackage } from "../support/build_package.ts";
import { VERSION } from "../../lib/base/version.ts";
import { ROOT } from "../support/gateway_process.ts";
import { packPackage } from "../support/packed_package.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Files of a checkout that `npm pack` needs, beside its packages */
const CHECKOUT = [
  ...["cli", "handlers", "lib", "docs", "scripts", "package.json", "README.md", "LICENSE", "CHANGELOG.md"],
  ...["tsconfig.json", "tsconfig.build.json"],
];
/** Bytes of the tarball */
const MOST_BYTES = 2_000_000;
/** Program and options that run a command without any network */
const NO_NETWORK = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--"];
const cuts = spawnSync(NO_NETWORK[0] ?? "", [...NO_NETWORK.slice(1), "true"]).status === 0;

test("npm pack gives the same bytes in another folder at another time, and reaches for no network", {
  skip: "Deno" in globalThis && "it is about npm",
}, () =>
  withTemporaryFolder(async (folder) => {
    const first = readFileSync(await packPackage(await buildPackage(), folder));
    assert.ok(first.length < MOST_BYTES, `the tarball has ${first.length} bytes`);
    const checkout = join(folder, "another checkout");
    for (const path of CHECKOUT) cpSync(join(ROOT, path), join(checkout, path), { recursive: true });
    symlinkSync(join(ROOT, "node_modules"), join(checkout, "node_modules"));
    const [command = "", ...argv] = [...(cuts ? NO_NETWORK : []), "npm", "pack", "--loglevel", "error"];
    execFileSync(command, argv, {
      cwd: checkout,
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, npm_config_cache: join(folder, "empty"), npm_config_fetch_retries: "0" },
    });
    const second = readFileSync(join(checkout, `postern-${VERSION}.tgz`));
    assert.ok(first.length > 500_000 && first.equals(second), "the tarballs differ");
  }));

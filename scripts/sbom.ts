/**
 * Prints the bill of materials of the package, as CycloneDX: `npm run --silent sbom`. npm makes it of the lock file, without a network. The
 * moment is left out of it, and the serial number is made of the rest, so that one state of the lock file gives one text.
 *
 * npm is shown a project without what this one is built and tested with: `npm sbom --omit=dev` of npm 11 leaves out each package that a
 * package for tests needs too, such as undici.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";

interface LockEntry {
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly peer?: boolean;
  readonly link?: boolean;
}

const readJson = (file: string) => JSON.parse(readFileSync(file, "utf8"));
const { devDependencies: _dev, peerDependencies: _peer, peerDependenciesMeta: _meta, ...manifest } = readJson(
  "package.json",
);
const lock = readJson("package-lock.json");
const installed = Object.entries<LockEntry>(lock.packages).filter(([path, { dev, devOptional, peer, link }]) =>
  path.startsWith("node_modules/") && !dev && !devOptional && !peer && !link
);

const folder = mkdtempSync(join(tmpdir(), "sbom-"));
let made: string;
try {
  // npm takes the name of the folder for that of the package
  const project = join(folder, manifest.name);
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), JSON.stringify(manifest));
  const packages = { "": manifest, ...Object.fromEntries(installed) };
  writeFileSync(join(project, "package-lock.json"), JSON.stringify({ ...lock, packages }));
  const options = { cwd: project, encoding: "utf8", maxBuffer: 100_000_000 } as const;
  made = execFileSync("npm", ["sbom", "--package-lock-only", "--sbom-format=cyclonedx"], options);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

const { $schema, bomFormat, specVersion, serialNumber: _random, ...bill } = JSON.parse(made);
delete bill.metadata.timestamp;
const digest = createHash("sha256").update(JSON.stringify(bill)).digest("hex");
// RFC 9562 section 5.8: version 8 leaves the bits to whoever makes them
const serial = digest.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, "$1-$2-8$3-8$4-$5");
const text = JSON.stringify({ $schema, bomFormat, specVersion, serialNumber: `urn:uuid:${serial}`, ...bill }, null, 2);
process.stdout.write(`${text}\n`);

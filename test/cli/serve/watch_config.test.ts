import assert from "node:assert/strict";
import { mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import type { StatusReply } from "../../../lib/base/records/gateway_status.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { readControlFile } from "../../../lib/host/control_file.ts";
import { someOf } from "../../support/seeded_random.ts";
import { until } from "../../support/until.ts";
import { type Machine, onMachine, type RunOptions } from "../support/run_in.ts";

interface Running {
  readonly machine: Machine;
  readonly file: string;
  hangUp(): void;
  /** The largest number of requests a window takes: what the tests change */
  limit(): Promise<string | null>;
  /** Waits until a change was refused, or nothing had changed, after the last time this was waited for */
  refused(): Promise<void>;
  unchanged(): Promise<void>;
}

/** A gateway over a file of the user's; its log is given back. */
async function withFile(
  text: string | undefined,
  use: (running: Running) => Promise<void>,
  options: { readonly argv?: readonly string[]; readonly place?: string; readonly env?: RunOptions["env"] } = {},
): Promise<string> {
  let stderr = "";
  await onMachine(async (machine) => {
    const file = join(machine.home, options.place ?? ".config/postern/postern.toml");
    if (text !== undefined) {
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, text);
    }
    let hangUp = () => {};
    const argv = (options.argv ?? []).map((word) => (word === "FILE" ? file : word));
    const finished = await machine.withGateway(argv, async () => {
      await use({ machine, file, hangUp: () => hangUp(), ...await watcherOf(machine) });
    }, {
      onReloadable: (each) => (hangUp = each),
      ...(options.env === undefined ? {} : { env: options.env }),
    });
    assert.equal(finished.code, 0, finished.stderr);
    stderr = finished.stderr;
  });
  return stderr;
}

async function watcherOf({ dataDir }: Machine): Promise<Pick<Running, "limit" | "refused" | "unchanged">> {
  const { address = "", token = "" } = await readControlFile(dataDir) ?? {};
  const ask = () => fetch(`${address}v1/status`, { headers: { authorization: `Bearer ${token}` } });
  let seen = "";
  const told = (outcome: string) =>
    until(async () => {
      const { config: { last_reload: last } } = await (await ask()).json() as StatusReply;
      const isNew = last !== null && last.outcome === outcome && last.at !== seen;
      if (isNew) seen = last.at;
      return isNew;
    }, `No reload was ${outcome}`);
  return {
    async limit() {
      const reply = await ask();
      await reply.body?.cancel();
      return reply.headers.get("x-ratelimit-limit-requests");
    },
    refused: () => told("refused"),
    unchanged: () => told("unchanged"),
  };
}

/** In one step: what is written in place is empty for a moment, and an empty file is a good one. */
async function replaceFile(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

/** Far more than the tests ask */
const limitOf = (max: number) => `[gateway]\nrate_limit_max = ${max}\n`;

/** A request of 5,000 bytes. */
async function post({ dataDir }: Machine): Promise<{ readonly status: number }> {
  const { address = "", token = "" } = await readControlFile(dataDir) ?? {};
  const headers = { authorization: `Bearer ${token}` };
  const reply = await fetch(`${address}v1/ping`, { method: "POST", headers, body: JSON.stringify("x".repeat(5000)) });
  await reply.body?.cancel();
  return { status: reply.status };
}

test("a file that is saved is taken over, in place and by replacement", async () => {
  const log = await withFile(limitOf(500_000), async ({ file, limit }) => {
    assert.equal(await limit(), "500000");
    await writeFile(file, limitOf(501_000));
    await until(async () => await limit() === "501000", "The change in place did not count");
    await replaceFile(file, limitOf(502_000));
    await until(async () => await limit() === "502000", "The replacement did not count");
  });
  assert.match(log, /Reloaded the configuration: gateway\.rate_limit_max/);
});

test("SIGHUP loads it at once, and does not end the gateway", async () => {
  const log = await withFile(limitOf(500_000), async ({ file, limit, hangUp, unchanged }) => {
    hangUp();
    await unchanged();
    await writeFile(file, limitOf(501_000));
    hangUp();
    await until(async () => await limit() === "501000", "SIGHUP did not load it");
  });
  assert.match(log, /nothing in it has changed/);
});

test("a bad file changes nothing and is told with file, line and key; a good one after it counts", async () => {
  let path = "";
  const log = await withFile(limitOf(500_000), async ({ file, limit, refused }) => {
    path = file;
    await replaceFile(file, `${limitOf(501_000)}colour = "red"\n`);
    await refused();
    assert.equal(await limit(), "500000");
    await replaceFile(file, "[gateway\n");
    await refused();
    assert.equal(await limit(), "500000");
    await writeFile(file, limitOf(502_000));
    await until(async () => await limit() === "502000", "The good file did not count");
  });
  assert.match(log, /the running one stays: Cannot use "gateway\.colour"/);
  assert.ok(log.includes(`${path}:3`), log);
});

test("a file that is removed leaves the running configuration, and counts again when it is back", async () => {
  const log = await withFile(limitOf(500_000), async ({ file, limit, refused }) => {
    await rm(file);
    await refused();
    assert.equal(await limit(), "500000");
    await writeFile(file, limitOf(501_000));
    await until(async () => await limit() === "501000", "The file that came back did not count");
  });
  assert.match(log, /is not there any more/);
});

test("flags and the environment stay above the file", async () => {
  await withFile(limitOf(500_000), async ({ machine, file, limit }) => {
    await writeFile(file, `${limitOf(501_000)}port = 1\nmax_request_bytes = 4242\n`);
    await until(async () => (await post(machine)).status === 413, "The change did not count");
    assert.equal(await limit(), "77000");
  }, { env: { POSTERN__GATEWAY__RATE_LIMIT_MAX: "77000" } });
});

test("a file given with --config is watched too", async () => {
  await withFile(limitOf(500_000), async ({ file, limit }) => {
    await writeFile(file, limitOf(501_000));
    await until(async () => await limit() === "501000", "The change did not count");
  }, { argv: ["--config", "FILE"], place: "elsewhere/my.toml" });
});

test("a file of the folder that was accepted counts only once its change is accepted too", () =>
  onMachine(async (machine) => {
    const file = join(machine.cwd, "postern.toml");
    await writeFile(file, limitOf(500_000));
    assert.equal((await machine.run(["trust"])).code, 0);
    const { stderr } = await machine.withGateway([], async () => {
      const { limit, refused } = await watcherOf(machine);
      await writeFile(file, limitOf(501_000));
      await refused();
      assert.equal(await limit(), "500000");
      assert.equal((await machine.run(["trust"])).code, 0);
      await until(async () => await limit() === "501000", "The accepted change did not count");
    });
    assert.match(stderr, /it has changed since you accepted it/);
  }));

test("a file in the workspace that nobody accepted counts at SIGHUP only: a program of a tool could write it", async () => {
  const log = await withFile(limitOf(500_000), async ({ file, limit, hangUp }) => {
    await writeFile(file, limitOf(501_000));
    await systemClock.sleep(500);
    assert.equal(await limit(), "500000");
    hangUp();
    await until(async () => await limit() === "501000", "SIGHUP did not load it");
  }, { argv: ["--config", "FILE"], place: "work/sub/postern.toml" });
  assert.match(log, /are used at SIGHUP and at a restart only: it lies in the workspace/);
});

// Each waits for a look of the watcher, so they wait together
describe("a link to a file outside", { concurrency: true }, () => {
  for (
    const [title, named, links] of someOf(
      [
        ["the link that --config names", "work/mine.toml", [["work/mine.toml", "safe/mine.toml"]]],
        ["a folder's link on the way", "work/sub/mine.toml", [["work/sub", "safe"]]],
        ["a link behind a link", "mine.toml", [["mine.toml", "work/mine.toml"], ["work/mine.toml", "safe/mine.toml"]]],
      ] as const,
      0,
    )
  ) {
    test(`a file outside counts at SIGHUP only where a program of a tool could exchange ${title}`, () =>
      onMachine(async (machine) => {
        const { home } = machine;
        for (const [folder, max] of [["safe", 500_000], ["evil", 501_000]] as const) {
          await mkdir(join(home, folder));
          await writeFile(join(home, folder, "mine.toml"), limitOf(max));
        }
        for (const [link, target] of links) await symlink(join(home, target), join(home, link));
        const { stderr } = await machine.withGateway(["--config", join(home, named)], async () => {
          const { limit } = await watcherOf(machine);
          const [link, target] = links.at(-1) ?? links[0];
          await symlink(join(home, target.replace("safe", "evil")), join(home, "exchanged"));
          await rename(join(home, "exchanged"), join(home, link));
          // The watcher looks each 2 s, and waits until a file is left alone
          await systemClock.sleep(2600);
          assert.equal(await limit(), "500000");
        });
        assert.match(
          stderr,
          /are used at SIGHUP and at a restart only: it lies in the workspace, or a link to it does/,
        );
      }));
  }
});

test("a gateway that was started without a file takes none on the way", async () => {
  const log = await withFile(undefined, async ({ file, limit, hangUp, refused }) => {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, limitOf(501_000));
    hangUp();
    await refused();
    assert.equal(await limit(), "600");
  });
  assert.match(log, /it was started without one; restart it to use/);
});
